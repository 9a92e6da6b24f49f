"""A self-aware detector that runs its own detector on images: `saod_ray.SelfAware`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from saod_ray.detect.detections import Detector
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.verdicts import Verdict

if TYPE_CHECKING:
    from saod_ray.predict.predictor import Image


class SelfAwareDetector(SelfAware):
    """Image threshold, detection thresholds and calibrators of one detector, which can also run that detector."""

    @classmethod
    def from_self_aware(cls, self_aware: SelfAware) -> Self:
        """The same thresholds and calibrators with `predict`."""
        return cls(**vars(self_aware))

    def predict(self, images: Image | Sequence[Image], detector: Detector | None = None) -> list[Verdict]:
        """One verdict per image. A single image gives a list of one.

        Args:
            images: Paths of files, or (height, width, 3) uint8 RGB arrays.
            detector: A detector that is built already; by default the one this was fitted for is built.

        Raises:
            SaodError: The detector has other weights, another config or other classes than the one this was fitted for,
                or an image cannot be read.
        """
        from saod_ray.predict.predictor import Predictor, PredictorConfig

        is_single = isinstance(images, str | Path) or (isinstance(images, np.ndarray) and images.ndim <= 3)
        image_list = cast("Sequence[Image]", [images] if is_single else images)
        predictor = PredictorConfig.from_self_aware(self).build() if detector is None else Predictor(self, detector)
        return predictor.verdicts(image_list)
