"""PyTorch stand-ins for mmcv's compiled operators, so that mmdet runs where mmcv was installed without a compiler.

`install()` must run before `mmcv.ops` is imported, in every process. A compiled `mmcv._ext` is found first and wins.
The functions are named and called as mmcv's Python wrappers call the compiled ones: they write into tensors that the
wrapper made, and a backward adds to gradients that come zeroed. They are what the paper's detectors need to be trained
and run on any device; mmcv asks for the last two, multi-scale deformable attention and the focal loss, on a GPU only.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Literal, NamedTuple, NoReturn, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import functional

NAME = "mmcv._ext"
REMEDY = "install mmcv with compiled operators (the package mmcv, built for this PyTorch, instead of mmcv-lite)"
POOLED_AT_ONCE = 1 << 21  # pixels that RoIAlign weighs at a time: at most 200 MB


# --- non-maximum suppression ------------------------------------------------------------------------------------------


def _iou(a: Tensor, b: Tensor, offset: int) -> Tensor:
    # coordinates side by side, as broadcasting over a stride is several times slower
    columns, rows = a.T.contiguous()[:, :, None], b.T.contiguous()[:, None, :]
    wide, tall = (
        torch.minimum(columns[k + 2], rows[k + 2]).sub_(torch.maximum(columns[k], rows[k])).add_(offset).clamp_(min=0)
        for k in (0, 1)
    )
    shared = wide.mul_(tall)
    area_a, area_b = ((boxes[:, 2:] - boxes[:, :2] + offset).prod(1) for boxes in (a, b))
    return shared.div_((area_a[:, None] + area_b[None, :]).sub_(shared))


def _greedy(clash: Tensor) -> Tensor:
    """Which boxes greedy suppression keeps, where `clash[i, j]` says that box i, if kept, suppresses the later box j.

    "Kept unless a kept box clashes" is repeated from "all kept". The first k boxes are final after k rounds, so that
    the fixed point is the greedy result; a handful of rounds reaches it in practice.
    """
    counts = clash.float()
    kept = torch.ones(len(clash), device=clash.device)
    while True:
        now = (kept @ counts == 0).float()
        if torch.equal(now, kept):
            return kept.bool()
        kept = now


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int, block: int = 256) -> Tensor:
    """Indices of the boxes that greedy suppression keeps, by descending score; equal scores keep their order.

    Boxes are taken in blocks by score: what a block keeps suppresses all later boxes at once.

    >>> boxes = torch.tensor([[0.0, 0, 9, 10], [0, 0, 10, 10], [20, 0, 30, 10]])
    >>> nms(boxes, torch.tensor([0.5, 0.9, 0.7]), iou_threshold=0.5, offset=0).tolist()
    [1, 2]
    """
    order = scores.argsort(descending=True, stable=True)
    ranked = boxes[order]
    alive = torch.ones(len(order), dtype=torch.bool, device=boxes.device)
    for start in range(0, len(order), block):
        here = start + alive[start : start + block].nonzero().squeeze(1)
        mine = ranked[here]
        kept = _greedy((_iou(mine, mine, offset) > iou_threshold).triu_(1))
        alive[here] = kept
        later = start + block + alive[start + block :].nonzero().squeeze(1)
        hit = (_iou(mine[kept], ranked[later], offset) > iou_threshold).any(0)
        alive[later[hit]] = False
    return order[alive]


# --- RoIAlign ---------------------------------------------------------------------------------------------------------


class Pooling(TypedDict):
    """What mmcv tells RoIAlign by keyword; `pool_mode` 1 is the average, 0 the maximum."""

    aligned_height: int
    aligned_width: int
    spatial_scale: float
    sampling_ratio: int
    pool_mode: int
    aligned: bool


def _samples(start: Tensor, size: Tensor, bins: int, length: int, sampling: int) -> tuple[Tensor, Tensor]:
    """Where each bin is sampled along one axis and the weight of each sample, both (rois, bins, samples)."""
    step = size / bins
    # as many samples as pixels, unless their number is given; a RoI that is not a number has none
    count = torch.full_like(step, sampling) if sampling > 0 else step.ceil().nan_to_num(0, 0, 0).clamp(min=0)
    sample = torch.arange(max(int(count.max()), 1), device=size.device, dtype=size.dtype)
    share = count.clamp(min=1)[:, None, None]
    bin_ = torch.arange(bins, device=size.device, dtype=size.dtype)[:, None]
    at = start[:, None, None] + step[:, None, None] * (bin_ + (sample + 0.5) / share)
    counted = (sample < count[:, None, None]) & (at >= -1) & (at <= length)
    return torch.where(counted, at, 0).clamp(0, length - 1), counted / share


class Axis(NamedTuple):
    """Along one axis, the first pixel of each bin, how many it takes from there, and the weights of those."""

    first: Tensor
    many: Tensor
    weights: Tensor


def _axis(start: Tensor, size: Tensor, bins: int, length: int, sampling: int) -> Axis:
    at, weight = _samples(start, size, bins, length, sampling)
    low = at.floor()
    share = at - low
    pixels = torch.cat((low, (low + 1).clamp(max=length - 1)), 2).long()
    weights = torch.cat((weight * (1 - share), weight * share), 2)
    first = torch.where(weights > 0, pixels, length - 1).amin(2)
    slot = torch.where(weights > 0, pixels - first[:, :, None], 0)
    many = slot.amax(2) + 1  # a bin without samples takes one pixel with weight 0
    # neighbouring samples share pixels: add up the weights of each
    merged = weights.new_zeros(*many.shape, int(many.max()))
    return Axis(first.flatten(), many, merged.scatter_add_(2, slot, weights).flatten(0, 1))


class Bins(NamedTuple):
    """The bins of some RoIs: rows of the (image, y, x) table of pixels, their weights, and where each bin begins."""

    rois: slice
    pixels: Tensor
    weights: Tensor
    begin: Tensor


def _bins(rois: Tensor, shape: Sequence[int], pooling: Pooling) -> Iterator[Bins]:
    """All bins, a bounded number at a time. A bin's weights are the outer product of those along y and along x."""
    if pooling["pool_mode"] != 1:
        raise NotImplementedError(f"roi_align of mmcv takes averages only, not maxima, in PyTorch: {REMEDY}")
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
    at_once = max(POOLED_AT_ONCE // int((y.many.sum(1) * x.many.sum(1)).max()), 1)
    for start in range(0, len(rois), at_once):
        some = slice(start, start + at_once)
        size = (y.many[some, :, None] * x.many[some, None, :]).flatten()
        begin = functional.pad(size.cumsum(0), (1, 0))
        bin_ = torch.arange(len(size), device=size.device).repeat_interleave(size)
        roi = start + bin_ // (height * width)
        bin_y, bin_x = start * height + bin_ // width, roi * width + bin_ % width
        within = torch.arange(len(bin_), device=size.device) - begin[bin_]
        wide = x.many.flatten()[bin_x]
        i, j = within // wide, within % wide
        pixels = (image[roi] * rows + y.first[bin_y] + i) * columns + x.first[bin_x] + j
        yield Bins(some, pixels, y.weights[bin_y, i] * x.weights[bin_x, j], begin)


def _sums(table: Tensor, rows: Tensor, weights: Tensor, begin: Tensor) -> Tensor:
    """The weighted sum of each bag of rows."""
    return functional.embedding_bag(
        rows, table, begin, mode="sum", per_sample_weights=weights.to(table.dtype), include_last_offset=True
    )


def roi_align_forward(
    input: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor, argmax_x: Tensor, **pooling: Unpack[Pooling]
) -> None:
    """Write the average over each bin of each RoI (image, x1, y1, x2, y2) to `output`; `argmax_*` serve maxima only."""
    table = input.permute(0, 2, 3, 1).reshape(-1, input.shape[1]).contiguous()
    for bins in _bins(rois, input.shape, pooling):
        sums = _sums(table, bins.pixels, bins.weights, bins.begin)
        some = output[bins.rois]
        some.copy_(sums.view(len(some), *output.shape[2:], -1).permute(0, 3, 1, 2))


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    **pooling: Unpack[Pooling],
) -> None:
    """Add to each pixel what the bins that took it send back: the forward sum with pixels and bins exchanged."""
    images, channels, rows, columns = grad_input.shape
    for bins in _bins(rois, grad_input.shape, pooling):
        sent = grad_output[bins.rois].permute(0, 2, 3, 1).reshape(-1, channels).contiguous()
        taker = torch.arange(len(sent), device=sent.device).repeat_interleave(bins.begin.diff())
        order = bins.pixels.argsort()
        begin = functional.pad(torch.bincount(bins.pixels, minlength=images * rows * columns).cumsum(0), (1, 0))
        table = _sums(sent, taker[order], bins.weights[order], begin)
        grad_input.add_(table.view(images, rows, columns, channels).permute(0, 3, 1, 2))


# --- deformable convolution -------------------------------------------------------------------------------------------


# how mmcv calls strides, paddings and dilations, each along y and x, in modulated and in plain deformable convolution
MODULATED = ("stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w")
PLAIN = ("dH", "dW", "padH", "padW", "dilationH", "dilationW")


class Geometry(NamedTuple):
    """Strides, paddings and dilations as (y, x); groups of channels that share weights, and that share offsets."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    deform_groups: int


def _geometry(told: Mapping[str, int], names: Sequence[str]) -> Geometry:
    a, b, c, d, e, f = (told[name] for name in names)
    return Geometry((a, b), (c, d), (e, f), told["group"], told["deformable_group"])


def _positions(offset: Tensor, kernel: Sequence[int], geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Where an image is sampled: y and x, each (rows, columns, kernel rows, kernel columns, deform groups)."""
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
    """The two pixels about each position along one axis and their weights, which are 0 outside the image."""
    low = at.detach().floor()
    share = at - low
    pixels = torch.stack((low, low + 1), -1)
    weights = torch.stack((1 - share, share), -1) * ((pixels >= 0) & (pixels < length))
    return pixels.clamp(0, length - 1).long(), weights


def _columns(image: Tensor, offset: Tensor, mask: Tensor, kernel: Sequence[int], geometry: Geometry) -> Tensor:
    """What the kernel sees at each position of the output: (positions, kernel positions, channels)."""
    (channels, rows, columns), groups = image.shape, geometry.deform_groups
    y, x = _positions(offset, kernel, geometry)
    # a sample a whole pixel or more outside counts nothing, and no gradient reaches its offset
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
    seen = _columns(image, offset, mask, weight.shape[2:], geometry)
    grouped = weight.reshape(groups, len(weight) // groups, inputs, seen.shape[1])
    result = torch.einsum("lkgc,gock->gol", seen.view(*seen.shape[:2], groups, inputs), grouped)
    result = result.reshape(len(weight), *offset.shape[1:])
    return result + bias[:, None, None] if len(bias) else result


def _forward(
    input: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, output: Tensor, geometry: Geometry
) -> None:
    # one image at a time, as its columns take kernel size times the memory of the image
    for image, shift, strength, result in zip(input, offset, mask, output, strict=True):
        result.copy_(_convolve(image, shift, strength, weight, bias, geometry))


def _backward(
    tensors: Sequence[Tensor], grads: Sequence[Tensor | None], grad_output: Tensor, geometry: Geometry
) -> None:
    """Add to `grads`, which go with the `tensors` input, offset, mask, weight and bias; None is not asked for."""
    for n, sent in enumerate(grad_output):
        leaves = [(tensor[n] if k < 3 else tensor).detach() for k, tensor in enumerate(tensors)]
        wanted = [leaf.requires_grad_() for leaf, grad in zip(leaves, grads, strict=True) if grad is not None]
        targets = [grad[n] if k < 3 else grad for k, grad in enumerate(grads) if grad is not None]
        with torch.enable_grad():
            image, offset, mask, weight, bias = leaves
            result = _convolve(image, offset, mask, weight, bias, geometry)
        for target, grad in zip(targets, torch.autograd.grad(result, wanted, sent), strict=True):
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
    **told: int,
) -> None:
    """Write the convolution to `output`; `ones` and `columns` are work space of the compiled operator."""
    _forward(input, offset, mask, weight, bias, output, _geometry(told, MODULATED))


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
    **told: int,
) -> None:
    """Add to the five gradients; that of the bias stays as it is without one."""
    grads = (grad_input, grad_offset, grad_mask, grad_weight, grad_bias if with_bias else None)
    _backward((input, offset, mask, weight, bias), grads, grad_output, _geometry(told, MODULATED))


def _unit(offset: Tensor) -> tuple[Tensor, Tensor]:
    """The mask and the bias with which modulated deformable convolution is the unmodulated one."""
    return offset.new_ones(len(offset), offset.shape[1] // 2, *offset.shape[2:]), offset.new_zeros(0)


def deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    output: Tensor,
    columns: Tensor,
    ones: Tensor,
    **told: int,
) -> None:
    """Write the convolution to `output`; `columns` and `ones` are work space of the compiled operator."""
    mask, bias = _unit(offset)
    _forward(input, offset, mask, weight, bias, output, _geometry(told, PLAIN))


def deform_conv_backward_input(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_input: Tensor,
    grad_offset: Tensor,
    weight: Tensor,
    columns: Tensor,
    **told: int,
) -> None:
    """Add to the gradients of input and offset."""
    mask, bias = _unit(offset)
    grads = (grad_input, grad_offset, None, None, None)
    _backward((input, offset, mask, weight, bias), grads, grad_output, _geometry(told, PLAIN))


def deform_conv_backward_parameters(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_weight: Tensor,
    columns: Tensor,
    ones: Tensor,
    scale: float,
    **told: int,
) -> None:
    """Add `scale` times the gradient of the weights, on whose values it does not depend."""
    mask, bias = _unit(offset)
    grads = (None, None, None, grad_weight, None)
    tensors = (input, offset, mask, torch.zeros_like(grad_weight), bias)
    _backward(tensors, grads, grad_output * scale, _geometry(told, PLAIN))


# --- multi-scale deformable attention -----------------------------------------------------------------------------------


def ms_deform_attn_forward(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor, im2col_step: int
) -> Tensor:
    """What each query sees: (images, queries, channels). `starts` follow from `shapes`, and nothing goes in steps."""
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch

    # as numbers: taken from a GPU one by one, each would be waited for
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
        seen = ms_deform_attn_forward(leaves[0], shapes, starts, leaves[1], leaves[2], im2col_step)
    grads = torch.autograd.grad(seen, leaves, grad_output)
    for target, grad in zip((grad_value, grad_locations, grad_weights), grads, strict=True):
        target.add_(grad)


# --- focal loss -------------------------------------------------------------------------------------------------------


def _focal(logits: Tensor, target: Tensor, weight: Tensor, gamma: float, alpha: float) -> Tensor:
    """The loss of every row and class; it is finite for any logit, and so is its gradient for any gamma."""
    is_class = target[:, None] == torch.arange(logits.shape[1], device=logits.device)
    right = torch.where(is_class, logits, -logits)
    loss = -functional.logsigmoid(right) * (gamma * functional.logsigmoid(-right)).exp()
    loss = torch.where(is_class, alpha * loss, (1 - alpha) * loss)
    return loss * weight[target][:, None] if len(weight) else loss


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Write the loss of each logit to `output`; a row weighs what its class does, unless `weight` is empty."""
    output.copy_(_focal(input, target, weight, gamma, alpha))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Add the derivative of each logit's loss."""
    logits = input.detach().requires_grad_()
    with torch.enable_grad():
        loss = _focal(logits, target, weight, gamma, alpha).sum()
    grad_input.add_(torch.autograd.grad(loss, logits)[0])


# --- the module -------------------------------------------------------------------------------------------------------

OPERATORS: dict[str, Callable[..., Any]] = {
    operator.__name__: operator
    for operator in (
        nms,
        roi_align_forward,
        roi_align_backward,
        modulated_deform_conv_forward,
        modulated_deform_conv_backward,
        deform_conv_forward,
        deform_conv_backward_input,
        deform_conv_backward_parameters,
        ms_deform_attn_forward,
        ms_deform_attn_backward,
        sigmoid_focal_loss_forward,
        sigmoid_focal_loss_backward,
    )
} | {
    # mmcv asks for these when it describes the environment
    "get_compiler_version": lambda: "not available",
    "get_compiling_cuda_version": lambda: "not available",
}


class _Operators(ModuleType):
    """The operators above. mmcv asks for the names of all others at import: those raise when they are called."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*args: object, **kwargs: object) -> NoReturn:
            raise NotImplementedError(f"mmcv's operator {name} does not exist in PyTorch here: {REMEDY}")

        return missing


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == NAME else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Operators(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(OPERATORS)


def install() -> None:
    """Let `import mmcv.ops` find these operators, unless there are compiled ones. A second call does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())  # at the end: any other `mmcv._ext` is found before


def which() -> Literal["compiled", "PyTorch"]:
    """Which operators mmcv has in this process, after `install()`. Compiled ones that do not load raise ImportError."""
    install()
    return "PyTorch" if isinstance(importlib.import_module(NAME), _Operators) else "compiled"
