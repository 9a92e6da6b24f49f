"""What LRP and LaECE need of matched detections: sums per class and bin, which add up over images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from saod_ray.score.matching import FP, TP, Matches

Array = np.ndarray


@dataclass(frozen=True)
class Statistics:
    """Per class: objects, TPs, FPs, their IoU; and per class and bin: detections, sum of scores, sum of IoU.

    The last column of the bins holds what is in no bin: NaN scores and, where the last bin is open, 1.0.
    """

    objects: Array
    tp: Array
    fp: Array
    iou: Array
    error: Array  # sum of |score - IoU|
    bin_count: Array
    bin_score: Array
    bin_iou: Array

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            *(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True))
        )


@njit(cache=True, nogil=True)
def _bin(s: float, edges: Array, lower_open: bool, last_closed: bool) -> int:
    bins = edges.size - 1
    if np.isnan(s):
        return bins
    if lower_open:  # first [e0, e1], then (e_k, e_k+1]
        return max(int(np.searchsorted(edges, s, side="left")) - 1, 0)
    b = int(np.searchsorted(edges, s, side="right")) - 1  # [e_k, e_k+1)
    return bins - 1 if last_closed and b == bins and s == edges[bins] else b


@njit(cache=True, nogil=True)
def _bins(score: Array, edges: Array, last_closed: bool) -> Array:
    out = np.empty(score.size, np.int64)
    for d in range(score.size):
        out[d] = _bin(score[d], edges, False, last_closed)
    return out


@njit(cache=True, nogil=True)
def _sums(
    label: Array,
    score: Array,
    state: Array,
    iou: Array,
    edges: Array,
    lower_open: bool,
    last_closed: bool,
    classes: int,
) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    bins = edges.size - 1
    tp, fp = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    iou_sum, error = np.zeros(classes), np.zeros(classes)
    bin_count = np.zeros((classes, bins + 1), np.int64)
    bin_score, bin_iou = np.zeros((classes, bins + 1)), np.zeros((classes, bins + 1))
    for d in range(label.size):
        if state[d] != TP and state[d] != FP:
            continue
        c, s = label[d], score[d]
        if state[d] == TP:
            tp[c] += 1
            iou_sum[c] += iou[d]
        else:
            fp[c] += 1
        error[c] += abs(s - iou[d])
        b = _bin(s, edges, lower_open, last_closed)
        bin_count[c, b] += 1
        bin_score[c, b] += s
        bin_iou[c, b] += iou[d]
    return tp, fp, iou_sum, error, bin_count, bin_score, bin_iou


def bins_of(score: Array, bins: int, last_closed: bool) -> Array:
    """The bin that each score is in; the number of bins for what is in none."""
    return _bins(score, _edges(bins), last_closed)


def _edges(bins: int) -> Array:
    return np.arange(bins + 1) / bins


def statistics(
    label: Array,
    score: Array,
    matches: Matches,
    objects: Array,
    bins: int,
    *,
    lower_open: bool = False,
    last_closed: bool = False,
) -> Statistics:
    """Sum over matched detections in the order given; `objects` is the number of non-crowd objects a class."""
    sums = _sums(label, score, matches.state, matches.iou, _edges(bins), lower_open, last_closed, len(objects))
    return Statistics(objects, *sums)
