"""torchvision's detection models behind the detector protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saod_ray.config import DetectorSpec
from saod_ray.detect.backends import MOST, batches, check_labels, library
from saod_ray.detect.checkpoints import load
from saod_ray.detect.detections import Detections
from saod_ray.errors import SaodError, did_you_mean


class TorchvisionDetector:
    """A model of torchvision.models.detection by its name, with a checkpoint's weights.

    Its models do not say from which row of logits a detection came, and it is not guessed: there are scores, and no
    other uncertainty. `labels` is the model's label of each class; by default 1 to the number of classes, with 0 for
    background. Further options go to the model (`box_score_thresh`, `min_size`).
    """

    def __init__(
        self,
        spec: DetectorSpec,
        checkpoint: Path,
        device: str = "cpu",
        batch_size: int = 2,
        *,
        threads: int | None = None,
        model: str,
        labels: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.spec = spec
        own = check_labels(spec.name, labels or range(1, len(spec.classes) + 1), spec.classes)
        self._classes = np.full(max(own) + 1, -1, dtype=np.int16)
        self._classes[own] = np.arange(len(own))
        self._model = _model(model, len(self._classes), options)
        load(self._model, checkpoint)
        self._model.eval().to(device)
        self._device, self._batch_size = device, batch_size

    @torch.inference_mode()
    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        """The detections of RGB images; the model resizes and normalises them itself."""
        found: dict[int, Detections] = {}
        for numbers in batches(images, self._batch_size):
            inputs = [torch.from_numpy(images[k].copy()).permute(2, 0, 1).to(self._device) / 255 for k in numbers]
            found.update(zip(numbers, map(self._converted, self._model(inputs)), strict=True))
        return [found[k] for k in range(len(images))]

    def _converted(self, found: dict[str, torch.Tensor]) -> Detections:
        label = self._classes[found["labels"].cpu().numpy()]
        score = found["scores"].float().cpu().numpy()
        best = np.argsort(-score, kind="stable")
        best = best[label[best] >= 0][:MOST]  # a label that is no class of ours is background
        return Detections(label=label[best], box=found["boxes"].float().cpu().numpy()[best], score=score[best])


def _model(name: str, outputs: int, options: dict[str, Any]) -> Any:
    models = library("torchvision").models
    known = models.list_models(module=models.detection)
    if name not in known:
        raise SaodError(
            f"torchvision has no detection model '{name}'{did_you_mean(name, known)}: use one of {', '.join(known)}."
        )
    return models.get_model(name, weights=None, weights_backbone=None, num_classes=outputs, **options)
