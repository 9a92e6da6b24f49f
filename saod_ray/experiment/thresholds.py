"""Fig. A.15: DAQ and its parts over the image threshold u, and over one detection threshold v for all classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import SweepResult, over_detection_thresholds, over_image_thresholds, with_splits
from saod_ray.score.uncertainty import NO_DETECTION

STEPS = 21
METRICS = {
    "DAQ": "daq",
    "BA": "ba",
    "LaECE": "laece",
    "LRP": "lrp",
    "LaECE_T": "laece_t",
    "LRP_T": "lrp_t",
}


def image_thresholds(context: ExperimentContext, detector: str) -> list[float]:
    """Quantiles of the uncertainty of ID and OOD images, from the smallest value to the largest.

    Each step accepts about the same number of additional images, whatever the scale of the uncertainty.
    """
    per_split = [
        context.uncertainty(detector, split)[1] for split in ("id", "ood") if context.has_split(detector, split)
    ]
    values = np.concatenate(per_split)
    detected = values[values != NO_DETECTION]
    return [float(u) for u in np.quantile(detected, np.linspace(0, 1, STEPS))] if len(detected) else []


def detection_thresholds() -> list[float]:
    """`STEPS` evenly spaced values from 0 to 1."""
    return [k / (STEPS - 1) for k in range(STEPS)]


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """Per detector, the values of u with the fitted v, then the values of v with the fitted u."""
    detectors, remarks = with_splits(context, context.detectors, *context.benchmark.fit_splits(), "id")
    yield from remarks
    for detector in detectors:
        values = image_thresholds(context, detector)
        results = over_image_thresholds(context, detector, values)
        for k, (u, result) in enumerate(zip(values, results, strict=True)):
            yield _row((detector, "u", f"{100 * k / (STEPS - 1):.0f} %"), u, result)
        values = detection_thresholds()
        for v, result in zip(values, over_detection_thresholds(context, detector, values), strict=True):
            yield _row((detector, "v", f"{v:.2f}"), v, result)


def _row(headers: tuple[str, ...], threshold: float, result: SweepResult) -> Row:
    return Row(headers, (threshold, *(getattr(result, name) for name in METRICS.values())))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """One chart over u and one over v, for the selected detector."""
    from saod_ray.report import charts as report_charts

    titles = {"u": "image-level uncertainty threshold", "v": "detection confidence threshold"}
    specs = {}
    for name, title in titles.items():
        points = [
            {"detector": row.headers[0], "x": row.values[0], "metric": metric, "value": value}
            for row in outcome.rows
            if row.headers[1] == name
            for metric, value in zip(METRICS, row.values[1:], strict=True)
        ]
        chart = report_charts.curves(points, title, list(METRICS))
        specs[f"thresholds-{name}"] = chart.properties(description=f"The effect of the {title}").to_dict()
    return specs


EXPERIMENT = Experiment(
    name="thresholds",
    paper="Fig. A.15",
    shows=(
        "How DAQ and its parts react when one threshold moves and everything else stays: u for images, or v for "
        "detections. While v moves, all classes share it."
    ),
    needs="detections on val, pseudo-ood and id; for DAQ, also on ood and on the corrupted images.",
    headers=("detector", "threshold", "step"),
    columns=(Column("value", ""), *(Column(title, higher_is_better=title in ("DAQ", "BA")) for title in METRICS)),
    rows=rows,
    charts=charts,
)
