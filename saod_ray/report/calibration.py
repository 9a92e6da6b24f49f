"""Calibration on the ID images: reliability before and after, calibrator curves, and oracle detection thresholds."""

from __future__ import annotations

import numpy as np

from saod_ray.report.records import CalibrationTables, Curve
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.calibrators import Calibrator
from saod_ray.score.evaluation import SplitEvaluation
from saod_ray.score.fit import detection_thresholds
from saod_ray.score.laece import laece, pooled_reliability, reliability
from saod_ray.score.lrp import mean_of_defined
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.split import SplitDetections
from saod_ray.score.statistics import Statistics

POINTS = 21  # of a calibrator's curve


def calibration_tables(
    evaluation: SplitEvaluation, raw: SplitDetections, benchmark: Benchmark, self_aware: SelfAware
) -> CalibrationTables:
    """Reliability per class and over all classes, LaECE before calibration, curves, and oracle thresholds."""
    before = statistics_before(evaluation, benchmark)
    paper = benchmark.settings.conventions == "paper"
    fitted = zip(benchmark.classes, self_aware.calibrators, self_aware.detection_thresholds, strict=True)
    return CalibrationTables(
        reliability={
            stage: {"": pooled_reliability(sums), **reliability(sums, benchmark.classes)}
            for stage, sums in (("before", before), ("after", evaluation.sums().statistics()))
        },
        laece_before=mean_of_defined(laece(before, paper)),
        curves={name: curve(function, float(v)) for name, function, v in fitted},
        oracle=_oracle(raw, benchmark),
    )


def statistics_before(evaluation: SplitEvaluation, benchmark: Benchmark) -> Statistics:
    """Statistics of the same detections, matched in the order of their raw scores.

    They are matched again because a falling calibrator reverses the order of the scores.
    """
    return evaluation.matched_raw(benchmark.store.description.severities).sums().statistics()


def curve(function: Calibrator | None, v: float) -> Curve:
    """A calibrator between its class's threshold `v` and 1; the identity for a class without a calibrator."""
    if np.isnan(v):
        return Curve([], [])
    score = np.linspace(max(v, 0.0), 1.0, POINTS)
    value = score if function is None else function(score)
    defined = ~np.isnan(value)
    return Curve(score[defined].tolist(), value[defined].tolist())


def _oracle(raw: SplitDetections, benchmark: Benchmark) -> dict[str, float | None]:
    """Per class, the threshold that is LRP-optimal on the ID images themselves (Fig. A.16)."""
    if benchmark.settings.detection_threshold != "lrp":
        return {}
    optimal = detection_thresholds(raw, benchmark.objects["id"], benchmark.settings)
    values = [None if np.isnan(v) or v < 0 else float(v) for v in optimal]
    return dict(zip(benchmark.classes, values, strict=True))
