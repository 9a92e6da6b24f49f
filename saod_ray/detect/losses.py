"""Training losses that mmdet lacks: Rank & Sort (Oksuz et al., ICCV 2021), and two for boxes with variances."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from saod_ray.detect import ops
from saod_ray.errors import SaodError

ops.install()  # before mmdet imports mmcv.ops

from mmdet.models.losses.iou_loss import giou_loss  # noqa: E402
from mmdet.registry import MODELS  # noqa: E402
from mmdet.structures.bbox import bbox_overlaps  # noqa: E402

CELLS = 1 << 18  # of a block of the (positives x others) matrix; fits a CPU's cache
TINY = 1e-10  # minimum of divisors


class RankSort(torch.autograd.Function):
    """Ranking and sorting errors. Step functions have no gradient, so the errors themselves serve as gradients."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, delta: float) -> tuple[Tensor, Tensor]:
        """Mean ranking error and mean sorting error over the positives."""
        positive = targets > 0
        rank_gradient, sort_gradient = torch.zeros_like(logits), torch.zeros_like(logits)
        ctx.save_for_backward(rank_gradient, sort_gradient)
        own = logits[positive]
        if not len(own):
            return logits.new_zeros(()), logits.new_zeros(())
        relevant = ~positive & (logits > own.min() - delta)  # the other negatives are below every positive
        ranking, rank_gradient[positive], rank_gradient[relevant] = _rank(own, logits[relevant], delta)
        sorting, sort_gradient[positive] = _sort(own, targets[positive], delta)
        return ranking.mean(), sorting.mean()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        """The sum of both gradients, each multiplied by its upstream gradient."""
        rank_gradient, sort_gradient = ctx.saved_tensors
        return rank_gradient * upstream[0] + sort_gradient * upstream[1], None, None


def _above(logits: Tensor, positives: Tensor, delta: float) -> Tensor:
    """Degree, in 0..1, to which each of `logits` (columns) is above each positive (rows): a step smoothed over ±delta."""
    return (logits - positives[:, None]).div_(2 * delta).add_(0.5).clamp_(0, 1)


def _blocks(positives: Tensor, width: int) -> list[slice]:
    rows = max(1, CELLS // max(1, width))
    return [slice(start, start + rows) for start in range(0, len(positives), rows)]


def _rank(positives: Tensor, negatives: Tensor, delta: float) -> tuple[Tensor, Tensor, Tensor]:
    """Ranking errors of the positives, and gradients of positives (pulled up by their error) and negatives (pushed down)."""
    errors, shares = torch.zeros_like(positives), torch.zeros_like(negatives)
    for rows in _blocks(positives, len(positives) + len(negatives)):
        false = _above(negatives, positives[rows], delta)
        wrong = false.sum(1)
        rank = _above(positives, positives[rows], delta).sum(1) + wrong
        errors[rows] = wrong / rank
        shares += (1 / rank) @ false  # the error, distributed as false / wrong
    return errors, -errors / len(positives), shares / len(positives)


def _sort(positives: Tensor, overlaps: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Sorting errors of the positives, in excess of those in the order of IoU, and their gradients."""
    errors, gradient = torch.zeros_like(positives), torch.zeros_like(positives)
    for rows in _blocks(positives, len(positives)):
        above = _above(positives, positives[rows], delta)
        missorted = above * (overlaps < overlaps[rows, None])
        ordered = above - missorted
        wrong = missorted.sum(1)
        error = above @ (1 - overlaps) / above.sum(1) - ordered @ (1 - overlaps) / ordered.sum(1)
        errors[rows] = torch.where(wrong > 0, error, 0)
        gradient += (errors[rows] / wrong.clamp(min=TINY)) @ missorted
    return errors, (gradient - errors) / len(positives)


@MODELS.register_module()
class RankSortLoss(nn.Module):
    """Ranks positives above negatives, and sorts positives by IoU; `delta` is half the width of the smoothed step."""

    def __init__(self, delta: float = 0.5) -> None:
        super().__init__()
        if delta <= 0:
            raise SaodError(f"RankSortLoss: delta is {delta}: give a number above 0 (the paper's is 0.5).")
        self.delta = delta

    def forward(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Ranking and sorting loss of logits (n,); `targets` (n,) are the IoUs of positives, and 0 for negatives."""
        exact = torch.promote_types(logits.dtype, torch.float32)  # half precision cannot represent ranks above 2,048
        losses: tuple[Tensor, Tensor] = RankSort.apply(logits.to(exact), targets.to(exact), self.delta)
        return losses


def rank_sort_losses(
    criterion: RankSortLoss, logits: Tensor, labels: Tensor, boxes: Tensor, truths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Ranking, sorting and box loss. The box loss is GIoU weighted by class scores, scaled to the sum of the other two.

    `logits` has one column per class and labels beyond them are background. `boxes` and `truths` have one row per
    positive, x1 y1 x2 y2. A positive whose box does not overlap its truth is ranked as a negative.
    """
    positive = labels < logits.shape[1]
    own = labels[positive]
    targets = torch.zeros_like(logits)
    targets[positive, own] = bbox_overlaps(boxes.detach(), truths, is_aligned=True).to(targets)
    rank, sort = criterion(logits.flatten(), targets.flatten())
    weights = logits[positive, own].detach().sigmoid()
    # without boxes mmdet's loss would have no graph
    errors = giou_loss(boxes, truths, reduction="none") if len(boxes) else boxes.sum(1)
    box = (weights * errors).sum() / weights.sum().clamp(min=TINY)
    return rank, sort, box * ((rank + sort) / box.clamp(min=TINY)).detach()


def nll(deltas: Tensor, log_variance: Tensor, targets: Tensor, count: int) -> Tensor:
    """Mean of |error| / (2 variance), plus the sum of log variance / 2 divided by `count` RoIs.

    Log variances are clamped to ±7. As published, the two terms have different divisors.
    """
    s = log_variance.clamp(-7, 7)
    misses = 0.5 * (-s).exp() * (deltas - targets).abs()
    return misses.sum() / max(misses.numel(), 1) + 0.5 * s.sum() / count


def energy_score(deltas: Tensor, log_variance: Tensor, targets: Tensor, noise: Tensor, count: int) -> Tensor:
    """Sum of 2 E|X - t| - E|X - X'| over rows and their four values, divided by `count` RoIs.

    As published, each value counts on its own. `noise` is standard normal, (samples + 1, rows, 4): the independent copy
    X' of a sample is the next sample.
    """
    samples = deltas + (0.5 * log_variance).exp() * noise
    misses = (samples[:-1] - targets).abs().sum()
    spread = (samples[:-1] - samples[1:]).abs().sum()
    return (2 * misses - spread) / ((len(noise) - 1) * count)
