"""The operators through mmcv's own wrappers, against loops that read like their definitions."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saod_ray.detect import ops

ops.install()

from mmcv.ops import (  # noqa: E402
    DeformConv2d,
    DeformConv2dPack,
    ModulatedDeformConv2dPack,
    batched_nms,
    deform_conv2d,
    get_compiler_version,
    modulated_deform_conv2d,
    nms,
    roi_align,
    sigmoid_focal_loss,
    soft_nms,
)
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction  # noqa: E402

few = settings(max_examples=25)
seeds = st.integers(0, 2**32 - 1)
AVERAGE = {"spatial_scale": 0.5, "sampling_ratio": 0, "pool_mode": 1, "aligned": True}


def normal(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=source, dtype=torch.float64).requires_grad_() for shape in shapes]


def close(got: Tensor, expected: Tensor, within: float = 1e-10) -> None:
    torch.testing.assert_close(got, expected.to(got.dtype), rtol=within, atol=within)


def same_gradients(got: Tensor, expected: Tensor, *leaves: Tensor) -> None:
    (sent,) = normal(5, got.shape)
    # a reference that samples nothing does not depend on its leaves
    expected = torch.autograd.grad(expected, leaves, sent, allow_unused=True, materialize_grads=True)
    for one, other in zip(torch.autograd.grad(got, leaves, sent), expected, strict=True):
        close(one, other)


# --- references -------------------------------------------------------------------------------------------------------


def overlap(a: list[float], b: list[float], offset: int) -> float:
    wide = max(min(a[2], b[2]) - max(a[0], b[0]) + offset, 0)
    tall = max(min(a[3], b[3]) - max(a[1], b[1]) + offset, 0)
    areas = ((box[2] - box[0] + offset) * (box[3] - box[1] + offset) for box in (a, b))
    union = sum(areas) - wide * tall
    return wide * tall / union if union else 0.0


def greedy(boxes: Tensor, scores: Tensor, threshold: float, offset: int) -> list[int]:
    rows, kept = boxes.tolist(), []
    for one in sorted(range(len(rows)), key=lambda k: -scores[k].item()):
        if all(overlap(rows[one], rows[other], offset) <= threshold for other in kept):
            kept.append(one)
    return kept


def bilinear(image: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """The value between four pixels; those outside the image are 0."""
    top, left = (math.floor(at.detach()) for at in (y, x))
    value = image.new_zeros(len(image))
    for row, column in product((top, top + 1), (left, left + 1)):
        if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
            share_y = y - top if row > top else 1 - (y - top)
            share_x = x - left if column > left else 1 - (x - left)
            value = value + share_y * share_x * image[:, row, column]
    return value


def pooled(image: Tensor, roi: list[float], bins: tuple[int, int], scale: float, ratio: int, aligned: bool) -> Tensor:
    x1, y1, x2, y2 = (value * scale - 0.5 * aligned for value in roi)
    tall, wide = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
    rows, columns = image.shape[1:]
    many_y, many_x = (ratio or math.ceil(side / many) for side, many in zip((tall, wide), bins, strict=True))
    cells = []
    for i, j in product(range(bins[0]), range(bins[1])):
        cell = 0 * image[:, 0, 0]
        for k, m in product(range(many_y), range(many_x)):
            y = y1 + tall / bins[0] * (i + (k + 0.5) / many_y)
            x = x1 + wide / bins[1] * (j + (m + 0.5) / many_x)
            if -1 <= y <= rows and -1 <= x <= columns:  # up to one pixel outside, the border continues
                at = torch.tensor([min(max(y, 0), rows - 1), min(max(x, 0), columns - 1)], dtype=torch.float64)
                cell = cell + bilinear(image, *at) / (many_y * many_x)
        cells.append(cell)
    return torch.stack(cells, 1).view(len(image), *bins)


def convolved(image, offset, mask, weight, bias, stride, padding, dilation, groups, deform_groups) -> Tensor:
    (channels, rows, columns), (outputs, inputs, kernel_h, kernel_w) = image.shape, weight.shape
    per = channels // deform_groups
    shifts = offset.view(deform_groups, kernel_h, kernel_w, 2, *offset.shape[1:])
    masks = mask.view(deform_groups, kernel_h, kernel_w, *mask.shape[1:])
    result = []
    for i, j in product(range(offset.shape[1]), range(offset.shape[2])):
        seen = image.new_zeros(channels, kernel_h, kernel_w)
        for g, a, b in product(range(deform_groups), range(kernel_h), range(kernel_w)):
            y = i * stride[0] - padding[0] + a * dilation[0] + shifts[g, a, b, 0, i, j]
            x = j * stride[1] - padding[1] + b * dilation[1] + shifts[g, a, b, 1, i, j]
            if -1 < y < rows and -1 < x < columns:
                one = bilinear(image[g * per : (g + 1) * per], y, x) * masks[g, a, b, i, j]
                seen[g * per : (g + 1) * per, a, b] = one
        share = outputs // groups
        cells = [(weight[o] * seen[o // share * inputs :][:inputs]).sum() for o in range(outputs)]
        result.append(torch.stack(cells) + bias)
    return torch.stack(result, 1).view(outputs, *offset.shape[1:])


def attended(value, shapes, locations, weights) -> Tensor:
    (images, _, heads, channels), queries = value.shape, locations.shape[1]
    ends = torch.tensor([rows * columns for rows, columns in shapes]).cumsum(0).tolist()
    seen = []
    for n, q, h in product(range(images), range(queries), range(heads)):
        total = value.new_zeros(channels)
        for level, (rows, columns) in enumerate(shapes):
            pixels = value[n, ends[level] - rows * columns : ends[level], h].T.view(channels, rows, columns)
            for (x, y), weight in zip(locations[n, q, h, level], weights[n, q, h, level], strict=True):
                total = total + weight * bilinear(pixels, y * rows - 0.5, x * columns - 0.5)
        seen.append(total)
    return torch.stack(seen).view(images, queries, heads * channels)


def focal(logits: Tensor, target: Tensor, weight: Tensor | None, gamma: float, alpha: float) -> Tensor:
    losses = []
    for n, k in product(range(logits.shape[0]), range(logits.shape[1])):
        p = torch.sigmoid(logits[n, k])
        if target[n] == k:
            loss = -alpha * (1 - p) ** gamma * torch.log(p)
        else:
            loss = -(1 - alpha) * p**gamma * torch.log(1 - p)
        losses.append(loss if weight is None else loss * weight[target[n]])
    return torch.stack(losses).view(logits.shape)


# --- non-maximum suppression ------------------------------------------------------------------------------------------


@given(seeds, st.integers(0, 40), st.sampled_from([0.0, 0.3, 0.5, 0.7]), st.sampled_from([0, 1]), st.integers(1, 50))
def test_nms_is_greedy_with_ties_in_order(seed, many, threshold, offset, block) -> None:
    source = torch.Generator().manual_seed(seed)
    # whole numbers: equal scores, empty boxes and overlaps that equal the threshold all occur
    corner, side = torch.randint(0, 6, (2, many, 2), generator=source).double()
    boxes, scores = torch.cat((corner, corner + side), 1), torch.randint(0, 6, (many,), generator=source) / 5
    expected = greedy(boxes, scores, threshold, offset)
    assert ops.nms(boxes, scores, threshold, offset, block).tolist() == expected
    assert nms(boxes, scores.double(), threshold, offset)[1].tolist() == expected


def test_nms_over_several_blocks_in_single_precision() -> None:
    corner, side = torch.rand(2, 1500, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([[[90.0]], [[40]]])
    boxes, scores = torch.cat((corner, corner + side), 1), torch.linspace(0, 1, 1500)
    kept = nms(boxes, scores, 0.5)[1].tolist()
    assert kept == greedy(boxes, scores, 0.5, 0)
    assert len(kept) > 100


def test_nms_of_nothing_and_of_two_classes() -> None:
    empty, none = nms(torch.zeros(0, 4), torch.zeros(0), 0.5)
    assert (empty.shape, none.shape, none.dtype) == ((0, 5), (0,), torch.int64)
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 9]])
    kept = batched_nms(
        boxes, torch.tensor([0.3, 0.9, 0.5]), torch.tensor([0, 1, 1]), {"type": "nms", "iou_threshold": 0.5}
    )
    assert kept[1].tolist() == [1, 0]


# --- RoIAlign ---------------------------------------------------------------------------------------------------------


@few
@given(
    seeds, st.integers(1, 3), st.integers(1, 3), st.sampled_from([0, 1, 2]), st.booleans(), st.sampled_from([0.25, 1])
)
def test_roi_align(seed, height, width, ratio, aligned, scale) -> None:
    (images,) = normal(seed, (2, 3, 6, 7))
    source = torch.Generator().manual_seed(seed)
    corner = torch.rand(5, 2, generator=source, dtype=torch.float64) * 12 - 4  # some reach or lie outside
    side = torch.rand(5, 2, generator=source, dtype=torch.float64) * 8
    side[0] = 0
    rois = torch.cat((torch.tensor([[0.0], [1], [0], [1], [1]]), torch.cat((corner, corner + side), 1) / scale), 1)
    got = roi_align(images, rois, (height, width), scale, ratio, "avg", aligned)
    expected = [pooled(images[int(n)], roi, (height, width), scale, ratio, aligned) for n, *roi in rois.tolist()]
    close(got, torch.stack(expected))
    same_gradients(got, torch.stack(expected), images)
    close(roi_align(images.float(), rois.float(), (height, width), scale, ratio, "avg", aligned), got, 1e-3)


@pytest.mark.parametrize("aligned", [True, False])
def test_roi_align_without_anything_to_pool_is_zero(aligned) -> None:
    (images,) = normal(0, (1, 2, 4, 4))
    nowhere = torch.tensor([[0, 20.0, 20, 30, 30], [0, -30, 0, -20, 4], [0, math.nan, 0, 4, 4]], dtype=torch.float64)
    for rois in (nowhere, nowhere[:0], nowhere[2:]):
        got = roi_align(images, rois, (2, 2), 1.0, 0, "avg", aligned)
        assert torch.equal(got, torch.zeros(len(rois), 2, 2, 2, dtype=torch.float64))
        assert not torch.autograd.grad(got.sum(), images)[0].any()


def test_roi_align_in_portions_is_the_same(monkeypatch) -> None:
    (images,) = normal(1, (2, 3, 9, 8))
    rois = torch.tensor([[k % 2, k, k / 2, k + 3 * k, 2 * k + 5] for k in range(9)], dtype=torch.float64)
    whole = roi_align(images, rois, 3, 0.5)
    expected = torch.autograd.grad(whole.sum(), images)[0]
    monkeypatch.setattr("saod_ray.detect.ops.roi_align.POOLED_AT_ONCE", 300)
    parts = roi_align(images, rois, 3, 0.5)
    close(parts, whole)
    close(torch.autograd.grad(parts.sum(), images)[0], expected)


def test_roi_align_adds_to_the_gradient_it_is_given() -> None:
    none, sent = torch.zeros(0), torch.ones(1, 2, 2, 2)
    told = AVERAGE | {"aligned_height": 2, "aligned_width": 2}
    fresh, used = torch.zeros(1, 2, 4, 4), torch.full((1, 2, 4, 4), 3.0)
    for grad in (fresh, used):
        ops.roi_align_backward(sent, torch.tensor([[0.0, 1, 1, 5, 5]]), none, none, grad, **told)
    assert fresh.any()
    close(used, fresh + 3, 1e-6)


def test_roi_align_takes_no_maxima() -> None:
    with pytest.raises(NotImplementedError, match=r"roi_align.*maxima.*install mmcv"):
        roi_align(torch.zeros(1, 1, 4, 4), torch.zeros(1, 5), 2, 1.0, 0, "max")


# --- deformable convolution -------------------------------------------------------------------------------------------

pairs = st.tuples(st.integers(1, 2), st.integers(1, 2))


@st.composite
def convolutions(draw):
    """Tensors and geometry; offsets reach well outside the image."""
    kernel, stride, dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 2))), draw(pairs), draw(pairs)
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 1)))
    groups, deform_groups = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (2, 4)]))
    least = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    size = [draw(st.integers(max(low - 2 * pad, 1), low + 1)) for low, pad in zip(least, padding, strict=True)]
    steps = zip(size, padding, least, stride, strict=True)
    out = [(side + 2 * pad - low) // step + 1 for side, pad, low, step in steps]
    taps, many = deform_groups * kernel[0] * kernel[1], draw(st.integers(1, 2))
    shapes = (many, 4, *size), (many, 2 * taps, *out), (many, taps, *out), (4, 4 // groups, *kernel), (4,)
    images, offset, mask, weight, bias = normal(draw(seeds), *shapes)
    offset = (offset.detach() * draw(st.sampled_from([0, 0.5, 2]))).requires_grad_()
    return (images, offset, mask, weight, bias), (stride, padding, dilation, groups, deform_groups)


@few
@given(convolutions())
def test_modulated_deform_conv(case) -> None:
    (images, offset, mask, weight, bias), geometry = case
    got = modulated_deform_conv2d(images, offset, mask, weight, bias, *geometry)
    rows = zip(images, offset, mask, strict=True)
    expected = torch.stack([convolved(*row, weight, bias, *geometry) for row in rows])
    close(got, expected)
    same_gradients(got, expected, images, offset, mask, weight, bias)
    close(modulated_deform_conv2d(images, offset, mask, weight, None, *geometry) + bias[:, None, None], got)


@few
@given(convolutions())
def test_deform_conv_is_modulated_by_one(case) -> None:
    (images, offset, mask, weight, bias), geometry = case
    got = deform_conv2d(images, offset, weight, *geometry)
    expected = modulated_deform_conv2d(images, offset, torch.ones_like(mask), weight, torch.zeros_like(bias), *geometry)
    close(got, expected)
    same_gradients(got, expected, images, offset, weight)


def test_modulated_deform_conv_by_finite_differences() -> None:
    tensors = normal(3, (2, 4, 4, 5), (2, 36, 4, 5), (2, 18, 4, 5), (2, 2, 3, 3), (2,))
    assert torch.autograd.gradcheck(modulated_deform_conv2d, (*tensors, 1, 1, 1, 2, 2))


def test_no_bias_leaves_its_gradient_out() -> None:
    images, offset, mask, weight = normal(4, (1, 2, 4, 4), (1, 18, 4, 4), (1, 9, 4, 4), (3, 2, 3, 3))
    got = modulated_deform_conv2d(images, offset, mask, weight, None, 1, 1)
    expected = convolved(images[0], offset[0], mask[0], weight, 0, (1, 1), (1, 1), (1, 1), 1, 1)[None]
    same_gradients(got, expected, images, offset, mask, weight)


def test_the_gradient_of_the_weights_is_scaled() -> None:
    images, offset, sent = (tensor.detach() for tensor in normal(7, (1, 2, 3, 3), (1, 2, 3, 3), (1, 3, 3, 3)))
    told = dict.fromkeys(("kW", "kH", "dW", "dH", "dilationW", "dilationH", "group", "deformable_group"), 1)
    once, twice = torch.zeros(2, 3, 2, 1, 1, dtype=torch.float64)
    for scale, grad in ((1, once), (2, twice)):
        work = torch.zeros(0)
        ops.deform_conv_backward_parameters(
            images, offset, sent, grad, work, work, scale=scale, padW=0, padH=0, im2col_step=1, **told
        )
    assert once.any()
    close(twice, 2 * once)


@pytest.mark.parametrize(("module", "share"), [(ModulatedDeformConv2dPack, 0.5), (DeformConv2dPack, 1.0)])
def test_fresh_layers_are_plain_convolutions(module, share) -> None:
    layer = module(4, 6, 3, stride=2, padding=1, bias=False)
    image = torch.randn(2, 4, 9, 8, generator=torch.Generator().manual_seed(0))
    close(layer(image), share * torch.nn.functional.conv2d(image, layer.weight, stride=2, padding=1), 1e-5)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_offsets_that_are_no_numbers_see_nothing(bad) -> None:
    layer = DeformConv2d(2, 3, 1)
    assert not layer(torch.ones(1, 2, 4, 4), torch.full((1, 2, 4, 4), bad)).any()


# --- multi-scale deformable attention -----------------------------------------------------------------------------------


@few
@given(seeds, st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3), st.integers(1, 2))
def test_deformable_attention(seed, shapes, points) -> None:
    keys, heads, queries = sum(rows * columns for rows, columns in shapes), 2, 3
    at = (2, queries, heads, len(shapes), points)
    value, locations, weights = normal(seed, (2, keys, heads, 2), (*at, 2), at)
    sizes = torch.tensor(shapes)
    starts = torch.cat((sizes.new_zeros(1), sizes.prod(1).cumsum(0)[:-1]))
    got = MultiScaleDeformableAttnFunction.apply(value, sizes, starts, locations, weights, 64)
    expected = attended(value, shapes, locations, weights)
    close(got, expected)
    same_gradients(got, expected, value, locations, weights)


def test_deformable_attention_adds_to_the_gradients_it_is_given() -> None:
    value, locations, weights, sent = (
        tensor.detach() for tensor in normal(8, (1, 6, 1, 2), (1, 2, 1, 1, 3, 2), (1, 2, 1, 1, 3), (1, 2, 2))
    )
    sizes, starts = torch.tensor([[2, 3]]), torch.tensor([0])
    fresh, used = ([torch.full_like(each, start) for each in (value, locations, weights)] for start in (0, 3))
    for grads in (fresh, used):
        ops.ms_deform_attn_backward(value, sizes, starts, locations, weights, sent, *grads, im2col_step=64)
    for one, other in zip(fresh, used, strict=True):
        assert one.any()
        close(other, one + 3)


# --- focal loss -------------------------------------------------------------------------------------------------------


@few
@given(
    seeds,
    st.sampled_from([0.0, 0.5, 2.0]),
    st.sampled_from([0.25, 0.6]),
    st.booleans(),
    st.sampled_from(["none", "sum", "mean"]),
)
def test_focal_loss(seed, gamma, alpha, weighted, reduction) -> None:
    logits, weight = normal(seed, (6, 3), (3,))
    # class 3 is background; mmcv has no weight for it
    target = torch.randint(0, 3 if weighted else 4, (6,), generator=torch.Generator().manual_seed(seed))
    weight = weight.detach() if weighted else None
    expected = focal(logits, target, weight, gamma, alpha)
    expected = {"none": expected, "sum": expected.sum(), "mean": expected.sum() / 6}[reduction]
    got = sigmoid_focal_loss(logits, target, gamma, alpha, weight, reduction)
    close(got, expected)
    same_gradients(got, expected, logits)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_loss_of_huge_logits_is_finite(gamma) -> None:
    logits = torch.tensor([[1e4, -1e4, 1e4, -1e4]]).requires_grad_()
    got = sigmoid_focal_loss(logits, torch.tensor([3]), gamma, 0.25, None, "none")
    close(got, torch.tensor([[0.75e4, 0, 0.75e4, 0.25e4]]), 1e-6)
    close(torch.autograd.grad(got.sum(), logits)[0], torch.tensor([[0.75, 0, 0.75, -0.25]]), 1e-6)


def test_focal_loss_of_nothing() -> None:
    (logits,) = normal(0, (0, 3))
    got = sigmoid_focal_loss(logits, torch.zeros(0, dtype=torch.long), 2.0, 0.25, None, "sum")
    assert got.item() == 0
    assert torch.autograd.grad(got, logits)[0].shape == (0, 3)


# --- the module -------------------------------------------------------------------------------------------------------


def test_inference_mode_changes_nothing() -> None:
    images, offset, mask, weight = normal(6, (1, 2, 5, 5), (1, 18, 5, 5), (1, 9, 5, 5), (3, 2, 3, 3))
    rois = torch.tensor([[0.0, 1, 1, 4, 3]], dtype=torch.float64)

    def run() -> list[Tensor]:
        shaped = modulated_deform_conv2d(images, offset, mask, weight, None, 1, 1)
        return [roi_align(shaped, rois, 2), shaped, *nms(rois[:, 1:], rois[:, 0], 0.5)]

    expected = run()
    with torch.inference_mode():
        got = run()
    assert all(tensor.is_inference() for tensor in got)
    for one, other in zip(got, expected, strict=True):
        close(one, other)


def test_an_operator_that_is_missing_names_itself_and_the_remedy() -> None:
    with pytest.raises(NotImplementedError, match=r"softnms.*install mmcv"):
        soft_nms(torch.zeros(1, 4), torch.zeros(1))


def test_installing_twice_is_installing_once() -> None:
    before = list(sys.meta_path)
    ops.install()
    assert sys.meta_path == before
    assert (ops.which(), get_compiler_version()) == ("PyTorch", "not available")


COMPILED = """
import sys, types
from importlib.machinery import ModuleSpec

class Compiled(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: f"compiled {name}"

class Finder:
    def find_spec(self, fullname, path=None, target=None):
        return ModuleSpec(fullname, self) if fullname == "mmcv._ext" else None
    def create_module(self, spec):
        return Compiled(spec.name)
    def exec_module(self, module):
        pass
"""


@pytest.mark.parametrize(
    "found", ["sys.meta_path.append(Finder())", "sys.modules['mmcv._ext'] = Compiled('mmcv._ext')"]
)
def test_compiled_operators_win(found) -> None:
    use = "from saod_ray.detect import ops; ops.install(); print(ops.which()); import mmcv.ops"
    code = f"{COMPILED}\n{found}\n{use}\nprint(mmcv.ops.get_compiler_version())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["compiled", "compiled get_compiler_version"]


def test_asking_which_imports_no_operators() -> None:
    code = "import sys; from saod_ray.detect import ops; print(ops.which(), 'mmcv.ops' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["PyTorch", "False"]
