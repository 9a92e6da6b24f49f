"""Classification and localisation uncertainty of probabilistic detectors, alone and put together."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.errors import some
from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.experiment.sweep import having

KINDS = {
    "classification": "entropy",
    "localisation": "gaussian-entropy",
    "sum": "joint-entropy",
    "balanced": "joint-entropy-balanced",
    "balanced, normalised": "joint-entropy-normalised",
}


def rows(desk: Desk) -> Iterator[Row | Remark]:
    """Five rows a probabilistic detector."""
    able = [name for name in desk.detectors if set(KINDS.values()) <= set(desk.kinds(name))]
    chosen, lacking = having(desk, able, "val", "id", "ood")
    yield from lacking
    for detector in chosen:
        for title, kind in KINDS.items():
            yield Row((detector, title), (desk.auroc(detector, kind),))
    others = [name for name in desk.detectors if name not in able]
    if others:
        yield Remark(f"{some(others, 9)}: no localisation uncertainty.")


EXPERIMENT = Experiment(
    name="combined",
    paper="Tab. A.10",
    shows="Combining classification and localisation uncertainties: their entropies alone, their sum, the sum with the "
    "class counted four times (balanced), and the sum of both scaled to their ranges on val (balanced, normalised).",
    needs="detections of a probabilistic detector (nll-rcnn, es-rcnn) on val, id and ood.",
    heads=("detector", "entropies"),
    columns=(Column("AUROC", "%", rising=True),),
    rows=rows,
)
