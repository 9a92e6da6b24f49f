"""The verdict of a self-aware detector on an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from saod_ray.detect.detections import Detections
from saod_ray.score.uncertainty import NO_DETECTION


@dataclass(frozen=True)
class Verdict:
    """Accepted or rejected, and the calibrated detections that reach their class's threshold; rejected images have none.

    An image without any detection is rejected, with the uncertainty 1e12.
    """

    accepted: bool
    uncertainty: float
    threshold: float
    detections: Detections  # labels are indices into `classes`; scores are calibrated, in float64
    classes: tuple[str, ...]

    def names(self) -> list[str]:
        """The class of each detection."""
        return [self.classes[label] for label in self.detections.label]

    def said(self) -> str:
        """The verdict in a few words."""
        why = "no detection" if self.uncertainty == NO_DETECTION else f"u = {self.uncertainty:.4f}"
        return f"{'accepted' if self.accepted else 'rejected'} ({why}, threshold {self.threshold:.4f})"

    def to_json(self) -> dict[str, Any]:
        """The verdict as a JSON value: null is the uncertainty without a detection, and a score that is not defined."""
        found = zip(self.names(), self.detections.score.tolist(), self.detections.box.tolist(), strict=True)
        return {
            "accepted": self.accepted,
            "uncertainty": _number(self.uncertainty) if self.uncertainty != NO_DETECTION else None,
            "threshold": self.threshold,
            "detections": [{"class": name, "score": _number(score), "box": box} for name, score, box in found],
        }


def _number(value: float) -> float | None:
    """A number, or None for NaN, which JSON does not have."""
    return value if np.isfinite(value) else None
