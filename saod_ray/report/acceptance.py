"""Image-level uncertainty: histograms with AP per bin, ROC curves, and the decisions of each image threshold.

The functions take `uncertainty`: (images,) float64 per split; `NO_DETECTION` marks images without a detection.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.report.records import AccuracyBin, DecisionTable, HistogramBin, RocPoint
from saod_ray.score import thresholds
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.split import SplitDetections
from saod_ray.score.uncertainty import NO_DETECTION

Array = np.ndarray
BINS = 10  # the paper's Fig. 2
POINTS = 100  # of a ROC curve
STEPS = 120  # positions of the threshold slider


def bin_edges(uncertainty: dict[str, Array]) -> Array:
    """The `BINS` + 1 edges of the bins: of [0, 1] if it holds all values, else from the smallest value to the largest."""
    detected = [values[values < NO_DETECTION] for values in uncertainty.values()]
    values = np.concatenate(detected) if any(map(len, detected)) else np.zeros(1)
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return np.linspace(low, high if high > low else low + 1, BINS + 1)


def bin_indices(values: Array, edges: Array) -> Array:
    """The bin of each value; the last bin includes its upper edge. Images without a detection get index `BINS`."""
    indices = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, BINS - 1)
    return np.where(values >= NO_DETECTION, BINS, indices)


def histogram(uncertainty: dict[str, Array], edges: Array) -> list[HistogramBin]:
    """Image counts per split and bin; an extra bin after the last has the images without a detection."""
    table = []
    for split, values in uncertainty.items():
        counts = np.bincount(bin_indices(values, edges), minlength=BINS + 1)
        for number, count in enumerate(counts.tolist()):
            low, high = (float(edges[number]), float(edges[number + 1])) if number < BINS else (None, None)
            if number < BINS or count:
                share = count / len(values) if len(values) else 0.0
                table.append(HistogramBin(split=split, bin=number, low=low, high=high, images=count, share=share))
    return table


def accuracy_by_bin(
    split: str, raw: SplitDetections, uncertainty: Array, benchmark: Benchmark, edges: Array
) -> list[AccuracyBin]:
    """AP of the raw detections on the images of each bin; bins without objects are omitted."""
    indices, table = bin_indices(uncertainty, edges), []
    for number in range(BINS):
        mask = indices == number
        if not mask.any():
            continue
        ap = benchmark.accuracy_of(raw.on_images(mask), split).ap
        if ap is not None:
            low, high = float(edges[number]), float(edges[number + 1])
            table.append(AccuracyBin(split=split, bin=number, low=low, high=high, ap=ap))
    return table


def roc_curves(uncertainty: dict[str, Array]) -> list[RocPoint]:
    """ROC of ID against each OOD subset and against all of them, each thinned to about `POINTS` points."""
    outside = {name: values for name, values in uncertainty.items() if name.startswith("ood/") and len(values)}
    inside = uncertainty.get("id", np.empty(0))
    if not outside or not len(inside):
        return []
    subsets = {"all OOD": np.concatenate(list(outside.values())), **outside} if len(outside) > 1 else outside
    table = []
    for name, values in subsets.items():
        curve = thresholds.roc(inside, values)
        tpr = np.concatenate([[0.0], curve.inside / len(inside)])
        fpr = np.concatenate([[0.0], curve.outside / len(values)])
        for k in thin_indices(fpr, tpr):
            table.append(RocPoint(name.removeprefix("ood/"), float(fpr[k]), float(tpr[k])))
    return table


def thin_indices(x: Array, y: Array) -> list[int]:
    """At most about `POINTS` indices of a rising curve, evenly spread along its length, both ends included."""
    if len(x) <= POINTS:
        return list(range(len(x)))
    length = x + y
    targets = np.linspace(length[0], length[-1], POINTS)
    indices = np.concatenate([[0], np.searchsorted(length, targets), [len(x) - 1]])
    return np.unique(indices.clip(0, len(x) - 1)).tolist()


def decisions(uncertainty: dict[str, Array], self_aware: SelfAware, settings: ScoreSettings) -> DecisionTable:
    """TPR, TNR, BA and the accepted share of each split at `STEPS` thresholds and at the fitted one."""
    detected = [values[values < NO_DETECTION] for values in uncertainty.values()]
    values = np.concatenate(detected) if detected else np.empty(0)
    if not len(values) or "id" not in uncertainty:
        return DecisionTable()
    fitted = self_aware.image_threshold
    grid = np.unique([*np.linspace(values.min(), values.max(), STEPS), fitted])
    outside = [values for name, values in uncertainty.items() if name.startswith("ood/")]
    rates: dict[str, list[float]] = {}
    if sum(map(len, outside)) and len(uncertainty["id"]):
        rates = _rates(uncertainty["id"], np.concatenate(outside), grid, settings.conventions)
    side: Literal["left", "right"] = "right" if settings.conventions == "paper" else "left"
    accepted = {
        name: (np.searchsorted(np.sort(values), grid, side=side) / len(values)).round(4).tolist()
        for name, values in uncertainty.items()
        if len(values)
    }
    index = int(np.searchsorted(grid, fitted))
    return DecisionTable(threshold=grid.tolist(), fitted=index, accepted=accepted, **rates)


def _rates(inside: Array, outside: Array, grid: Array, conventions: str) -> dict[str, list[float]]:
    """TPR, TNR and BA per threshold: shares of the decisions (paper), or the first ROC point beyond it (official)."""
    if conventions == "paper":
        tpr = np.searchsorted(np.sort(inside[inside < NO_DETECTION]), grid, side="right") / len(inside)
        tnr = 1 - np.searchsorted(np.sort(outside[outside < NO_DETECTION]), grid, side="right") / len(outside)
    else:
        curve = thresholds.roc(inside, outside)
        points = np.searchsorted(curve.threshold, grid, side="right")
        exists = points < len(curve.threshold)
        points = np.minimum(points, len(curve.threshold) - 1)
        tpr = np.where(exists, curve.inside[points] / len(inside), 0.0)
        tnr = np.where(exists, 1 - curve.outside[points] / len(outside), 1.0)
    ba = [thresholds.harmonic(a, b) for a, b in zip(tpr.tolist(), tnr.tolist(), strict=True)]
    return {"tpr": tpr.tolist(), "tnr": tnr.tolist(), "ba": ba}
