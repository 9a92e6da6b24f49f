"""The verdict of a self-aware detector on an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from saod_ray.detect.detections import Detections
from saod_ray.score.uncertainty import NO_DETECTION


@dataclass(frozen=True)
class Verdict:
    """Whether an image is accepted, and its calibrated detections that reach the threshold of their class.

    A rejected image has no detections. An image on which nothing was detected is rejected, with the uncertainty 1e12.
    """

    accepted: bool
    uncertainty: float  # u, of the image
    threshold: float  # u-bar; higher uncertainties are rejected
    detections: Detections  # labels are indices into `classes`; scores are calibrated, float64
    classes: tuple[str, ...]

    def names(self) -> list[str]:
        """The class of each detection."""
        return [self.classes[label] for label in self.detections.label]

    def summary(self) -> str:
        """The verdict as a short phrase."""
        why = "no detection" if self.uncertainty == NO_DETECTION else f"u = {self.uncertainty:.4f}"
        return f"{'accepted' if self.accepted else 'rejected'} ({why}, threshold {self.threshold:.4f})"

    def to_json(self) -> dict[str, Any]:
        """The verdict as a JSON value; an undefined score, and the uncertainty without any detection, are null."""
        rows = zip(self.names(), self.detections.score.tolist(), self.detections.box.tolist(), strict=True)
        return {
            "accepted": self.accepted,
            "uncertainty": _number(self.uncertainty) if self.uncertainty != NO_DETECTION else None,
            "threshold": self.threshold,
            "detections": [{"class": name, "score": _number(score), "box": box} for name, score, box in rows],
        }


def _number(value: float) -> float | None:
    """The value, or None where it is not finite: JSON has no NaN."""
    return value if np.isfinite(value) else None
