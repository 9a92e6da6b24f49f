"""Fig. A.13: LaECE and LRP over tau, the IoU from which a detection is a true positive, for fixed detections."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import (
    above_thresholds,
    evaluate_quality,
    fit_detection_thresholds,
    pseudo_id,
    with_splits,
)
from saod_ray.score.fit import FIT_TAU, fit_calibrators

TAUS = tuple(k / 10 for k in range(10))


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """One row per detector and tau. The thresholds v are those of tau 0.1, and no image is rejected.

    Each tau is matched separately, since the matches of one tau do not follow from those of another. Detections are
    loaded and thresholded once.
    """
    detectors, remarks = with_splits(context, context.detectors, "val", "id")
    yield from remarks
    for detector in detectors:
        v = fit_detection_thresholds(context, detector, context.benchmark_with(tau=FIT_TAU).settings)
        fitted_on, selected = pseudo_id(context, detector), above_thresholds(context.raw_detections(detector, "id"), v)
        for tau in TAUS:
            settings = context.benchmark_with(tau=tau).settings
            functions = fit_calibrators(fitted_on, context.ground_truth("val"), v, settings, tau)
            before = evaluate_quality(selected, None, context.ground_truth("id"), settings)
            after = evaluate_quality(selected, functions, context.ground_truth("id"), settings)
            yield Row((detector, f"{tau:.1f}"), (before.laece, after.laece, after.lrp))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """Both panels of Fig. A.13 for the selected detector."""
    from saod_ray.report import charts as report_charts

    metrics = [column.title for column in outcome.columns]
    points = [
        {"detector": row.headers[0], "x": float(row.headers[1]), "metric": name, "value": value}
        for row in outcome.rows
        for name, value in zip(metrics, row.values, strict=True)
    ]
    caption = "Sensitivity of LaECE and of LRP Error to tau"
    return {"tau": report_charts.curves(points, "tau", metrics).properties(description=caption).to_dict()}


EXPERIMENT = Experiment(
    name="tau",
    paper="Fig. A.13",
    shows=(
        "Sensitivity analysis of LaECE and LRP Error to the TP validation threshold tau, for both the calibrated and "
        "uncalibrated case, with v obtained from tau = 0.10."
    ),
    needs="detections on val and id.",
    headers=("detector", "tau"),
    columns=(
        Column("LaECE uncalibrated", higher_is_better=False),
        Column("LaECE calibrated", higher_is_better=False),
        Column("LRP", higher_is_better=False),
    ),
    rows=rows,
    charts=charts,
)
