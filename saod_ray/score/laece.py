"""LaECE: how far scores are from precision times IoU."""

from __future__ import annotations

import numpy as np

from saod_ray.score.statistics import Statistics

Array = np.ndarray


def laece(sums: Statistics, paper: bool = False) -> Array:
    """LaECE per class, NaN where a class leaves the mean.

    Officially a class without objects or without detections has 0 and stays in the mean. Under the paper's
    conventions one without detections leaves it, and one without objects stays with precision 0.
    """
    counted = sums.bin_count[:, :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.abs(sums.bin_iou[:, :-1] / counted - sums.bin_score[:, :-1] / counted)
        share = counted / sums.bin_count.sum(axis=1, keepdims=True)
    # Eq. 4: the empty bins do not count
    error = np.where(counted > 0, share * gap, 0.0).sum(axis=1)
    detections = sums.bin_count.sum(axis=1)
    if paper:
        return np.where(detections > 0, error, np.nan)
    return np.where((detections > 0) & (sums.objects > 0), error, 0.0)


def laace(sums: Statistics) -> Array:
    """LaACE: the mean of |score - IoU| per class, NaN without detections."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums.tp + sums.fp > 0, sums.error / (sums.tp + sums.fp), np.nan)


def reliability(sums: Statistics, classes: list[str]) -> dict[str, dict[str, list[float]]]:
    """The bins that have detections, per class and for all: what a reliability diagram draws."""
    tables = {}
    for label, name in enumerate(classes):
        used = np.flatnonzero(sums.bin_count[label, :-1])
        count = sums.bin_count[label, used]
        tables[name] = {
            "bin": used.tolist(),
            "detections": count.tolist(),
            "score": (sums.bin_score[label, used] / count).tolist(),
            "iou": (sums.bin_iou[label, used] / count).tolist(),
        }
    return tables
