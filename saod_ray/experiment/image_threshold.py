"""Tab. A.12: how to choose the image-level threshold without OOD images."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Row
from saod_ray.score.metrics import built_in

RULES = {"TPR@0.95": "tpr-0.95", "pseudo-OOD": "pseudo-ood"}
METRICS = built_in("ood.ba", "ood.tpr", "ood.tnr")


def rows(context: ExperimentContext) -> Iterator[Row]:
    """Two rows per detector with detections on pseudo-OOD images."""
    for detector in context.detectors:
        if context.has_split(detector, "pseudo-ood"):
            for title, rule in RULES.items():
                result = context.result(detector, image_threshold=rule)
                yield Row((detector, title), tuple(metric.value(result) for metric in METRICS))


EXPERIMENT = Experiment(
    name="image-threshold",
    paper="Tab. A.12",
    shows="Two ways to set the image threshold u: on pseudo-OOD images, or so that 95 % of val is accepted.",
    needs="detections on val, pseudo-ood, id and ood.",
    headers=("detector", "method"),
    columns=tuple(Column(metric.title, "%", higher_is_better=True) for metric in METRICS),
    rows=rows,
)
