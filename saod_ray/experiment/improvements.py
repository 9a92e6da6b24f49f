"""Tab. A.15: whether common improvements in accuracy also improve self-awareness."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.detect import registry
from saod_ray.errors import join_truncated
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.score.metrics import built_in

STEPS = {  # cumulative: each adds to the one before
    "f-rcnn-short": "short training",
    "f-rcnn-single": "longer training",
    "f-rcnn": "several scales",
    "f-rcnn-large": "larger backbone",
    "f-rcnn-large-dcn": "deformable convolutions",
}
METRICS = built_in("daq", "ood.ba", "id.laece", "id.lrp", "shift.laece", "shift.lrp", "accuracy.id.ap")


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """One row per step whose detector is in the store."""
    for detector, step in STEPS.items():
        if detector in context.detectors:
            result = context.result(detector)
            yield Row((detector, step), tuple(metric.value(result) for metric in METRICS))
    use_case = context.store.description.name
    available = (
        {entry.name for entry in registry.all_entries(use_case)} if use_case in registry.use_cases() else set(STEPS)
    )
    missing = [name for name in STEPS if name in available and name not in context.detectors]
    if missing:
        yield Remark(
            f"Not in the store, or not selected: {join_truncated(missing, 9)}. `saod-ray run --detectors NAME` adds one."
        )


EXPERIMENT = Experiment(
    name="improvements",
    paper="Tab. A.15",
    shows="What longer training, training at many scales and stronger backbones do for F-RCNN. AP is on ID.",
    needs="f-rcnn and its variants: `saod-ray run --detectors f-rcnn-short,f-rcnn-single,f-rcnn,f-rcnn-large`.",
    headers=("detector", "adds"),
    columns=tuple(
        Column("AP" if metric.title == "AP id" else metric.title, "%", higher_is_better=metric.is_higher_better)
        for metric in METRICS
    ),
    rows=rows,
)
