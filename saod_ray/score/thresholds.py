"""Image thresholds, and metrics of how well uncertainty separates ID from OOD images.

Throughout, `inside` and `outside` are the uncertainties of ID and OOD images, (images,) float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Roc(NamedTuple):
    """Candidate thresholds in ascending order, and the numbers of ID and OOD images at or below each."""

    threshold: Array
    inside: Array
    outside: Array


def roc(inside: Array, outside: Array, drop: bool = True) -> Roc:
    """The ROC curve over all distinct uncertainties; with `drop`, without points inside straight segments.

    >>> roc(np.array([0.1, 0.2, 0.3]), np.array([0.9])).threshold.tolist()
    [0.1, 0.3, 0.9]
    """
    threshold = np.unique(np.concatenate([inside, outside]))
    tp = np.searchsorted(np.sort(inside), threshold, side="right")
    fp = np.searchsorted(np.sort(outside), threshold, side="right")
    if drop and len(threshold) > 2:
        bends = (np.diff(tp, 2) != 0) | (np.diff(fp, 2) != 0)
        keep = np.concatenate([[True], bends, [True]])
        threshold, tp, fp = threshold[keep], tp[keep], fp[keep]
    return Roc(threshold, tp, fp)


def harmonic(*values: float, weights: tuple[float, ...] | None = None) -> float:
    """The weighted harmonic mean; 0 if a value with a weight is 0.

    >>> harmonic(0.5, 1.0)
    0.6666666666666666
    """
    weights = weights or (1.0,) * len(values)
    used = [(value, weight) for value, weight in zip(values, weights, strict=True) if weight]
    if any(value <= 0 for value, _ in used):
        return 0.0
    return sum(weight for _, weight in used) / sum(weight / value for value, weight in used)


def pseudo_ood_threshold(inside: Array, outside: Array) -> float:
    """The candidate with the largest harmonic mean of TPR and TNR; the smallest of equals."""
    curve = roc(inside, outside)
    tpr, tnr = curve.inside / len(inside), 1 - curve.outside / len(outside)
    with np.errstate(divide="ignore"):
        balanced = np.where((tpr == 0) | (tnr == 0), 0.0, 2 / (1 / tpr + 1 / tnr))
    return float(curve.threshold[np.argmax(balanced)])


def tpr_threshold(inside: Array, share: float) -> float:
    """The uncertainty below which that share of the ID images is; needs no OOD images."""
    return float(np.sort(inside)[int(share * len(inside))])


def balanced_accuracy(inside: Array, outside: Array, threshold: float) -> dict[str, float]:
    """TPR, TNR and BA at the first ROC point above the threshold, as the published evaluation reports."""
    curve = roc(inside, outside)
    beyond = np.flatnonzero(curve.threshold > threshold)
    if not len(beyond):
        return {"tpr": 0.0, "tnr": 1.0, "ba": 0.0}
    tpr = curve.inside[beyond[0]] / len(inside)
    return _ba(tpr, 1 - curve.outside[beyond[0]] / len(outside))


def decided_accuracy(inside: Array, outside: Array) -> dict[str, float]:
    """TPR, TNR and BA of decisions; here `inside` and `outside` are bool masks of the accepted images."""
    return _ba(inside.sum() / len(inside), 1 - outside.sum() / len(outside))


def _ba(tpr: float, tnr: float) -> dict[str, float]:
    return {"tpr": float(tpr), "tnr": float(tnr), "ba": float(harmonic(tpr, tnr))}


def auroc(inside: Array, outside: Array) -> float:
    """The probability that an ID image is less uncertain than an OOD image; ties count half.

    >>> auroc(np.array([0.1, 0.5]), np.array([0.5, 0.9]))
    0.875
    """
    ordered = np.sort(inside)
    below = np.searchsorted(ordered, outside, side="left").sum()
    equal = np.searchsorted(ordered, outside, side="right").sum() - below
    return float((below + 0.5 * equal) / (len(inside) * len(outside)))


def fpr95(inside: Array, outside: Array) -> float:
    """The share of OOD images at or below the smallest threshold that accepts 95 % of the ID images."""
    curve = roc(inside, outside, drop=False)
    enough = np.flatnonzero(curve.inside >= 0.95 * len(inside))
    return float(curve.outside[enough[0]] / len(outside))
