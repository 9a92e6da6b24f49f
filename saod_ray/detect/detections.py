"""What a detector is, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from saod_ray.config import DetectorSpec


@dataclass(frozen=True)
class Detections:
    """The detections of one image, best first; an uncertainty that the detector does not have is None."""

    label: np.ndarray  # int16, index into the detector's classes
    box: np.ndarray  # float32, x1 y1 x2 y2 in pixels of the image
    score: np.ndarray  # float32
    entropy: np.ndarray | None = None
    ds: np.ndarray | None = None
    avg_entropy: np.ndarray | None = None
    max_class_entropy: np.ndarray | None = None
    variance: np.ndarray | None = None  # float32, of each of the four deltas


class Detector(Protocol):
    """Anything that detects."""

    spec: DetectorSpec

    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        """The detections of RGB images, uint8 and of any size, in their order."""
        ...
