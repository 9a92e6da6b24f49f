"""The detector protocol, and the detections that a detector returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from saod_ray.config import DetectorSpec


@dataclass(frozen=True)
class Detections:
    """The detections of one image, best first. Arrays have n rows; an uncertainty the detector lacks is None."""

    label: np.ndarray  # (n,) int16, index into the detector's classes
    box: np.ndarray  # (n, 4) float32, x1 y1 x2 y2 in pixels of the image
    score: np.ndarray  # (n,) float32, and so are the next four
    entropy: np.ndarray | None = None
    ds: np.ndarray | None = None
    avg_entropy: np.ndarray | None = None
    max_class_entropy: np.ndarray | None = None
    variance: np.ndarray | None = None  # (n, 4) float32, of the four deltas


class Detector(Protocol):
    """Anything with a `spec` and a method `detect`; no base class is needed."""

    spec: DetectorSpec

    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        """The detections of images, one result per image in the same order.

        Images are (height, width, 3) uint8 RGB arrays of any size.
        """
        ...
