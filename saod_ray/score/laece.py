"""LaECE: the gap between scores and precision times IoU, averaged over bins of scores."""

from __future__ import annotations

import numpy as np

from saod_ray.score.results import ReliabilityBins
from saod_ray.score.statistics import Statistics

Array = np.ndarray


def laece(sums: Statistics, paper: bool = False) -> Array:
    """LaECE per class, (classes,); NaN for a class that does not count in the mean.

    Under the official conventions, a class without objects or without detections counts with 0. Under the paper's
    conventions, a class without detections does not count, and one without objects counts with precision 0.
    """
    counted = sums.bin_count[:, :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.abs(sums.bin_iou[:, :-1] / counted - sums.bin_score[:, :-1] / counted)
        share = counted / sums.bin_count.sum(axis=1, keepdims=True)
    # Eq. 4: empty bins do not count
    error = np.where(counted > 0, share * gap, 0.0).sum(axis=1)
    detections = sums.bin_count.sum(axis=1)
    if paper:
        return np.where(detections > 0, error, np.nan)
    return np.where((detections > 0) & (sums.objects > 0), error, 0.0)


def laace(sums: Statistics) -> Array:
    """LaACE: the mean of |score - IoU| per class; NaN without detections."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums.tp + sums.fp > 0, sums.error / (sums.tp + sums.fp), np.nan)


def reliability(sums: Statistics, classes: list[str]) -> dict[str, ReliabilityBins]:
    """The non-empty bins of each class, for a reliability diagram."""
    return {
        name: reliability_bins(sums.bin_count[label], sums.bin_score[label], sums.bin_iou[label])
        for label, name in enumerate(classes)
    }


def pooled_reliability(sums: Statistics) -> ReliabilityBins:
    """The non-empty bins over the detections of all classes. (LaECE is a mean over classes instead.)"""
    return reliability_bins(sums.bin_count.sum(axis=0), sums.bin_score.sum(axis=0), sums.bin_iou.sum(axis=0))


def reliability_bins(count: Array, score: Array, iou: Array) -> ReliabilityBins:
    """Counts and means of the non-empty bins. The last entry of each array is in no bin and ignored."""
    used = np.flatnonzero(count[:-1])
    return ReliabilityBins(
        bin=used.tolist(),
        detections=count[used].tolist(),
        score=(score[used] / count[used]).tolist(),
        iou=(iou[used] / count[used]).tolist(),
    )
