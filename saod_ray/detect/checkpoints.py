"""Loads weights from files without running pickled code. Every key must fit the model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saod_ray.errors import SaodError, join_truncated

# keys of Deformable DETR in mmdet 2 → in mmdet 3, applied in this order
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
    """Load a checkpoint into a model. SaodError names the keys unless they and their shapes are exactly the model's."""
    weights = read(path)
    if "bbox_head.transformer.level_embeds" in weights:
        weights = {_rename(key): value for key, value in weights.items()}
    _check_keys(model.state_dict(), weights, path)
    model.load_state_dict(weights, strict=True)


def read(path: Path) -> dict[str, Tensor]:
    """The state dict in a .safetensors file, or in a PyTorch file whose pickle runs no code. SaodError otherwise."""
    if not path.is_file():
        raise SaodError(f"There is no checkpoint {path}: put it there, or say where it is with --weights DIR.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        value: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise many kinds of errors for a bad file
        raise SaodError(_explain(path, error)) from error
    value = value.get("state_dict", value) if isinstance(value, dict) else value
    if not isinstance(value, dict) or not value or not all(isinstance(tensor, Tensor) for tensor in value.values()):
        raise SaodError(f"{path} is not a checkpoint: give a file with a state dict of tensors.")
    return value


def _explain(path: Path, error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "weights_only" in str(error) or "Unsupported" in str(error) or "GLOBAL" in str(error):
        return (
            f"{path} would run pickled code when it is read, which is refused: save its state dict alone, with "
            '`torch.save({"state_dict": model.state_dict()}, PATH)`, where you trust it.'
        )
    return f"{path} cannot be read ({text}): it was cut off or is not a checkpoint; fetch it again."


def _rename(key: str) -> str:
    for old, new in RENAMED:
        key = re.sub(old, new, key)
    return key


def _check_keys(expected: dict[str, Tensor], weights: dict[str, Tensor], path: Path) -> None:
    missing = [key for key in expected if key not in weights]
    unexpected = [key for key in weights if key not in expected]
    shapes = [
        f"{key} {tuple(weights[key].shape)} for {tuple(expected[key].shape)}"
        for key in expected
        if key in weights and weights[key].shape != expected[key].shape
    ]
    complaints = [
        f"{len(keys)} {what} ({join_truncated(keys, 3)})"
        for keys, what in (
            (missing, "keys are missing"),
            (unexpected, "are not the model's"),
            (shapes, "have other shapes"),
        )
        if keys
    ]
    if complaints:
        raise SaodError(
            f"{path} does not fit the model: {'; '.join(complaints)}: give the checkpoint of this detector."
        )
