"""From the uncertainties of detections to that of their image: which aggregation tells ID from OOD best."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.errors import join_truncated
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row

AGGREGATES = ("sum", "mean", "top-5", "top-3", "top-2", "min")
KINDS = ("score", "determinant")


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """A row for 1 - score and, of a probabilistic detector, one for the determinant."""
    without = []
    for detector in context.detectors:
        for kind in KINDS:
            if kind in context.kinds(detector):
                yield Row((detector, kind), tuple(context.auroc(detector, kind, each) for each in AGGREGATES))
            else:
                without.append(detector)
    if without:
        yield Remark(f"{join_truncated(without, 9)}: no determinant, which probabilistic detectors alone have.")


EXPERIMENT = Experiment(
    name="aggregation",
    paper="Tab. 2 and A.11",
    shows="AUROC scores for image-level uncertainties when aggregating through different methods: top-m is the average "
    "of the lowest m uncertainties, of 1 - score and of the determinant of the boxes' covariance.",
    needs="detections on id and ood; for the determinant, a probabilistic detector.",
    heads=("detector", "uncertainty"),
    columns=tuple(Column(each, "%", rising=True) for each in AGGREGATES),
    rows=rows,
)
