"""Tab. A.9: ways to compute the entropy of detectors with one sigmoid per class."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.errors import join_truncated
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row

KINDS = {"average": "avg-entropy", "max class": "max-class-entropy", "categorical": "entropy"}


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """One row per sigmoid-based detector."""
    sigmoid_based = [name for name in context.detectors if set(KINDS.values()) <= set(context.uncertainty_kinds(name))]
    for detector in sigmoid_based:
        yield Row((detector,), tuple(context.auroc(detector, kind) for kind in KINDS.values()))
    unsuitable = [name for name in context.detectors if name not in sigmoid_based]
    if unsuitable:
        yield Remark(f"{join_truncated(unsuitable, 9)}: not sigmoid-based, or imported without these entropies.")


EXPERIMENT = Experiment(
    name="sigmoid-entropy",
    paper="Tab. A.9",
    shows="Three entropies of detectors with one sigmoid per class, by AUROC of ID against OOD: the mean over classes, "
    "that of the class with the highest score, and that of the softmax over classes.",
    needs="detections of a sigmoid-based detector (rs-rcnn, atss, d-detr) on id and ood.",
    columns=tuple(Column(title, "%", higher_is_better=True) for title in KINDS),
    rows=rows,
)
