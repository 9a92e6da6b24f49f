"""Fig. A.13: LaECE and LRP over the IoU at which a detection counts as found, for one set of detections."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import evaluated, fitted_v, pseudo_id, reaching, with_splits
from saod_ray.score.fit import FIT_TAU, fit_calibrators

TAUS = tuple(k / 10 for k in range(10))


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """A row a detector and tau. v is that of tau 0.1 throughout, and no image is rejected.

    What is found at one tau does not follow from another: at a smaller one a detection may take the object that a
    later one takes otherwise. So each tau is matched, but nothing is loaded or thresholded again.
    """
    chosen, lacking = with_splits(context, context.detectors, "val", "id")
    yield from lacking
    for detector in chosen:
        v = fitted_v(context, detector, context.under(tau=FIT_TAU).settings)
        known, kept = pseudo_id(context, detector), reaching(context.raw(detector, "id"), v)
        for tau in TAUS:
            settings = context.under(tau=tau).settings
            functions = fit_calibrators(known, context.objects("val"), v, settings, tau)
            before = evaluated(kept, None, context.objects("id"), settings)
            after = evaluated(kept, functions, context.objects("id"), settings)
            yield Row((detector, f"{tau:.1f}"), (before.laece, after.laece, after.lrp))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """Both halves of the figure, of the chosen detector."""
    from saod_ray.report import charts as drawn

    figures = [column.title for column in outcome.columns]
    points = [
        {"detector": row.heads[0], "x": float(row.heads[1]), "figure": name, "value": value}
        for row in outcome.rows
        for name, value in zip(figures, row.values, strict=True)
    ]
    caption = "Sensitivity of LaECE and of LRP Error to tau"
    return {"tau": drawn.curves(points, "tau", figures).properties(description=caption).to_dict()}


EXPERIMENT = Experiment(
    name="tau",
    paper="Fig. A.13",
    shows=(
        "Sensitivity analysis of LaECE and LRP Error to the TP validation threshold tau, for both the calibrated and "
        "uncalibrated case, with v obtained from tau = 0.10."
    ),
    needs="detections on val and id.",
    heads=("detector", "tau"),
    columns=(
        Column("LaECE uncalibrated", rising=False),
        Column("LaECE calibrated", rising=False),
        Column("LRP", rising=False),
    ),
    rows=rows,
    charts=charts,
)
