"""LRP with its components, LRP-optimal thresholds and oLRP."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from saod_ray.score.matching import DROPPED, FP, TP, Matches
from saod_ray.score.order import class_order

Array = np.ndarray
COMPONENTS = ("lrp", "lrp_loc", "lrp_fp", "lrp_fn")


class Prefix(NamedTuple):
    """Per class, the prefix of its score-ordered detections with the smallest LRP; the shortest of equals.

    All arrays are (classes,).
    """

    last: Array  # index of the last detection of the prefix, or -1
    lrp: Array
    tp: Array
    fp: Array
    iou: Array  # sum over TPs
    any_tp: Array  # whether any prefix has a TP


@njit(cache=True, nogil=True)
def _best_prefix(
    order: Array, start: Array, state: Array, iou: Array, objects: Array, tau: float
) -> tuple[Array, Array, Array, Array, Array, Array]:
    classes = objects.size
    last = np.full(classes, -1, np.int64)
    best = np.full(classes, np.nan)
    best_tp, best_fp = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    best_iou = np.zeros(classes)
    any_tp = np.zeros(classes, np.bool_)
    for c in range(classes):
        if objects[c] == 0:
            continue
        tp, fp, total = 0, 0, 0.0
        for k in range(start[c], start[c + 1]):
            d = order[k]
            if state[d] == TP:
                tp += 1
                total += iou[d]
            elif state[d] == FP:
                fp += 1
            elif state[d] == DROPPED:
                continue
            value = ((tp - total) / (1 - tau) + fp + objects[c] - tp) / (fp + objects[c])
            if last[c] < 0 or value < best[c]:
                last[c], best[c] = d, value
                best_tp[c], best_fp[c], best_iou[c] = tp, fp, total
        any_tp[c] = tp > 0
    return last, best, best_tp, best_fp, best_iou, any_tp


def best_prefix(order: Array, start: Array, state: Array, iou: Array, objects: Array, tau: float) -> Prefix:
    """The best prefix of each class. `order` and `start` are those of `class_order`, `state` and `iou` those of matches.

    `objects` is the number of non-crowd objects per class.
    """
    return Prefix(*_best_prefix(order, start, state, iou, objects, tau))


def optimal_thresholds(label: Array, score: Array, matches: Matches, objects: Array, tau: float) -> Array:
    """LRP-optimal score thresholds, (classes,): -1 for a class without objects, NaN for one without a TP."""
    best = best_prefix(*class_order(label, score, len(objects)), matches.state, matches.iou, objects, tau)
    thresholds = np.full(len(objects), np.nan)
    thresholds[objects == 0] = -1.0
    thresholds[best.any_tp] = score[best.last[best.any_tp]]
    return thresholds


def olrp(best: Prefix, objects: Array) -> dict[str, float | None]:
    """oLRP and its components from best prefixes at tau = 0.5; classes without objects do not count."""
    parts = components(best.tp, best.fp, best.iou, objects, 0.5)
    parts["lrp"] = np.where(best.any_tp, best.lrp, np.where(objects > 0, 1.0, np.nan))
    return {f"o{name}": mean_of_defined(values) for name, values in parts.items()}


def components(tp: Array, fp: Array, iou: Array, objects: Array, tau: float, paper: bool = False) -> dict[str, Array]:
    """LRP per class with its localisation, FP and FN components; NaN where undefined.

    Under the paper's conventions, the FP component of a class with FPs and no TP is 1 instead of undefined.

    >>> one = components(np.array([1]), np.array([1]), np.array([0.8]), np.array([2]), 0.5)
    >>> {name: round(float(value[0]), 3) for name, value in one.items()}
    {'lrp': 0.8, 'lrp_loc': 0.2, 'lrp_fp': 0.5, 'lrp_fn': 0.5}
    """
    has_tp = tp > 0
    fn = objects - tp
    with np.errstate(divide="ignore", invalid="ignore"):
        total = ((tp - iou) / (1 - tau) + fp + fn) / (tp + fp + fn)
        values = [total, (tp - iou) / tp, fp / (tp + fp), fn / objects]
    without_tp: list[Any] = [1.0, np.nan, np.where(paper & (fp > 0), 1.0, np.nan), 1.0]
    pairs = zip(COMPONENTS, values, without_tp, strict=True)
    return {name: np.where(objects == 0, np.nan, np.where(has_tp, value, fallback)) for name, value, fallback in pairs}


def mean_of_defined(values: Array) -> float | None:
    """The mean over the values that are not NaN; None if there are none."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None
