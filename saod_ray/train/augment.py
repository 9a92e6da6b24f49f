"""Augmentations that mmdet lacks: batches of images of similar size, resized by one random factor per batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from mmengine.dataset import DefaultSampler
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import BatchSampler

from saod_ray.detect import mmdetection  # noqa: F401  (makes mmdet importable)

from mmdet.registry import DATA_SAMPLERS, MODELS  # isort: skip

STEP = 32  # pixels; heights within a step count as equal


@DATA_SAMPLERS.register_module()
class SimilarSizes(BatchSampler):
    """Batches of images of similar height and width, which need little padding, in random order."""

    def __init__(self, sampler: DefaultSampler, batch_size: int, drop_last: bool = False) -> None:
        super().__init__(sampler, batch_size, drop_last)
        infos = [sampler.dataset.get_data_info(k) for k in range(len(sampler.dataset))]
        self._sizes = np.array([(info["height"] or 0, info["width"] or 0) for info in infos]).reshape(-1, 2)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of an epoch, which depend on the sampler's seed, epoch and rank alone."""
        sampler: Any = self.sampler
        rng = np.random.default_rng((sampler.seed, sampler.epoch, sampler.rank))
        indices = np.fromiter(sampler, np.int64)
        height, width = self._sizes[indices].T
        jittered = np.round(height / STEP + rng.uniform(-0.5, 0.5, len(indices)))
        by_size = indices[np.lexsort((width, jittered))]
        batches = [by_size[k : k + self.batch_size] for k in range(0, len(by_size), self.batch_size)]
        for k in rng.permutation(len(batches)):
            yield batches[k].tolist()


@MODELS.register_module()
class RandomFactor(torch.nn.Module):
    """Resizes a batch, images and boxes, by one random factor between `low` and `high`."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, inputs: Tensor, samples: list[Any]) -> tuple[Tensor, list[Any]]:
        """The resized batch; samples are changed in place, as mmdet's own augmentations do."""
        before = inputs.shape[-2:]
        factor = torch.empty(()).uniform_(self.low, self.high).item()
        size = tuple(max(1, round(side * factor)) for side in before)
        inputs = interpolate(inputs, size, mode="bilinear", antialias=True)
        down, right = (after / side for after, side in zip(size, before, strict=True))
        for sample in samples:
            for name in ("gt_instances", "ignored_instances"):
                if name in sample:
                    boxes = sample.get(name).bboxes
                    sample.get(name).bboxes = boxes * boxes.new_tensor([right, down, right, down])
            height, width = sample.img_shape[:2]
            shape = (min(size[0], round(height * down)), min(size[1], round(width * right)))
            sample.set_metainfo({"img_shape": shape, "batch_input_shape": size, "pad_shape": size})
        return inputs, samples
