"""Whether what makes a detector more accurate makes it more self-aware."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.detect import registry
from saod_ray.errors import some
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.score.metrics import built_in

STEPS = {  # each adds to the one before it
    "f-rcnn-short": "short training",
    "f-rcnn-single": "longer training",
    "f-rcnn": "several scales",
    "f-rcnn-large": "larger backbone",
    "f-rcnn-large-dcn": "deformable convolutions",
}
METRICS = built_in("daq", "ood.ba", "id.laece", "id.lrp", "shift.laece", "shift.lrp", "accuracy.id.ap")


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """A row for each of the steps that the store holds."""
    for detector, step in STEPS.items():
        if detector in context.detectors:
            result = context.scored(detector)
            yield Row((detector, step), tuple(metric.value(result) for metric in METRICS))
    use_case = context.store.description.name
    known = {entry.name for entry in registry.all_entries(use_case)} if use_case in registry.use_cases() else set(STEPS)
    others = [name for name in STEPS if name in known and name not in context.detectors]
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
    columns=tuple(
        Column("AP" if metric.title == "AP id" else metric.title, "%", rising=metric.is_higher_better)
        for metric in METRICS
    ),
    rows=rows,
)
