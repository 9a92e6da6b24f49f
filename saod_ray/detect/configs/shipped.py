"""The configs that mmdet ships. mmdet itself, whose import takes seconds, is not imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mmengine.config import Config

from saod_ray.errors import SaodError


def load_shipped_config(name: str) -> Config:
    """A config by its path below mmdet's folder of configs. SaodError if mmdet is not installed."""
    package = find_spec("mmdet")
    if package is None or package.origin is None:
        raise SaodError("mmdet is not installed: pip install 'saod-ray[mmdet]'.")
    return Config.fromfile(Path(package.origin).parent / ".mim" / "configs" / name)
