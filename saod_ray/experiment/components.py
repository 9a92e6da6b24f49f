"""Tab. 6 and A.16: DAQ, its parts, and the components of LRP."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Row
from saod_ray.score.metrics import built_in

QUALITY = ("idq", "laece", "lrp", "lrp_loc", "lrp_fp", "lrp_fn")
METRICS = built_in(
    "daq", "ood.ba", "ood.tpr", "ood.tnr", *(f"{part}.{name}" for part in ("id", "shift") for name in QUALITY)
)


def rows(context: ExperimentContext) -> Iterator[Row]:
    """One row per detector."""
    for detector in context.detectors:
        result = context.result(detector)
        yield Row((detector,), tuple(metric.value(result) for metric in METRICS))


EXPERIMENT = Experiment(
    name="components",
    paper="Tab. 6 and A.16",
    shows="The main table with LRP split into its parts: mean 1 - IoU of true positives (Loc), 1 - precision (FP) and "
    "1 - recall (FN). _T is under corruption.",
    needs="detections on val, pseudo-ood, id, its corrupted versions and ood.",
    columns=tuple(Column(metric.title, "%", higher_is_better=metric.is_higher_better) for metric in METRICS),
    rows=rows,
)
