"""Sweeps over settings: detections are loaded, matched and summed once for as many settings as possible."""

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
    """DAQ and its parts at one threshold; `_t` stands for domain shift."""

    daq: float | None
    ba: float | None
    idq: float | None
    laece: float | None
    lrp: float | None
    idq_t: float | None
    laece_t: float | None
    lrp_t: float | None


FIG_5 = (  # the columns of both panels
    Column("det/img", ""),
    Column("LaECE", higher_is_better=False),
    Column("AP", higher_is_better=True),
    Column("LRP", higher_is_better=False),
)


def with_splits(context: ExperimentContext, detectors: Sequence[str], *splits: str) -> tuple[list[str], list[Remark]]:
    """The detectors with detections on all of these splits, and a remark on each of the others."""
    missing = {name: [split for split in splits if not context.has_split(name, split)] for name in detectors}
    remarks = [
        Remark(f"{name} has no detections on {', '.join(lacking)}.") for name, lacking in missing.items() if lacking
    ]
    return [name for name, lacking in missing.items() if not lacking], remarks


def step_charts(outcome: Outcome, title: str, caption: str) -> dict[str, Spec]:
    """A chart of the metrics of `FIG_5` over the second row header, with det/img as bars behind the lines."""
    from saod_ray.report import charts

    metrics = [column.title for column in outcome.columns if column.unit == "%"]
    points = []
    for detector, step, values in ((*row.headers, row.values) for row in outcome.rows):
        by_title = dict(zip([column.title for column in outcome.columns], values, strict=True))
        points.append({"detector": detector, "x": step, "per_image": by_title["det/img"]})
        points += [{"detector": detector, "x": step, "metric": name, "value": by_title[name]} for name in metrics]
    steps = list(dict.fromkeys(row.headers[1] for row in outcome.rows))
    chart = charts.curves(points, title, metrics, steps)
    return {outcome.name: chart.properties(description=caption).to_dict()}


# detections on val or id without rejected images ---------------------------------------------------------------


def pseudo_id(context: ExperimentContext, detector: str) -> SplitDetections:
    """The raw detections on val's annotated images, on which thresholds and calibrators are fitted."""
    return context.benchmark.pseudo_id(detector, context.raw_detections(detector, "val"))


def fit_detection_thresholds(context: ExperimentContext, detector: str, settings: ScoreSettings) -> Array:
    """The detection thresholds v, (classes,) float64; unlike u they do not need pseudo-OOD images."""
    return detection_thresholds(pseudo_id(context, detector), context.ground_truth("val"), settings)


def above_thresholds(split: SplitDetections, v: Array) -> SplitDetections:
    """The detections with at least the threshold `v` of their class; NaN drops the whole class."""
    return split.select(split.score >= v[split.label])


def evaluate_quality(
    detections: SplitDetections, calibrators: Calibrators | None, truth: GroundTruth, settings: ScoreSettings
) -> SplitQuality:
    """LaECE, LRP and IDQ of detections on ID images, none of which is rejected."""
    return quality(evaluate("id", detections, truth, settings, calibrators=calibrators).sums().statistics(), settings)


# the benchmark over thresholds -------------------------------------------------------------------------------------


def over_image_thresholds(context: ExperimentContext, detector: str, values: Sequence[float]) -> list[SweepResult]:
    """The benchmark's metrics at each of these ascending values of u.

    Neither v nor the calibrators depend on u, and images are matched independently. So each split is matched once
    without rejecting images, and each value of u adds the images that it is the first to accept.
    """
    fitted = context.self_aware(detector)
    steps = [replace(fitted, image_threshold=u) for u in values]
    accept_all = replace(fitted, image_threshold=np.inf)
    evaluations = [context.evaluation(detector, split, accept_all) for split in _splits(context, detector)]
    sums = [_cumulative_sums(evaluation, steps) for evaluation in evaluations]
    ba = [_balanced_accuracy(context, detector, self_aware) for self_aware in steps]
    return [_result(context, splits, ba[k]) for k, splits in enumerate(zip(*sums, strict=True))]


def _cumulative_sums(evaluation: SplitEvaluation, steps: Sequence[SelfAware]) -> list[ClassSums]:
    """The sums of a split at each image threshold; `evaluation` accepts every image with a detection."""
    accepted = [self_aware.accepts(evaluation.uncertainty, evaluation.accepted) for self_aware in steps]
    first_step = np.full(len(evaluation.accepted), -1)
    for number in reversed(range(len(steps))):
        first_step[accepted[number]] = number
    cumulative: list[ClassSums] = []
    for added, mask in zip(evaluation.sums_by(first_step, len(steps)), accepted, strict=True):
        total = merge_sums([cumulative[-1], added]) if cumulative else added
        cumulative.append(replace(total, objects=replace(evaluation, accepted=mask).object_counts()))
    return cumulative


def over_detection_thresholds(context: ExperimentContext, detector: str, values: Sequence[float]) -> list[SweepResult]:
    """The benchmark's metrics with each of these ascending values as v of all classes; u does not depend on v.

    Each value is matched separately, because calibrators are fitted on the detections above v and calibrated scores
    determine the order of matching. Detections are loaded once, and each value filters those of the one before.
    """
    fitted, annotated = context.self_aware(detector), pseudo_id(context, detector)
    steps = [_with_uniform_threshold(context, fitted, annotated, v) for v in values]
    sums = [_sums_per_step(context, detector, split, steps) for split in _splits(context, detector)]
    ba = _balanced_accuracy(context, detector, fitted)
    return [_result(context, splits, ba) for splits in zip(*sums, strict=True)]


def _with_uniform_threshold(
    context: ExperimentContext, fitted: SelfAware, annotated: SplitDetections, v: float
) -> SelfAware:
    """The same u, with `v` as the threshold of all classes and with calibrators fitted on the detections above it."""
    truth, settings = context.ground_truth("val"), context.settings
    v_per_class = np.full(truth.classes, v)
    functions = fit_calibrators(annotated, truth, v_per_class, settings, settings.tau)
    return replace(fitted, detection_thresholds=v_per_class, calibrators=functions)


def _sums_per_step(
    context: ExperimentContext, detector: str, split: str, steps: Sequence[SelfAware]
) -> list[ClassSums]:
    """The sums of a split for self-aware detectors with ascending detection thresholds."""
    evaluation = context.evaluation(detector, split, steps[0])
    sums = [evaluation.sums()]
    severities = context.store.description.severities
    for self_aware in steps[1:]:
        evaluation = evaluate(
            split,
            above_thresholds(evaluation.detections, self_aware.detection_thresholds),
            evaluation.truth,
            context.settings,
            calibrators=self_aware.calibrators,
            severities=severities,
            decisions=evaluation.decisions(),
        )
        sums.append(evaluation.sums())
    return sums


def _splits(context: ExperimentContext, detector: str) -> list[str]:
    return ["id", *context.shifted_splits(detector)]


def _result(context: ExperimentContext, sums: Sequence[ClassSums], ba: float | None) -> SweepResult:
    """DAQ and its parts from the sums of ID and of each severity; all severities are evaluated together."""
    settings, (clean, *shifted) = context.settings, sums
    on_id = quality(clean.statistics(), settings)
    shift = quality(merge_sums(shifted).statistics(), settings) if shifted else SplitQuality()
    parts = [ba, on_id.idq, shift.idq]
    overall = daq(parts if context.store.description.severities else parts[:2], settings.daq_weights)
    return SweepResult(overall, ba, on_id.idq, on_id.laece, on_id.lrp, shift.idq, shift.laece, shift.lrp)


def _balanced_accuracy(context: ExperimentContext, detector: str, self_aware: SelfAware) -> float | None:
    if not context.has_split(detector, "ood"):
        return None
    inside, outside = (context.uncertainty(detector, split)[1] for split in ("id", "ood"))
    if self_aware.settings.conventions == "official":
        return thresholds.balanced_accuracy(inside, outside, self_aware.image_threshold)["ba"]
    decided = [self_aware.accepts(values, values != NO_DETECTION) for values in (inside, outside)]
    return thresholds.decided_accuracy(*decided)["ba"]
