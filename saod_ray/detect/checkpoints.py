"""Weights from files: no pickled code is ever run, every key must fit, and Deformable DETR's old names are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saod_ray.errors import SaodError, join_truncated

# how mmdet 2 named what mmdet 3 has in Deformable DETR, to be applied in this order
RENAMED = (
    (r"^bbox_head\.transformer\.", ""),
    (r"^level_embeds$", "level_embed"),
    (r"^reference_points\.", "reference_points_fc."),
    (r"^bbox_head\.query_embedding\.", "query_embedding."),
    (r"\.attentions\.0\.", ".self_attn."),
    (r"\.attentions\.1\.", ".cross_attn."),
    (r"\.ffns\.0\.", ".ffn."),
)


def load(model: nn.Module, path: Path) -> None:
    """Fill a model from a checkpoint; refused, with the keys, unless they are exactly its own."""
    found = read(path)
    own = model.state_dict()
    if "bbox_head.transformer.level_embeds" in found:
        found = {_renamed(key): value for key, value in found.items()}
    _refuse_other(own, found, path)
    model.load_state_dict(found, strict=True)


def read(path: Path) -> dict[str, Tensor]:
    """The state dict in a .safetensors file, or in a PyTorch file that needs no code to be read."""
    if not path.is_file():
        raise SaodError(f"There is no checkpoint {path}: put it there, or say where it is with --weights DIR.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        value: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise whatever they like for a bad file
        raise SaodError(_why_not(path, error)) from None
    value = value.get("state_dict", value) if isinstance(value, dict) else value
    if not isinstance(value, dict) or not value or not all(isinstance(each, Tensor) for each in value.values()):
        raise SaodError(f"{path} is not a checkpoint: it should hold a state dict of tensors.")
    return value


def _why_not(path: Path, error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "weights_only" in str(error) or "Unsupported" in str(error) or "GLOBAL" in str(error):
        return (
            f"{path} would run pickled code when it is read, which is refused: save its state dict alone, with "
            '`torch.save({"state_dict": model.state_dict()}, PATH)`, where you trust it.'
        )
    return f"{path} cannot be read ({text}): it was cut off or is no checkpoint; fetch it again."


def _renamed(key: str) -> str:
    for old, new in RENAMED:
        key = re.sub(old, new, key)
    return key


def _refuse_other(own: dict[str, Tensor], found: dict[str, Tensor], path: Path) -> None:
    missing = [key for key in own if key not in found]
    strange = [key for key in found if key not in own]
    shapes = [
        f"{key} {tuple(found[key].shape)} for {tuple(own[key].shape)}"
        for key in own
        if key in found and found[key].shape != own[key].shape
    ]
    complaints = [
        f"{len(keys)} {what} ({join_truncated(keys, 3)})"
        for keys, what in (
            (missing, "keys are missing"),
            (strange, "are not the model's"),
            (shapes, "have other shapes"),
        )
        if keys
    ]
    if complaints:
        raise SaodError(
            f"{path} does not fit the model: {'; '.join(complaints)}: give the checkpoint of this detector."
        )
