"""Detectors by name: each an mmdet config with the model, the way images are prepared, and the recipe it is trained with."""

from __future__ import annotations

from collections.abc import Callable

from mmengine.config import Config

from saod_ray.detect.configs import paper, small
from saod_ray.errors import SaodError, did_you_mean

CONFIGS: dict[str, Callable[[int], Config]] = {
    **{f"paper/{name}": make for name, make in paper.DETECTORS.items()},
    **{f"small/{name}": make for name, make in small.DETECTORS.items()},
}
NAMES = tuple(CONFIGS)


def named(name: str, classes: int) -> Config:
    """A detector of ours for so many classes.

    Images are padded only to those beside them, and nothing is fetched from the network: weights come from a checkpoint,
    and a training begins with random ones or those it is given.
    """
    if name not in CONFIGS:
        raise SaodError(f"There is no config '{name}'{did_you_mean(name, NAMES)}: use one of {', '.join(NAMES)}.")
    config = CONFIGS[name](classes)
    config.model.data_preprocessor.pad_size_divisor = 1
    config.model.backbone.init_cfg = None
    return config
