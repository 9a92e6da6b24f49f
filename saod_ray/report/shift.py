"""Domain shift: metrics by severity, and by corruption and severity, which only a recorded draw makes possible."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from saod_ray.report.records import ShiftResult
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.daq import quality
from saod_ray.score.evaluation import SplitEvaluation
from saod_ray.score.reducers import ClassSums
from saod_ray.score.split import SplitDetections
from saod_ray.splits import SplitName

METRICS = ("laece", "lrp", "lrp_loc", "lrp_fp", "lrp_fn", "idq")


def severity(evaluation: SplitEvaluation, raw: SplitDetections, benchmark: Benchmark) -> ShiftResult:
    """The metrics of one severity; results.json has those of all severities together. `raw` are all detections."""
    everything = np.ones(len(evaluation.accepted), bool)
    row = _metrics(evaluation, raw, benchmark, everything, evaluation.sums())
    return msgspec.structs.replace(row, split=evaluation.split)


def corruptions(
    evaluation: SplitEvaluation, raw: SplitDetections, benchmark: Benchmark, drawn: Sequence[str | None]
) -> list[ShiftResult]:
    """The metrics over the images that drew each corruption; nothing where no draw is recorded (an import)."""
    names = sorted({name for name in drawn if name})
    if not names:
        return []
    groups = np.array([names.index(name) if name else -1 for name in drawn], np.int64)
    table = []
    for number, sums in enumerate(evaluation.sums_by(groups, len(names))):
        row = _metrics(evaluation, raw, benchmark, groups == number, sums)
        table.append(msgspec.structs.replace(row, corruption=names[number]))
    return table


def _metrics(
    evaluation: SplitEvaluation, raw: SplitDetections, benchmark: Benchmark, chosen: np.ndarray, sums: ClassSums
) -> ShiftResult:
    own = quality(sums.statistics(), benchmark.settings)
    return ShiftResult(
        severity=SplitName(evaluation.split).severity,
        images=int(chosen.sum()),
        accepted=float(evaluation.accepted[chosen].mean()) if chosen.any() else None,
        ap=benchmark.accuracy_of(raw.on_images(chosen), evaluation.split).ap,
        **{name: getattr(own, name) for name in METRICS},
    )
