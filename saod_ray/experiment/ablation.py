"""Tab. 7: LRP-optimal thresholds, calibration and the pseudo-OOD image threshold, enabled one by one."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.experiment.sweep import with_splits
from saod_ray.score.metrics import built_in

WITHOUT = {"detection_threshold": "0.5", "calibrator": "none", "image_threshold": "tpr-0.95"}
WITH = {"detection_threshold": "lrp", "calibrator": "linear", "image_threshold": "pseudo-ood"}
TITLES = {"lrp": "LRP-opt.", "tpr-0.95": "TPR 0.95", "pseudo-ood": "pseudo-OOD"}
METRICS = built_in("daq", "ood.ba", "id.laece", "id.lrp", "shift.laece", "shift.lrp")


def steps() -> list[dict[str, str]]:
    """The settings of each row: from none of the features to all of them, adding one per row."""
    return [WITHOUT | dict(list(WITH.items())[:enabled]) for enabled in range(len(WITH) + 1)]


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """Four rows per detector, each of them a scoring."""
    detectors, remarks = with_splits(context, context.detectors, "val", "pseudo-ood", "id")
    yield from remarks
    for detector in detectors:
        for changes in steps():
            result = context.result(detector, **changes)
            headers = (detector, *(TITLES.get(text, text) for text in changes.values()))
            yield Row(headers, tuple(metric.value(result) for metric in METRICS))


EXPERIMENT = Experiment(
    name="ablation",
    paper="Tab. 7",
    shows=(
        "How much each part of the recipe contributes: LRP-optimal thresholds v against v = 0.5, linear regression "
        "against no calibration, and u from pseudo-OOD images against u that accepts 95 % of val."
    ),
    needs="detections on val, pseudo-ood and id; for DAQ, also on ood and on the corrupted images.",
    headers=("detector", "v", "calibrator", "u"),
    columns=tuple(Column(metric.title, higher_is_better=metric.is_higher_better) for metric in METRICS),
    rows=rows,
)
