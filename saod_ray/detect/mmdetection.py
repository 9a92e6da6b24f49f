"""Sets mmdet up: registers our heads and silences its output."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from saod_ray.detect import heads, narrow_detr  # noqa: F401  (registers them, and makes mmdet importable)

from mmdet.utils import register_all_modules  # isort: skip

register_all_modules(init_default_scope=True)
for message in (".*num_anchors.*", ".*torch.meshgrid.*", ".*requires_grad=True to a scalar.*"):
    warnings.filterwarnings("ignore", message)  # about mmdet's own code, which users cannot change


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress log messages: mmengine writes thousands of lines about initial weights."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
