"""Tab. A.10: classification and localisation uncertainty of probabilistic detectors, alone and combined."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.errors import join_truncated
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.experiment.sweep import with_splits

KINDS = {
    "classification": "entropy",
    "localisation": "gaussian-entropy",
    "sum": "joint-entropy",
    "balanced": "joint-entropy-balanced",
    "balanced, normalised": "joint-entropy-normalised",
}


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """Five rows per probabilistic detector."""
    probabilistic = [name for name in context.detectors if set(KINDS.values()) <= set(context.uncertainty_kinds(name))]
    detectors, remarks = with_splits(context, probabilistic, "val", "id", "ood")
    yield from remarks
    for detector in detectors:
        for title, kind in KINDS.items():
            yield Row((detector, title), (context.auroc(detector, kind),))
    not_probabilistic = [name for name in context.detectors if name not in probabilistic]
    if not_probabilistic:
        yield Remark(f"{join_truncated(not_probabilistic, 9)}: no localisation uncertainty.")


EXPERIMENT = Experiment(
    name="combined",
    paper="Tab. A.10",
    shows="Combining classification and localisation uncertainties: their entropies alone, their sum, the sum with the "
    "class counted four times (balanced), and the sum of both scaled to their ranges on val (balanced, normalised).",
    needs="detections of a probabilistic detector (nll-rcnn, es-rcnn) on val, id and ood.",
    headers=("detector", "entropies"),
    columns=(Column("AUROC", "%", higher_is_better=True),),
    rows=rows,
)
