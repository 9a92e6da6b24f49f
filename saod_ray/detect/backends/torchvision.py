"""Detectors from torchvision's detection models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saod_ray.config import DetectorSpec
from saod_ray.detect.backends import MAX_DETECTIONS, batches, check_labels, import_library
from saod_ray.detect.checkpoints import load
from saod_ray.detect.detections import Detections
from saod_ray.errors import SaodError, did_you_mean


class TorchvisionDetector:
    """A model of torchvision.models.detection by its name, with a checkpoint's weights.

    torchvision does not report which row of logits a detection came from, so scores are the only uncertainty. `labels` is
    the model's label of each class; by default 1 to the number of classes, with 0 for background. Further options are
    passed to the model (`box_score_thresh`, `min_size`).
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
        model_labels = check_labels(spec.name, labels or range(1, len(spec.classes) + 1), spec.classes)
        self._classes = np.full(max(model_labels) + 1, -1, dtype=np.int16)
        self._classes[model_labels] = np.arange(len(model_labels))
        self._model = _build_model(model, len(self._classes), options)
        load(self._model, checkpoint)
        self._model.eval().to(device)
        self._device, self._batch_size = device, batch_size

    @torch.inference_mode()
    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        """The detections of RGB images, uint8; the model resizes and normalises them."""
        results: dict[int, Detections] = {}
        for indices in batches(images, self._batch_size):
            inputs = [torch.from_numpy(images[k].copy()).permute(2, 0, 1).to(self._device) / 255 for k in indices]
            results.update(zip(indices, map(self._to_detections, self._model(inputs)), strict=True))
        return [results[k] for k in range(len(images))]

    def _to_detections(self, output: dict[str, torch.Tensor]) -> Detections:
        label = self._classes[output["labels"].cpu().numpy()]
        score = output["scores"].float().cpu().numpy()
        best = np.argsort(-score, kind="stable")
        best = best[label[best] >= 0][:MAX_DETECTIONS]  # other labels count as background
        return Detections(label=label[best], box=output["boxes"].float().cpu().numpy()[best], score=score[best])


def _build_model(name: str, outputs: int, options: dict[str, Any]) -> Any:
    models = import_library("torchvision").models
    names = models.list_models(module=models.detection)
    if name not in names:
        raise SaodError(
            f"torchvision has no detection model '{name}'{did_you_mean(name, names)}: use one of {', '.join(names)}."
        )
    return models.get_model(name, weights=None, weights_backbone=None, num_classes=outputs, **options)
