"""Detectors: the protocol, backends, models, fingerprints, and the registry that finds and builds them by name."""
