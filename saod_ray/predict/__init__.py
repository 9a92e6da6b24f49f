"""Self-aware detectors at work: images in, verdicts out."""
