"""The verdict of a self-aware detector on an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from saod_ray.detect.detections import Detections
from saod_ray.score.uncertainty import NO_DETECTION


@dataclass(frozen=True)
class Verdict:
    """Whether an image is accepted, and its calibrated detections. A rejected image has none.

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

    def summary(self) -> str:
        """The verdict in a few words."""
        why = "no detection" if self.uncertainty == NO_DETECTION else f"u = {self.uncertainty:.4f}"
        return f"{'accepted' if self.accepted else 'rejected'} ({why}, threshold {self.threshold:.4f})"

    def to_json(self) -> dict[str, Any]:
        """A JSON value. The uncertainty of an image without detections is null, and so is an undefined score."""
        rows = zip(self.names(), self.detections.score.tolist(), self.detections.box.tolist(), strict=True)
        return {
            "accepted": self.accepted,
            "uncertainty": _number(self.uncertainty) if self.uncertainty != NO_DETECTION else None,
            "threshold": self.threshold,
            "detections": [{"class": name, "score": _number(score), "box": box} for name, score, box in rows],
        }


def _number(value: float) -> float | None:
    """The number; None for NaN, which JSON does not have."""
    return value if np.isfinite(value) else None
