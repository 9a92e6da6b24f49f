"""Data: annotation formats, manifests, image decoding and preparation, and the generated use case `shapes`."""
