"""Tab. 4: AUROC on near and far OOD images."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment import paper
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Row


def _subsets(context: ExperimentContext) -> list[str]:
    """From near to far: in the paper's order, and in the order of the use case file for other use cases."""
    in_paper = paper.columns("ood-subsets", context.store.description.name)
    return sorted(context.subsets, key=lambda name: in_paper.index(name) if name in in_paper else len(in_paper))


def columns(context: ExperimentContext) -> tuple[Column, ...]:
    """One column per subset, and one for all of them."""
    return tuple(Column(name, "%", higher_is_better=True) for name in [*_subsets(context), "all OOD"])


def rows(context: ExperimentContext) -> Iterator[Row]:
    """One row per detector."""
    for detector in context.detectors:
        per_subset = [context.auroc(detector, subset=name) for name in _subsets(context)]
        yield Row((detector,), (*per_subset, context.auroc(detector)))


EXPERIMENT = Experiment(
    name="ood-subsets",
    paper="Tab. 4",
    shows="AUROC of ID against each OOD subset, from near to far.",
    needs="detections on id and ood.",
    columns=columns,
    rows=rows,
)
