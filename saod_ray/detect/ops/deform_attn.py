"""Multi-scale deformable attention."""

from __future__ import annotations

import torch
from torch import Tensor


def ms_deform_attn_forward(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor, im2col_step: int
) -> Tensor:
    """The attention output, (images, queries, channels). `starts` follow from `shapes`; `im2col_step` is not used."""
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch

    # as a list, because reading numbers from a GPU one by one would wait for each
    return multi_scale_deformable_attn_pytorch(value, shapes.tolist(), locations, weights)


def ms_deform_attn_backward(
    value: Tensor,
    shapes: Tensor,
    starts: Tensor,
    locations: Tensor,
    weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_locations: Tensor,
    grad_weights: Tensor,
    im2col_step: int,
) -> None:
    """Add to the gradients of values, sampling locations and attention weights."""
    leaves = [tensor.detach().requires_grad_() for tensor in (value, locations, weights)]
    with torch.enable_grad():
        output = ms_deform_attn_forward(leaves[0], shapes, starts, leaves[1], leaves[2], im2col_step)
    grads = torch.autograd.grad(output, leaves, grad_output)
    for target, grad in zip((grad_value, grad_locations, grad_weights), grads, strict=True):
        target.add_(grad)
