"""Fig. A.13: LaECE and LRP over the IoU at which a detection counts as found, for one set of detections."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import fitted_v, having, judged, pseudo_id, reaching
from saod_ray.selfaware import FIT_TAU, calibrated, fit_calibrators

TAUS = tuple(k / 10 for k in range(10))


def rows(desk: Desk) -> Iterator[Row | Remark]:
    """A row a detector and tau. v is that of tau 0.1 throughout, and no image is rejected.

    What is found at one tau does not follow from another: at a smaller one a detection may take the object that a
    later one takes otherwise. So each tau is matched, but nothing is loaded or thresholded again.
    """
    chosen, lacking = having(desk, desk.detectors, "val", "id")
    yield from lacking
    for detector in chosen:
        v = fitted_v(desk, detector, desk.under(tau=FIT_TAU).settings)
        known, kept = pseudo_id(desk, detector), reaching(desk.raw(detector, "id"), v)
        for tau in TAUS:
            settings = desk.under(tau=tau).settings
            functions = fit_calibrators(known, desk.objects("val"), v, settings, tau)
            before = judged(kept, desk.objects("id"), settings)
            after = judged(calibrated(kept, functions), desk.objects("id"), settings)
            yield Row((detector, f"{tau:.1f}"), (before["laece"], after["laece"], after["lrp"]))


def charts(desk: Desk, outcome: Outcome) -> dict[str, Spec]:
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
