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

    Each step accepts about as many images more, whatever the uncertainty's scale.
    """
    there = [context.uncertainty(detector, split)[1] for split in ("id", "ood") if context.has(detector, split)]
    values = np.concatenate(there)
    known = values[values != NO_DETECTION]
    return [float(u) for u in np.quantile(known, np.linspace(0, 1, STEPS))] if len(known) else []


def detection_thresholds() -> list[float]:
    """Evenly from 0 to 1."""
    return [k / (STEPS - 1) for k in range(STEPS)]


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """For each detector the values of u with its fitted v, then those of v with its fitted u."""
    chosen, lacking = with_splits(context, context.detectors, *context.benchmark.fit_splits(), "id")
    yield from lacking
    for detector in chosen:
        values = image_thresholds(context, detector)
        for k, (u, found) in enumerate(zip(values, over_image_thresholds(context, detector, values), strict=True)):
            yield _row((detector, "u", f"{100 * k / (STEPS - 1):.0f} %"), u, found)
        values = detection_thresholds()
        for v, found in zip(values, over_detection_thresholds(context, detector, values), strict=True):
            yield _row((detector, "v", f"{v:.2f}"), v, found)


def _row(heads: tuple[str, ...], at: float, found: SweepResult) -> Row:
    return Row(heads, (at, *(getattr(found, name) for name in METRICS.values())))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """A chart over u and one over v, of the chosen detector."""
    from saod_ray.report import charts as drawn

    titles = {"u": "image-level uncertainty threshold", "v": "detection confidence threshold"}
    out = {}
    for name, title in titles.items():
        points = [
            {"detector": row.heads[0], "x": row.values[0], "figure": figure, "value": value}
            for row in outcome.rows
            if row.heads[1] == name
            for figure, value in zip(METRICS, row.values[1:], strict=True)
        ]
        chart = drawn.curves(points, title, list(METRICS))
        out[f"thresholds-{name}"] = chart.properties(description=f"The effect of the {title}").to_dict()
    return out


EXPERIMENT = Experiment(
    name="thresholds",
    paper="Fig. A.15",
    shows=(
        "The effect of image- and detection-level thresholds. For the sake of analysis simplicity, a single confidence "
        "score threshold v is used instead of the class-wise approach when v varies."
    ),
    needs="detections on val, pseudo-ood and id; DAQ also those on ood and on the corrupted images.",
    heads=("detector", "threshold", "step"),
    columns=(Column("value", ""), *(Column(title, rising=title in ("DAQ", "BA")) for title in METRICS)),
    rows=rows,
    charts=charts,
)
