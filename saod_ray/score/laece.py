"""LaECE: how far scores are from precision times IoU."""

from __future__ import annotations

import numpy as np

from saod_ray.score.results import ReliabilityBins
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


def reliability(sums: Statistics, classes: list[str]) -> dict[str, ReliabilityBins]:
    """The bins that have detections, per class: what a reliability diagram draws."""
    return {
        name: reliability_bins(sums.bin_count[label], sums.bin_score[label], sums.bin_iou[label])
        for label, name in enumerate(classes)
    }


def pooled_reliability(sums: Statistics) -> ReliabilityBins:
    """The bins over the detections of all classes; LaECE itself is the mean over classes."""
    return reliability_bins(sums.bin_count.sum(axis=0), sums.bin_score.sum(axis=0), sums.bin_iou.sum(axis=0))


def reliability_bins(count: Array, score: Array, iou: Array) -> ReliabilityBins:
    """Means over the bins that have detections; the last entry of each array is in no bin."""
    used = np.flatnonzero(count[:-1])
    return ReliabilityBins(
        bin=used.tolist(),
        detections=count[used].tolist(),
        score=(score[used] / count[used]).tolist(),
        iou=(iou[used] / count[used]).tolist(),
    )
