"""Near and far OOD images."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment import paper
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Row


def _subsets(context: ExperimentContext) -> list[str]:
    """From near to far: as the paper has them, those of other use cases as their file does."""
    known = paper.columns("ood-subsets", context.store.description.name)
    return sorted(context.subsets, key=lambda name: known.index(name) if name in known else len(known))


def columns(context: ExperimentContext) -> tuple[Column, ...]:
    """A column a subset, and one for all of them."""
    return tuple(Column(name, "%", rising=True) for name in [*_subsets(context), "all OOD"])


def rows(context: ExperimentContext) -> Iterator[Row]:
    """A row a detector."""
    for detector in context.detectors:
        each = [context.auroc(detector, subset=name) for name in _subsets(context)]
        yield Row((detector,), (*each, context.auroc(detector)))


EXPERIMENT = Experiment(
    name="ood-subsets",
    paper="Tab. 4",
    shows="AUROC scores on subsets of the OOD images, from near to far OOD.",
    needs="detections on id and ood.",
    columns=columns,
    rows=rows,
)
