"""mmdet on this machine: its registry with our heads in it, its own configs, and less talk."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saod_ray.detect import heads, narrow  # noqa: F401  (registers them, and makes mmdet importable)

import mmdet  # isort: skip
from mmdet.utils import register_all_modules  # isort: skip
from mmengine.config import Config  # isort: skip

register_all_modules(init_default_scope=True)
for about in (".*num_anchors.*", ".*torch.meshgrid.*", ".*requires_grad=True to a scalar.*"):
    warnings.filterwarnings("ignore", about)  # mmdet's own past, of which a user can mend nothing


def shipped(name: str) -> Config:
    """A config that mmdet ships, by its path below its folder of configs."""
    return Config.fromfile(Path(mmdet.__file__).parent / ".mim" / "configs" / name)


@contextmanager
def quiet() -> Iterator[None]:
    """Without mmengine's thousands of lines about initial weights."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
