"""Domain shift: metrics per severity, and per corruption and severity if the store records the corruptions."""

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
    """The metrics of one severity, while results.json has those over all severities. `raw` has all detections."""
    all_images = np.ones(len(evaluation.accepted), bool)
    row = _metrics(evaluation, raw, benchmark, all_images, evaluation.sums())
    return msgspec.structs.replace(row, split=evaluation.split)


def corruptions(
    evaluation: SplitEvaluation, raw: SplitDetections, benchmark: Benchmark, corruption: Sequence[str | None]
) -> list[ShiftResult]:
    """The metrics per corruption; empty if none is recorded, as in an import. `corruption` has one value per image."""
    names = sorted({name for name in corruption if name})
    if not names:
        return []
    groups = np.array([names.index(name) if name else -1 for name in corruption], np.int64)
    table = []
    for number, sums in enumerate(evaluation.sums_by(groups, len(names))):
        row = _metrics(evaluation, raw, benchmark, groups == number, sums)
        table.append(msgspec.structs.replace(row, corruption=names[number]))
    return table


def _metrics(
    evaluation: SplitEvaluation, raw: SplitDetections, benchmark: Benchmark, images: np.ndarray, sums: ClassSums
) -> ShiftResult:
    """Metrics over the images of a mask, (images,) bool, whose sums are given."""
    split_quality = quality(sums.statistics(), benchmark.settings)
    return ShiftResult(
        severity=SplitName(evaluation.split).severity,
        images=int(images.sum()),
        accepted=float(evaluation.accepted[images].mean()) if images.any() else None,
        ap=benchmark.accuracy_of(raw.on_images(images), evaluation.split).ap,
        **{name: getattr(split_quality, name) for name in METRICS},
    )
