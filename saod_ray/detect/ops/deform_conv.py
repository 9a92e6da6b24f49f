"""Deformable convolution, plain and modulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# mmcv's names of strides, paddings and dilations along y and x, in modulated and in plain deformable convolution
MODULATED = ("stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w")
PLAIN = ("dH", "dW", "padH", "padW", "dilationH", "dilationW")


class Geometry(NamedTuple):
    """Strides, paddings and dilations as (y, x), and the numbers of groups of channels that share weights and offsets."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    deform_groups: int


def _geometry(arguments: Mapping[str, int], names: Sequence[str]) -> Geometry:
    a, b, c, d, e, f = (arguments[name] for name in names)
    return Geometry((a, b), (c, d), (e, f), arguments["group"], arguments["deformable_group"])


def _positions(offset: Tensor, kernel: Sequence[int], geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Sampling positions y and x, each (rows, columns, kernel rows, kernel columns, deform groups)."""
    size = offset.shape[1:]
    shift = offset.reshape(geometry.deform_groups, *kernel, 2, *size).permute(3, 4, 5, 1, 2, 0)
    regular = (
        torch.arange(size[k], device=offset.device, dtype=offset.dtype)[:, None] * geometry.stride[k]
        - geometry.padding[k]
        + torch.arange(kernel[k], device=offset.device, dtype=offset.dtype) * geometry.dilation[k]
        for k in (0, 1)
    )
    y, x = regular
    return shift[0] + y[:, None, :, None, None], shift[1] + x[None, :, None, :, None]


def _neighbours(at: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The two pixels around each position along one axis, and their weights, which are 0 outside the image."""
    low = at.detach().floor()
    share = at - low
    pixels = torch.stack((low, low + 1), -1)
    weights = torch.stack((1 - share, share), -1) * ((pixels >= 0) & (pixels < length))
    return pixels.clamp(0, length - 1).long(), weights


def _columns(image: Tensor, offset: Tensor, mask: Tensor, kernel: Sequence[int], geometry: Geometry) -> Tensor:
    """The kernel's inputs at each position of the output: (positions, kernel positions, channels)."""
    (channels, rows, columns), groups = image.shape, geometry.deform_groups
    y, x = _positions(offset, kernel, geometry)
    # a sample a pixel or more outside counts as zero, and its offset gets no gradient
    inside = (y > -1) & (y < rows) & (x > -1) & (x < columns)
    pixels_y, weights_y = _neighbours(torch.where(inside, y, 0), rows)
    pixels_x, weights_x = _neighbours(torch.where(inside, x, 0), columns)
    strength = mask.reshape(groups, *kernel, *mask.shape[1:]).permute(3, 4, 1, 2, 0) * inside
    weights = weights_y[..., :, None] * weights_x[..., None, :] * strength[..., None, None]
    group = torch.arange(groups, device=image.device)[:, None, None]
    pixels = ((group * rows + pixels_y[..., :, None]) * columns) + pixels_x[..., None, :]
    table = image.reshape(groups, channels // groups, rows * columns).transpose(1, 2).flatten(0, 1).contiguous()
    bags = functional.embedding_bag(
        pixels.view(-1, 4), table, mode="sum", per_sample_weights=weights.view(-1, 4).to(table.dtype)
    )
    return bags.view(offset.shape[1] * offset.shape[2], kernel[0] * kernel[1], channels)


def _convolve(image: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    """Modulated deformable convolution of one image; an empty `bias` adds nothing."""
    groups, inputs = geometry.groups, weight.shape[1]
    inputs_at = _columns(image, offset, mask, weight.shape[2:], geometry)
    grouped = weight.reshape(groups, len(weight) // groups, inputs, inputs_at.shape[1])
    result = torch.einsum("lkgc,gock->gol", inputs_at.view(*inputs_at.shape[:2], groups, inputs), grouped)
    result = result.reshape(len(weight), *offset.shape[1:])
    return result + bias[:, None, None] if len(bias) else result


def _forward(
    input: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, output: Tensor, geometry: Geometry
) -> None:
    # one image at a time, as the columns need as many times its memory as the kernel has positions
    for image, shift, strength, result in zip(input, offset, mask, output, strict=True):
        result.copy_(_convolve(image, shift, strength, weight, bias, geometry))


def _backward(
    tensors: Sequence[Tensor], grads: Sequence[Tensor | None], grad_output: Tensor, geometry: Geometry
) -> None:
    """Add to `grads` of the `tensors` input, offset, mask, weight and bias; those that are None are skipped."""
    for n, image_grad in enumerate(grad_output):
        leaves = [(tensor[n] if k < 3 else tensor).detach() for k, tensor in enumerate(tensors)]
        variables = [leaf.requires_grad_() for leaf, grad in zip(leaves, grads, strict=True) if grad is not None]
        targets = [grad[n] if k < 3 else grad for k, grad in enumerate(grads) if grad is not None]
        with torch.enable_grad():
            image, offset, mask, weight, bias = leaves
            result = _convolve(image, offset, mask, weight, bias, geometry)
        for target, grad in zip(targets, torch.autograd.grad(result, variables, image_grad), strict=True):
            target.add_(grad)


def modulated_deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    output: Tensor,
    columns: Tensor,
    with_bias: bool,
    **arguments: int,
) -> None:
    """Write the convolution to `output`; `ones` and `columns` are workspace of the compiled operator."""
    _forward(input, offset, mask, weight, bias, output, _geometry(arguments, MODULATED))


def modulated_deform_conv_backward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    columns: Tensor,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_offset: Tensor,
    grad_mask: Tensor,
    grad_output: Tensor,
    with_bias: bool,
    **arguments: int,
) -> None:
    """Add to the five gradients; that of the bias is unchanged without `with_bias`."""
    grads = (grad_input, grad_offset, grad_mask, grad_weight, grad_bias if with_bias else None)
    _backward((input, offset, mask, weight, bias), grads, grad_output, _geometry(arguments, MODULATED))


def _unit(offset: Tensor) -> tuple[Tensor, Tensor]:
    """The mask and bias with which modulated deformable convolution equals the plain one."""
    return offset.new_ones(len(offset), offset.shape[1] // 2, *offset.shape[2:]), offset.new_zeros(0)


def deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    output: Tensor,
    columns: Tensor,
    ones: Tensor,
    **arguments: int,
) -> None:
    """Write the convolution to `output`; `columns` and `ones` are workspace of the compiled operator."""
    mask, bias = _unit(offset)
    _forward(input, offset, mask, weight, bias, output, _geometry(arguments, PLAIN))


def deform_conv_backward_input(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_input: Tensor,
    grad_offset: Tensor,
    weight: Tensor,
    columns: Tensor,
    **arguments: int,
) -> None:
    """Add to the gradients of input and offset."""
    mask, bias = _unit(offset)
    grads = (grad_input, grad_offset, None, None, None)
    _backward((input, offset, mask, weight, bias), grads, grad_output, _geometry(arguments, PLAIN))


def deform_conv_backward_parameters(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_weight: Tensor,
    columns: Tensor,
    ones: Tensor,
    scale: float,
    **arguments: int,
) -> None:
    """Add `scale` times the gradient of the weights, which does not depend on their values."""
    mask, bias = _unit(offset)
    grads = (None, None, None, grad_weight, None)
    tensors = (input, offset, mask, torch.zeros_like(grad_weight), bias)
    _backward(tensors, grads, grad_output * scale, _geometry(arguments, PLAIN))
