"""Detectors: what turns a batch of images into detections with uncertainties."""
