"""Image-level uncertainty: histograms by split with AP over their bins, ROC curves, and what each threshold decides."""

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
POINTS = 100  # of a curve
STEPS = 120  # places of the threshold that can be dragged


def edges(uncertainty: dict[str, Array]) -> Array:
    """The borders of ten bins: of [0, 1] where all values lie there, else from the smallest to the largest."""
    known = [values[values < NO_DETECTION] for values in uncertainty.values()]
    values = np.concatenate(known) if any(map(len, known)) else np.zeros(1)
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return np.linspace(low, high if high > low else low + 1, BINS + 1)


def bin_of(values: Array, borders: Array) -> Array:
    """The bin of each value, the last one closed; `BINS` for images without a detection."""
    at = np.clip(np.searchsorted(borders, values, side="right") - 1, 0, BINS - 1)
    return np.where(values >= NO_DETECTION, BINS, at)


def histogram(uncertainty: dict[str, Array], borders: Array) -> list[HistogramBin]:
    """How many images of each split lie in each bin; the bin after the last has the images without a detection."""
    table = []
    for split, values in uncertainty.items():
        counts = np.bincount(bin_of(values, borders), minlength=BINS + 1)
        for number, count in enumerate(counts.tolist()):
            low, high = (float(borders[number]), float(borders[number + 1])) if number < BINS else (None, None)
            if number < BINS or count:
                share = count / len(values) if len(values) else 0.0
                table.append(HistogramBin(split=split, bin=number, low=low, high=high, images=count, share=share))
    return table


def accuracy_by_bin(
    split: str, raw: SplitDetections, uncertainty: Array, benchmark: Benchmark, borders: Array
) -> list[AccuracyBin]:
    """AP of the raw detections on the images of each bin; bins without objects are left out."""
    where, table = bin_of(uncertainty, borders), []
    for number in range(BINS):
        mask = where == number
        if not mask.any():
            continue
        value = benchmark.accuracy_of(raw.on_images(mask), split).ap
        if value is not None:
            low, high = float(borders[number]), float(borders[number + 1])
            table.append(AccuracyBin(split=split, bin=number, low=low, high=high, ap=value))
    return table


def curves(uncertainty: dict[str, Array]) -> list[RocPoint]:
    """ROC of ID against each OOD subset and all of them, thinned out to `POINTS` where it is longer."""
    outside = {name: values for name, values in uncertainty.items() if name.startswith("ood/") and len(values)}
    inside = uncertainty.get("id", np.empty(0))
    if not outside or not len(inside):
        return []
    sets = {"all OOD": np.concatenate(list(outside.values())), **outside} if len(outside) > 1 else outside
    table = []
    for name, values in sets.items():
        curve = thresholds.roc(inside, values)
        tpr = np.concatenate([[0.0], curve.inside / len(inside)])
        fpr = np.concatenate([[0.0], curve.outside / len(values)])
        for k in thinned(fpr, tpr):
            table.append(RocPoint(name.removeprefix("ood/"), float(fpr[k]), float(tpr[k])))
    return table


def thinned(x: Array, y: Array) -> list[int]:
    """At most about `POINTS` indices of a rising curve, evenly spread along it, both ends included."""
    if len(x) <= POINTS:
        return list(range(len(x)))
    way = x + y
    wanted = np.linspace(way[0], way[-1], POINTS)
    return np.unique(np.concatenate([[0], np.searchsorted(way, wanted), [len(x) - 1]]).clip(0, len(x) - 1)).tolist()


def decisions(uncertainty: dict[str, Array], self_aware: SelfAware, settings: ScoreSettings) -> DecisionTable:
    """TPR, TNR, BA and the share accepted of each split at each of `STEPS` thresholds and at the fitted one."""
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
    at = int(np.searchsorted(grid, fitted))
    return DecisionTable(threshold=grid.tolist(), fitted=at, accepted=accepted, **rates)


def _rates(inside: Array, outside: Array, grid: Array, conventions: str) -> dict[str, list[float]]:
    """As the conventions have it: shares of the decisions, or the first ROC point beyond the threshold."""
    if conventions == "paper":
        tpr = np.searchsorted(np.sort(inside[inside < NO_DETECTION]), grid, side="right") / len(inside)
        tnr = 1 - np.searchsorted(np.sort(outside[outside < NO_DETECTION]), grid, side="right") / len(outside)
    else:
        curve = thresholds.roc(inside, outside)
        at = np.searchsorted(curve.threshold, grid, side="right")
        beyond = at < len(curve.threshold)
        at = np.minimum(at, len(curve.threshold) - 1)
        tpr = np.where(beyond, curve.inside[at] / len(inside), 0.0)
        tnr = np.where(beyond, 1 - curve.outside[at] / len(outside), 1.0)
    ba = [thresholds.harmonic(a, b) for a, b in zip(tpr.tolist(), tnr.tolist(), strict=True)]
    return {"tpr": tpr.tolist(), "tnr": tnr.tolist(), "ba": ba}
