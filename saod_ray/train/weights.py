"""From a training's last checkpoint to a weights file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from saod_ray.train.worker import LOSSES, STATE


def read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """A checkpoint's weights, and the losses by name of every iteration up to it."""
    state: Any = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    return state["model"], json.loads((folder / LOSSES).read_text())


def encode_half(state: dict[str, Tensor]) -> bytes:
    """A .safetensors file with the weights in half precision, except those that would overflow."""
    return save({name: _to_half(value).contiguous() for name, value in state.items()})


def _to_half(value: Tensor) -> Tensor:
    if not value.is_floating_point():
        return value
    half = value.half()
    return half if torch.isfinite(half).all() else value
