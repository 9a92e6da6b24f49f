"""Detection thresholds of val against those that would have been optimal on the ID images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Outcome, Remark, Row, Spec, Value
from saod_ray.experiment.sweep import fitted_v, with_splits
from saod_ray.score.fit import detection_thresholds


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """A row a detector and class; undefined where a class has no objects, or none that was found."""
    chosen, lacking = with_splits(context, context.detectors, "val", "id")
    yield from lacking
    for detector in chosen:
        settings = context.under(detection_threshold="lrp").settings
        fitted = fitted_v(context, detector, settings)
        best = detection_thresholds(context.raw(detector, "id"), context.objects("id"), settings)
        for label, name in enumerate(context.classes):
            v, oracle = _defined(fitted[label]), _defined(best[label])
            gap = None if v is None or oracle is None else abs(v - oracle)
            yield Row((detector, name), (v, oracle, gap))


def _defined(threshold: float) -> float | None:
    return None if np.isnan(threshold) or threshold < 0 else float(threshold)


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """The two thresholds of each class, of the chosen detector."""
    from saod_ray.report import charts as drawn

    objects = context.objects("id").counts(np.arange(len(context.objects("id").image_ids))).tolist()
    count = dict(zip(context.classes, objects, strict=True))
    points: list[dict[str, Value | str]] = [
        {"detector": row.heads[0], "class": row.heads[1], "v": row.values[0], "oracle": row.values[1]}
        | {"objects": count[row.heads[1]]}
        for row in outcome.rows
        if None not in row.values
    ]
    caption = "Detection thresholds by class: on val, and what is optimal on ID"
    return {"oracle": drawn.oracle(points).properties(description=caption).to_dict()} if points else {}


EXPERIMENT = Experiment(
    name="oracle",
    paper="Fig. A.16",
    shows="Comparison of LRP-optimal thresholds obtained on val, as used by the self-aware detectors, and LRP-optimal "
    "thresholds obtained on ID as oracle thresholds.",
    needs="detections on val and id.",
    heads=("detector", "class"),
    columns=(Column("v on val", ""), Column("v on ID", ""), Column("difference", "", rising=False)),
    rows=rows,
    charts=charts,
)
