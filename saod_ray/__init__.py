"""saod-ray: benchmark self-aware object detectors."""

__version__ = "0.1.0"
