"""Fig. A.16: detection thresholds fitted on val against those that are optimal on the ID images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Outcome, Remark, Row, Spec, Value
from saod_ray.experiment.sweep import fit_detection_thresholds, with_splits
from saod_ray.score.fit import detection_thresholds


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """One row per detector and class; undefined for a class without true positives."""
    detectors, remarks = with_splits(context, context.detectors, "val", "id")
    yield from remarks
    for detector in detectors:
        settings = context.benchmark_with(detection_threshold="lrp").settings
        fitted = fit_detection_thresholds(context, detector, settings)
        optimal = detection_thresholds(context.raw_detections(detector, "id"), context.ground_truth("id"), settings)
        for label, name in enumerate(context.classes):
            v, oracle = _defined(fitted[label]), _defined(optimal[label])
            gap = None if v is None or oracle is None else abs(v - oracle)
            yield Row((detector, name), (v, oracle, gap))


def _defined(threshold: float) -> float | None:
    """A threshold, or None if its class has none (NaN) or keeps everything (negative)."""
    return None if np.isnan(threshold) or threshold < 0 else float(threshold)


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """Both thresholds of each class, for the selected detector."""
    from saod_ray.report import charts as report_charts

    objects = context.ground_truth("id").counts(np.arange(len(context.ground_truth("id").image_ids))).tolist()
    count = dict(zip(context.classes, objects, strict=True))
    points: list[dict[str, Value | str]] = [
        {"detector": row.headers[0], "class": row.headers[1], "v": row.values[0], "oracle": row.values[1]}
        | {"objects": count[row.headers[1]]}
        for row in outcome.rows
        if None not in row.values
    ]
    caption = "Detection thresholds per class: fitted on val, and optimal on ID"
    return {"oracle": report_charts.oracle(points).properties(description=caption).to_dict()} if points else {}


EXPERIMENT = Experiment(
    name="oracle",
    paper="Fig. A.16",
    shows="How far the LRP-optimal thresholds fitted on val, which self-aware detectors use, are from the best ones for ID, "
    "which only an oracle knows.",
    needs="detections on val and id.",
    headers=("detector", "class"),
    columns=(Column("v on val", ""), Column("v on ID", ""), Column("difference", "", higher_is_better=False)),
    rows=rows,
    charts=charts,
)
