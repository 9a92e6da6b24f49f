"""Non-maximum suppression."""

from __future__ import annotations

import torch
from torch import Tensor


def _iou(a: Tensor, b: Tensor, offset: int) -> Tensor:
    # contiguous coordinates, as broadcasting over a stride is several times slower
    columns, rows = a.T.contiguous()[:, :, None], b.T.contiguous()[:, None, :]
    wide, tall = (
        torch.minimum(columns[k + 2], rows[k + 2]).sub_(torch.maximum(columns[k], rows[k])).add_(offset).clamp_(min=0)
        for k in (0, 1)
    )
    intersection = wide.mul_(tall)
    area_a, area_b = ((boxes[:, 2:] - boxes[:, :2] + offset).prod(1) for boxes in (a, b))
    return intersection.div_((area_a[:, None] + area_b[None, :]).sub_(intersection))


def _greedy(clash: Tensor) -> Tensor:
    """Which boxes greedy suppression keeps; `clash[i, j]` says that box i, if kept, suppresses the later box j.

    Starting with all boxes, "keep a box unless a kept box suppresses it" is repeated until nothing changes. The first k
    boxes are final after k rounds, so that the fixed point is the greedy result. In practice a few rounds suffice.
    """
    counts = clash.float()
    keep = torch.ones(len(clash), device=clash.device)
    while True:
        updated = (keep @ counts == 0).float()
        if torch.equal(updated, keep):
            return keep.bool()
        keep = updated


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int, block: int = 256) -> Tensor:
    """Indices of the boxes that greedy suppression keeps, by descending score; equal scores keep their order.

    `boxes` is (n, 4), x1 y1 x2 y2, and `scores` (n,). Boxes are processed in blocks by score: the kept boxes of a block
    suppress all later boxes at once.

    >>> boxes = torch.tensor([[0.0, 0, 9, 10], [0, 0, 10, 10], [20, 0, 30, 10]])
    >>> nms(boxes, torch.tensor([0.5, 0.9, 0.7]), iou_threshold=0.5, offset=0).tolist()
    [1, 2]
    """
    order = scores.argsort(descending=True, stable=True)
    ranked = boxes[order]
    alive = torch.ones(len(order), dtype=torch.bool, device=boxes.device)
    for start in range(0, len(order), block):
        here = start + alive[start : start + block].nonzero().squeeze(1)
        candidates = ranked[here]
        keep = _greedy((_iou(candidates, candidates, offset) > iou_threshold).triu_(1))
        alive[here] = keep
        later = start + block + alive[start + block :].nonzero().squeeze(1)
        suppressed = (_iou(candidates[keep], ranked[later], offset) > iou_threshold).any(0)
        alive[later[suppressed]] = False
    return order[alive]
