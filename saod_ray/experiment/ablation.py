"""Tab. 7: LRP-optimal thresholds, calibration and the pseudo-OOD image threshold, switched on one by one."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.experiment.sweep import having
from saod_ray.report.table import COLUMNS, figure

WITHOUT = {"detection_threshold": "0.5", "calibrator": "none", "image_threshold": "tpr-0.95"}
WITH = {"detection_threshold": "lrp", "calibrator": "linear", "image_threshold": "pseudo-ood"}
SHOWN = {"lrp": "LRP-opt.", "tpr-0.95": "TPR 0.95", "pseudo-ood": "pseudo-OOD"}
MEASURES = [each for each in COLUMNS if each.title in ("DAQ", "BA", "LaECE", "LRP", "LaECE_T", "LRP_T")]


def steps() -> list[dict[str, str]]:
    """The settings of each row: from none of the features to all of them, one more each time."""
    return [WITHOUT | dict(list(WITH.items())[:many]) for many in range(len(WITH) + 1)]


def rows(desk: Desk) -> Iterator[Row | Remark]:
    """Four scorings a detector."""
    chosen, lacking = having(desk, desk.detectors, "val", "pseudo-ood", "id")
    yield from lacking
    for detector in chosen:
        for changes in steps():
            scored = desk.scored(detector, **changes)
            heads = (detector, *(SHOWN.get(text, text) for text in changes.values()))
            yield Row(heads, tuple(figure(scored, each.path) for each in MEASURES))


EXPERIMENT = Experiment(
    name="ablation",
    paper="Tab. 7",
    shows=(
        "Ablation study by removing: LRP-Optimal thresholding for v = 0.5; LR calibration for uncalibrated model; "
        "and image-level threshold u for the threshold corresponding to TPR = 0.95."
    ),
    needs="detections on val, pseudo-ood and id; DAQ also those on ood and on the corrupted images.",
    heads=("detector", "v", "calibrator", "u"),
    columns=tuple(Column(each.title, rising=each.rising) for each in MEASURES),
    rows=rows,
)
