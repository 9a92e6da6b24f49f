"""Whether what makes a detector more accurate makes it more self-aware."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.detect import registry
from saod_ray.errors import some
from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.report.table import figure

STEPS = {  # each adds to the one before it
    "f-rcnn-short": "short training",
    "f-rcnn-single": "longer training",
    "f-rcnn": "several scales",
    "f-rcnn-large": "larger backbone",
    "f-rcnn-large-dcn": "deformable convolutions",
}
PATHS: dict[str, tuple[str, ...]] = {
    "DAQ": ("daq",),
    "BA": ("ood", "ba"),
    "LaECE": ("id", "laece"),
    "LRP": ("id", "lrp"),
    "LaECE_T": ("shift", "laece"),
    "LRP_T": ("shift", "lrp"),
    "AP": ("accuracy", "id", "ap"),
}
RISING = ("DAQ", "BA", "AP")


def rows(desk: Desk) -> Iterator[Row | Remark]:
    """A row for each of the steps that the store holds."""
    for detector, step in STEPS.items():
        if detector in desk.detectors:
            found = desk.scored(detector)
            yield Row((detector, step), tuple(figure(found, path) for path in PATHS.values()))
    use_case = desk.store.description.name
    known = {entry.name for entry in registry.every(use_case)} if use_case in registry.use_cases() else set(STEPS)
    others = [name for name in STEPS if name in known and name not in desk.detectors]
    if others:
        yield Remark(
            f"Not in the store, or not asked for: {some(others, 9)}. `saod-ray run --detectors NAME` adds one."
        )


EXPERIMENT = Experiment(
    name="improvements",
    paper="Tab. A.15",
    shows="Effect of common improvements (epochs, multi-scale training, stronger backbones) on F-RCNN; AP is on ID.",
    needs="f-rcnn and its variants: `saod-ray run --detectors f-rcnn-short,f-rcnn-single,f-rcnn,f-rcnn-large`.",
    heads=("detector", "adds"),
    columns=tuple(Column(title, "%", rising=title in RISING) for title in PATHS),
    rows=rows,
)
