"""The built-in mmdet configs by name: each has the model, image preparation and training recipe of a detector."""

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


def build_config(name: str, classes: int) -> Config:
    """A built-in config for so many classes. SaodError for an unknown name.

    Images are padded only to the size of their batch. Nothing is downloaded: weights come from a checkpoint, and a
    training starts from random weights or from a given checkpoint.
    """
    if name not in CONFIGS:
        raise SaodError(f"There is no config '{name}'{did_you_mean(name, NAMES)}: use one of {', '.join(NAMES)}.")
    config = CONFIGS[name](classes)
    config.model.data_preprocessor.pad_size_divisor = 1
    config.model.backbone.init_cfg = None
    return config
