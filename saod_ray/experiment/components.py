"""Everything DAQ is made of, with the components of LRP."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Experiment, Row
from saod_ray.report.table import figure

OOD = {"BA": ("ood", "ba"), "TPR": ("ood", "tpr"), "TNR": ("ood", "tnr")}
QUALITY = {"IDQ": "idq", "LaECE": "laece", "LRP": "lrp", "Loc": "lrp_loc", "FP": "lrp_fp", "FN": "lrp_fn"}
PATHS: dict[str, tuple[str, ...]] = {
    "DAQ": ("daq",),
    **OOD,
    **{title: ("id", key) for title, key in QUALITY.items()},
    **{f"{title}_T": ("shift", key) for title, key in QUALITY.items()},
}
RISING = ("DAQ", *OOD, "IDQ", "IDQ_T")


def rows(desk: Desk) -> Iterator[Row]:
    """A row a detector."""
    for detector in desk.detectors:
        found = desk.scored(detector)
        yield Row((detector,), tuple(figure(found, path) for path in PATHS.values()))


EXPERIMENT = Experiment(
    name="components",
    paper="Tab. 6 and A.16",
    shows="Evaluating self-aware object detectors, with the components of the LRP error: Loc, FP and FN are the average "
    "1 - IoU of TPs, 1 - precision and 1 - recall; _T is domain shift.",
    needs="detections on val, pseudo-ood, id, its corrupted versions and ood.",
    columns=tuple(Column(title, "%", rising=title in RISING) for title in PATHS),
    rows=rows,
)
