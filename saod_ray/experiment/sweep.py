"""What the sweeps share: detections are kept, matched and summed up once for as many settings as that holds for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Outcome, Remark, Spec
from saod_ray.score import thresholds
from saod_ray.score.daq import daq, quality
from saod_ray.score.evaluation import Calibrators, SplitEvaluation, evaluate
from saod_ray.score.fit import detection_thresholds, fit_calibrators
from saod_ray.score.objects import GroundTruth
from saod_ray.score.reducers import ClassSums, merge_sums
from saod_ray.score.results import SplitQuality
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.split import SplitDetections
from saod_ray.score.uncertainty import NO_DETECTION

Array = np.ndarray


@dataclass(frozen=True)
class SweepResult:
    """DAQ and its parts at one threshold; `_t` is domain shift."""

    daq: float | None
    ba: float | None
    idq: float | None
    laece: float | None
    lrp: float | None
    idq_t: float | None
    laece_t: float | None
    lrp_t: float | None


FIG_5 = (  # of its two halves
    Column("det/img", ""),
    Column("LaECE", rising=False),
    Column("AP", rising=True),
    Column("LRP", rising=False),
)


def with_splits(context: ExperimentContext, detectors: Sequence[str], *splits: str) -> tuple[list[str], list[Remark]]:
    """Those of the detectors that have detections on all of these splits, and a remark on each of the others."""
    missing = {name: [split for split in splits if not context.has(name, split)] for name in detectors}
    remarks = [
        Remark(f"{name} has no detections on {', '.join(lacking)}.") for name, lacking in missing.items() if lacking
    ]
    return [name for name, lacking in missing.items() if not lacking], remarks


def drawn_over_steps(outcome: Outcome, title: str, caption: str) -> dict[str, Spec]:
    """LaECE, AP and LRP of `FIG_5` over the second head of the rows, with det/img behind them."""
    from saod_ray.report import charts

    figures = [column.title for column in outcome.columns if column.unit == "%"]
    points = []
    for detector, step, values in ((*row.heads, row.values) for row in outcome.rows):
        of = dict(zip([column.title for column in outcome.columns], values, strict=True))
        points.append({"detector": detector, "x": step, "many": of["det/img"]})
        points += [{"detector": detector, "x": step, "figure": name, "value": of[name]} for name in figures]
    steps = list(dict.fromkeys(row.heads[1] for row in outcome.rows))
    chart = charts.curves(points, title, figures, steps)
    return {outcome.name: chart.properties(description=caption).to_dict()}


# detections of val or id, none of whose images is rejected ---------------------------------------------------------


def pseudo_id(context: ExperimentContext, detector: str) -> SplitDetections:
    """The raw detections on val's annotated images, which everything is fitted on."""
    return context.benchmark.pseudo_id(detector, context.raw(detector, "val"))


def fitted_v(context: ExperimentContext, detector: str, settings: ScoreSettings) -> Array:
    """The detection thresholds alone, for which no pseudo-OOD images are needed."""
    return detection_thresholds(pseudo_id(context, detector), context.objects("val"), settings)


def reaching(split: SplitDetections, v: Array) -> SplitDetections:
    """The detections that reach their class's threshold; NaN keeps none of a class."""
    return split.select(split.score >= v[split.label])


def evaluated(
    kept: SplitDetections, calibrators: Calibrators | None, truth: GroundTruth, settings: ScoreSettings
) -> SplitQuality:
    """LaECE, LRP and the rest of detections on ID images of which none is rejected."""
    return quality(evaluate("id", kept, truth, settings, calibrators=calibrators).sums().statistics(), settings)


# the benchmark over thresholds -------------------------------------------------------------------------------------


def over_image_thresholds(context: ExperimentContext, detector: str, values: Sequence[float]) -> list[SweepResult]:
    """The benchmark's metrics at each of these rising values of u.

    Neither v nor the calibrators depend on u, and an image is matched by itself: every split is matched once with
    nothing rejected, and each value adds the images that it is the first to accept.
    """
    fitted = context.aware(detector)
    at = [replace(fitted, image_threshold=u) for u in values]
    open_to_all = replace(fitted, image_threshold=np.inf)
    sums = [_growing(context.evaluation(detector, split, open_to_all), at) for split in _splits(context, detector)]
    ba = [_ba(context, detector, self_aware) for self_aware in at]
    return [_result(context, splits, ba[k]) for k, splits in enumerate(zip(*sums, strict=True))]


def _growing(evaluation: SplitEvaluation, at: Sequence[SelfAware]) -> list[ClassSums]:
    """The sums of a split at each threshold; `evaluation` rejects nothing that has a detection."""
    accepted = [self_aware.accepts(evaluation.uncertainty, evaluation.accepted) for self_aware in at]
    first = np.full(len(evaluation.accepted), -1)
    for number in reversed(range(len(at))):
        first[accepted[number]] = number
    out: list[ClassSums] = []
    for step, mask in zip(evaluation.sums_by(first, len(at)), accepted, strict=True):
        together = merge_sums([out[-1], step]) if out else step
        out.append(replace(together, objects=replace(evaluation, accepted=mask).object_counts()))
    return out


def over_detection_thresholds(context: ExperimentContext, detector: str, values: Sequence[float]) -> list[SweepResult]:
    """The benchmark's metrics with each of these rising values as v of all classes; u does not depend on v.

    Each value is matched again: a calibrator is fitted on what its v keeps, and calibrated scores decide the order of
    matching. But nothing is loaded again, and each value looks at what the one before kept.
    """
    fitted, annotated = context.aware(detector), pseudo_id(context, detector)
    at = [_with_one_v(context, fitted, annotated, v) for v in values]
    sums = [_shrinking(context, detector, split, at) for split in _splits(context, detector)]
    ba = _ba(context, detector, fitted)
    return [_result(context, splits, ba) for splits in zip(*sums, strict=True)]


def _with_one_v(context: ExperimentContext, fitted: SelfAware, annotated: SplitDetections, v: float) -> SelfAware:
    """The same u with another v, and with calibrators of what this v keeps."""
    truth, settings = context.objects("val"), context.settings
    everywhere = np.full(truth.classes, v)
    functions = fit_calibrators(annotated, truth, everywhere, settings, settings.tau)
    return replace(fitted, detection_thresholds=everywhere, calibrators=functions)


def _shrinking(context: ExperimentContext, detector: str, split: str, at: Sequence[SelfAware]) -> list[ClassSums]:
    evaluation = context.evaluation(detector, split, at[0])
    out = [evaluation.sums()]
    severities = context.store.description.severities
    for self_aware in at[1:]:
        evaluation = evaluate(
            split,
            reaching(evaluation.detections, self_aware.detection_thresholds),
            evaluation.truth,
            context.settings,
            calibrators=self_aware.calibrators,
            severities=severities,
            decisions=evaluation.decisions(),
        )
        out.append(evaluation.sums())
    return out


def _splits(context: ExperimentContext, detector: str) -> list[str]:
    return ["id", *context.shifted(detector)]


def _result(context: ExperimentContext, sums: Sequence[ClassSums], ba: float | None) -> SweepResult:
    """DAQ and its parts, from the sums of ID and of each severity, which are one evaluation."""
    settings, (clean, *shifted) = context.settings, sums
    own = quality(clean.statistics(), settings)
    shift = quality(merge_sums(shifted).statistics(), settings) if shifted else SplitQuality()
    parts = [ba, own.idq, shift.idq]
    overall = daq(parts if context.store.description.severities else parts[:2], settings.daq_weights)
    return SweepResult(overall, ba, own.idq, own.laece, own.lrp, shift.idq, shift.laece, shift.lrp)


def _ba(context: ExperimentContext, detector: str, self_aware: SelfAware) -> float | None:
    if not context.has(detector, "ood"):
        return None
    inside, outside = (context.uncertainty(detector, split)[1] for split in ("id", "ood"))
    if self_aware.settings.conventions == "official":
        return thresholds.balanced_accuracy(inside, outside, self_aware.image_threshold)["ba"]
    decided = [self_aware.accepts(values, values != NO_DETECTION) for values in (inside, outside)]
    return thresholds.decided_accuracy(*decided)["ba"]
