"""Entropy as the uncertainty of detectors whose classes have a sigmoid each."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.errors import join_truncated
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row

KINDS = {"average": "avg-entropy", "max class": "max-class-entropy", "categorical": "entropy"}


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """A row a sigmoid-based detector."""
    chosen = [name for name in context.detectors if set(KINDS.values()) <= set(context.kinds(name))]
    for detector in chosen:
        yield Row((detector,), tuple(context.auroc(detector, kind) for kind in KINDS.values()))
    others = [name for name in context.detectors if name not in chosen]
    if others:
        yield Remark(f"{join_truncated(others, 9)}: not sigmoid-based, or imported without these entropies.")


EXPERIMENT = Experiment(
    name="sigmoid-entropy",
    paper="Tab. A.9",
    shows="AUROC values for different variations of computing entropy as the uncertainty for sigmoid-based detectors: "
    "the average over the classes, of the maximum-scoring class, and of the categorical distribution after softmax.",
    needs="detections of a sigmoid-based detector (rs-rcnn, atss, d-detr) on id and ood.",
    columns=tuple(Column(title, "%", rising=True) for title in KINDS),
    rows=rows,
)
