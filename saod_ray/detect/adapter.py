"""mmdet models behind the detector protocol."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config

from saod_ray.config import DetectorSpec
from saod_ray.detect import uncertainty
from saod_ray.detect.carrying import carry
from saod_ray.detect.checkpoints import load
from saod_ray.detect.detections import Detections
from saod_ray.detect.mmdetection import quiet

from mmcv.transforms import Compose  # isort: skip
from mmdet.registry import MODELS  # isort: skip
from mmdet.utils import get_test_pipeline_cfg  # isort: skip

BATCH = 2  # as published


class MmdetDetector:
    """A model from a config, with a checkpoint's weights or (for trying it out) random ones."""

    def __init__(
        self, spec: DetectorSpec, config: Config, checkpoint: Path | None, device: str = "cpu", batch_size: int = BATCH
    ) -> None:
        self.spec = spec
        with quiet():
            self.model = MODELS.build(config.model)
            if checkpoint is None:
                self.model.init_weights()
        if checkpoint is not None:
            load(self.model, checkpoint)
        self._carries = carry(self.model)
        self.model.eval().to(device)
        steps = [step for step in get_test_pipeline_cfg(config.copy()) if step["type"] != "LoadAnnotations"]
        self._prepare = Compose([{"type": "mmdet.LoadImageFromNDArray"}, *steps[1:]])
        self._batch_size = batch_size

    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        """The detections of RGB images; those of one size follow each other in a batch, so that none is padded."""
        order = sorted(range(len(images)), key=lambda k: images[k].shape)
        found: list[Detections | None] = [None] * len(images)
        for _, same in groupby(order, key=lambda k: images[k].shape):
            numbers = list(same)
            for start in range(0, len(numbers), self._batch_size):
                batch = numbers[start : start + self._batch_size]
                for k, each in zip(batch, self._detect([images[k] for k in batch]), strict=True):
                    found[k] = each
        return [each for each in found if each is not None]

    @torch.inference_mode()
    def _detect(self, images: list[np.ndarray]) -> list[Detections]:
        # mmdet reads BGR, and its preprocessor turns it into what the model wants
        items = [self._prepare({"img": np.ascontiguousarray(image[..., ::-1]), "img_id": 0}) for image in images]
        batch = {key: [item[key] for item in items] for key in ("inputs", "data_samples")}
        return [self._converted(sample.pred_instances) for sample in self.model.test_step(batch)]

    def _converted(self, found: Any) -> Detections:
        columns: dict[str, np.ndarray] = {}
        if self._carries:
            is_sigmoid = found.logits.shape[1] == len(self.spec.classes)  # a softmax has background too
            kinds = uncertainty.SIGMOID if is_sigmoid else uncertainty.SOFTMAX
            columns = {name: kind(found.logits).float().cpu().numpy() for name, kind in kinds.items()}
        if "variance" in found:
            columns["variance"] = found.variance.float().cpu().numpy()
        return Detections(
            label=found.labels.cpu().numpy().astype(np.int16),
            box=found.bboxes.float().cpu().numpy(),
            score=found.scores.float().cpu().numpy(),
            **columns,
        )
