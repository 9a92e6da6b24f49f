"""What is kept of a training's last checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from saod_ray.train.worker import LOSSES, STATE


def trained(folder: Path) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """A checkpoint's weights, and the losses of every iteration up to it."""
    state: Any = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    return state["model"], json.loads((folder / LOSSES).read_text())


def half(state: dict[str, Tensor]) -> bytes:
    """A .safetensors file with every weight in half precision; what does not fit there stays as it is."""
    return save({name: _halved(value).contiguous() for name, value in state.items()})


def _halved(value: Tensor) -> Tensor:
    if not value.is_floating_point():
        return value
    short = value.half()
    return short if torch.isfinite(short).all() else value
