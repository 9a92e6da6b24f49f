"""Calibration on the ID images: reliability before and after, the calibrators as curves, and v beside the oracle's."""

from __future__ import annotations

from typing import Any

import numpy as np

from saod_ray.report.judged import Judged, zero_id_misses
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.calibrators import Calibrator
from saod_ray.score.laece import laece, reliability
from saod_ray.score.lrp import mean_of_defined
from saod_ray.score.matching import greedy
from saod_ray.score.statistics import Statistics, statistics
from saod_ray.selfaware import SelfAware, detection_thresholds

Bins = dict[str, list[float]]
CURVE = 21  # points of a calibrator's curve


def tables(each: Judged, benchmark: Benchmark, mine: SelfAware) -> dict[str, Any]:
    """Reliability (`before`, `after`: by class and over all classes), LaECE before, curves, and oracle thresholds."""
    before = sums_before(each, benchmark)
    paper = benchmark.settings.conventions == "paper"
    return {
        "reliability": {
            stage: {"": pooled(sums), **reliability(sums, benchmark.classes)}
            for stage, sums in (("before", before), ("after", each.sums(benchmark)))
        },
        "laece_before": mean_of_defined(laece(before, paper)),
        "curves": {
            name: curve(function, float(v))
            for name, function, v in zip(benchmark.classes, mine.calibrators, mine.detection_thresholds, strict=True)
        },
        "oracle": _oracle(each, benchmark),
    }


def sums_before(each: Judged, benchmark: Benchmark) -> Statistics:
    """The same detections with their raw scores, matched by them: a line that falls turns the order round."""
    settings, objects = benchmark.settings, benchmark.objects["id"]
    matches = greedy(each.kept, objects, settings.tau, zero_id_misses=zero_id_misses(benchmark, each.name))
    closed = settings.conventions == "paper"
    counts = objects.counts(each.kept.images)
    return statistics(each.kept.label, each.kept.score, matches, counts, settings.bins, last_closed=closed)


def pooled(sums: Statistics) -> Bins:
    """The bins over the detections of all classes; LaECE itself is the mean over classes."""
    count = sums.bin_count[:, :-1].sum(axis=0)
    used = np.flatnonzero(count)
    return {
        "bin": used.tolist(),
        "detections": count[used].tolist(),
        "score": (sums.bin_score[:, used].sum(axis=0) / count[used]).tolist(),
        "iou": (sums.bin_iou[:, used].sum(axis=0) / count[used]).tolist(),
    }


def curve(function: Calibrator | None, v: float) -> dict[str, list[float]]:
    """A calibrator from its class's threshold up to 1; the identity where nothing is calibrated."""
    if np.isnan(v):
        return {"score": [], "calibrated": []}
    score = np.linspace(max(v, 0.0), 1.0, CURVE)
    value = score if function is None else function(score)
    known = ~np.isnan(value)
    return {"score": score[known].tolist(), "calibrated": value[known].tolist()}


def _oracle(each: Judged, benchmark: Benchmark) -> dict[str, float | None]:
    """The thresholds that would be LRP-optimal on the ID images themselves (Fig. A.16)."""
    if benchmark.settings.detection_threshold != "lrp":
        return {}
    found = detection_thresholds(each.raw, benchmark.objects["id"], benchmark.settings)
    values = [None if np.isnan(v) or v < 0 else float(v) for v in found]
    return dict(zip(benchmark.classes, values, strict=True))
