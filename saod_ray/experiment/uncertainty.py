"""Tab. 3: which detection-level uncertainty separates ID from OOD images best."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.errors import join_truncated
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row

KINDS = {
    "entropy": "entropy",
    "DS": "ds",
    "1 - score": "score",
    "determinant": "determinant",
    "trace": "trace",
    "Gaussian entropy": "gaussian-entropy",
}


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """One row per detector; the value of an uncertainty that the detector lacks is undefined."""
    for detector in context.detectors:
        available = context.uncertainty_kinds(detector)
        values = [context.auroc(detector, kind) if kind in available else None for kind in KINDS.values()]
        yield Row((detector,), tuple(values))
    for kinds, reason in ((("entropy", "ds"), "no entropy or DS"), (("determinant",), "no localisation uncertainty")):
        lacking = [name for name in context.detectors if not set(kinds) <= set(context.uncertainty_kinds(name))]
        if lacking:
            yield Remark(f"{join_truncated(lacking, 9)}: {reason} in the store.")


EXPERIMENT = Experiment(
    name="uncertainty",
    paper="Tab. 3",
    shows="Which uncertainty of a detection separates ID from OOD best (AUROC): of its class (entropy, Dempster-Shafer, "
    "1 - score) or of its box (determinant, trace and entropy of the covariance).",
    needs="detections on id and ood; for the localisation, a probabilistic detector.",
    columns=tuple(Column(title, "%", higher_is_better=True) for title in KINDS),
    rows=rows,
)
