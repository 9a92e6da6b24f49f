"""Tab. 2 and A.11: which aggregation of detection-level uncertainties separates ID from OOD images best."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.errors import join_truncated
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row

AGGREGATES = ("sum", "mean", "top-5", "top-3", "top-2", "min")
KINDS = ("score", "determinant")


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """One row per detector for 1 - score, and one for the determinant if the detector is probabilistic."""
    not_probabilistic = []
    for detector in context.detectors:
        for kind in KINDS:
            if kind in context.uncertainty_kinds(detector):
                yield Row((detector, kind), tuple(context.auroc(detector, kind, aggregate) for aggregate in AGGREGATES))
            else:
                not_probabilistic.append(detector)
    if not_probabilistic:
        yield Remark(
            f"{join_truncated(not_probabilistic, 9)}: no determinant, which only probabilistic detectors have."
        )


EXPERIMENT = Experiment(
    name="aggregation",
    paper="Tab. 2 and A.11",
    shows="How well an image's uncertainty separates ID from OOD (AUROC), by how it is pooled from the image's detections. "
    "top-m is the mean of the m least uncertain detections; the uncertainty is 1 - score, or the determinant of the "
    "boxes' covariance.",
    needs="detections on id and ood; for the determinant, a probabilistic detector.",
    headers=("detector", "uncertainty"),
    columns=tuple(Column(aggregate, "%", higher_is_better=True) for aggregate in AGGREGATES),
    rows=rows,
)
