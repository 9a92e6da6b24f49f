"""RoIAlign: averages over the bins of regions of interest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import functional

from saod_ray.detect.ops.remedy import REMEDY

POOLED_AT_ONCE = 1 << 21  # pixels that are weighted at a time: at most 200 MB


class Pooling(TypedDict):
    """The keyword arguments of RoIAlign in mmcv; `pool_mode` 1 is the average, 0 the maximum."""

    aligned_height: int
    aligned_width: int
    spatial_scale: float
    sampling_ratio: int
    pool_mode: int
    aligned: bool


def _samples(start: Tensor, size: Tensor, bins: int, length: int, sampling: int) -> tuple[Tensor, Tensor]:
    """Sample positions of each bin along one axis, and their weights; both are (rois, bins, samples)."""
    step = size / bins
    # as many samples as pixels, unless the number is given; a RoI with NaN has none
    count = torch.full_like(step, sampling) if sampling > 0 else step.ceil().nan_to_num(0, 0, 0).clamp(min=0)
    sample = torch.arange(max(int(count.max()), 1), device=size.device, dtype=size.dtype)
    share = count.clamp(min=1)[:, None, None]
    bin_ = torch.arange(bins, device=size.device, dtype=size.dtype)[:, None]
    at = start[:, None, None] + step[:, None, None] * (bin_ + (sample + 0.5) / share)
    counted = (sample < count[:, None, None]) & (at >= -1) & (at <= length)
    return torch.where(counted, at, 0).clamp(0, length - 1), counted / share


class Axis(NamedTuple):
    """Along one axis: the first pixel of each bin, the number of its pixels, and their weights."""

    first: Tensor
    counts: Tensor
    weights: Tensor


def _axis(start: Tensor, size: Tensor, bins: int, length: int, sampling: int) -> Axis:
    at, weight = _samples(start, size, bins, length, sampling)
    low = at.floor()
    share = at - low
    pixels = torch.cat((low, (low + 1).clamp(max=length - 1)), 2).long()
    weights = torch.cat((weight * (1 - share), weight * share), 2)
    first = torch.where(weights > 0, pixels, length - 1).amin(2)
    slot = torch.where(weights > 0, pixels - first[:, :, None], 0)
    count = slot.amax(2) + 1  # a bin without samples has one pixel with weight 0
    # neighbouring samples share pixels: sum the weights per pixel
    merged = weights.new_zeros(*count.shape, int(count.max()))
    return Axis(first.flatten(), count, merged.scatter_add_(2, slot, weights).flatten(0, 1))


class Bins(NamedTuple):
    """The bins of a slice of RoIs: rows in the (image, y, x) table of pixels, their weights, and the start of each bin."""

    rois: slice
    pixels: Tensor
    weights: Tensor
    begin: Tensor


def _bins(rois: Tensor, shape: Sequence[int], pooling: Pooling) -> Iterator[Bins]:
    """All bins, a bounded number at a time. The weights of a bin are the outer product of those along y and x."""
    if pooling["pool_mode"] != 1:
        raise NotImplementedError(f"roi_align in PyTorch computes averages only, not maxima: {REMEDY}")
    if not len(rois):
        return
    rows, columns = shape[2:]
    corners = rois[:, 1:] * pooling["spatial_scale"] - (0.5 if pooling["aligned"] else 0.0)
    sides = corners[:, 2:] - corners[:, :2]
    if not pooling["aligned"]:
        sides = sides.clamp(min=1)
    height, width, ratio = pooling["aligned_height"], pooling["aligned_width"], pooling["sampling_ratio"]
    y = _axis(corners[:, 1], sides[:, 1], height, rows, ratio)
    x = _axis(corners[:, 0], sides[:, 0], width, columns, ratio)
    image = rois[:, 0].long()
    at_once = max(POOLED_AT_ONCE // int((y.counts.sum(1) * x.counts.sum(1)).max()), 1)
    for start in range(0, len(rois), at_once):
        selection = slice(start, start + at_once)
        size = (y.counts[selection, :, None] * x.counts[selection, None, :]).flatten()
        begin = functional.pad(size.cumsum(0), (1, 0))
        bin_ = torch.arange(len(size), device=size.device).repeat_interleave(size)
        roi = start + bin_ // (height * width)
        bin_y, bin_x = start * height + bin_ // width, roi * width + bin_ % width
        within = torch.arange(len(bin_), device=size.device) - begin[bin_]
        wide = x.counts.flatten()[bin_x]
        i, j = within // wide, within % wide
        pixels = (image[roi] * rows + y.first[bin_y] + i) * columns + x.first[bin_x] + j
        yield Bins(selection, pixels, y.weights[bin_y, i] * x.weights[bin_x, j], begin)


def _sums(table: Tensor, rows: Tensor, weights: Tensor, begin: Tensor) -> Tensor:
    """The weighted sum of each bin's rows of a table."""
    return functional.embedding_bag(
        rows, table, begin, mode="sum", per_sample_weights=weights.to(table.dtype), include_last_offset=True
    )


def roi_align_forward(
    input: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor, argmax_x: Tensor, **pooling: Unpack[Pooling]
) -> None:
    """Write the average over each bin of each RoI (image, x1, y1, x2, y2) to `output`; `argmax_*` are for maxima only."""
    table = input.permute(0, 2, 3, 1).reshape(-1, input.shape[1]).contiguous()
    for bins in _bins(rois, input.shape, pooling):
        sums = _sums(table, bins.pixels, bins.weights, bins.begin)
        target = output[bins.rois]
        target.copy_(sums.view(len(target), *output.shape[2:], -1).permute(0, 3, 1, 2))


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    **pooling: Unpack[Pooling],
) -> None:
    """Add the gradients of bins to the pixels they used: the forward sum with pixels and bins exchanged."""
    images, channels, rows, columns = grad_input.shape
    for bins in _bins(rois, grad_input.shape, pooling):
        bin_grads = grad_output[bins.rois].permute(0, 2, 3, 1).reshape(-1, channels).contiguous()
        bin_of = torch.arange(len(bin_grads), device=bin_grads.device).repeat_interleave(bins.begin.diff())
        order = bins.pixels.argsort()
        begin = functional.pad(torch.bincount(bins.pixels, minlength=images * rows * columns).cumsum(0), (1, 0))
        table = _sums(bin_grads, bin_of[order], bins.weights[order], begin)
        grad_input.add_(table.view(images, rows, columns, channels).permute(0, 3, 1, 2))
