"""Training a detector: Ray Train around mmengine's runner."""
