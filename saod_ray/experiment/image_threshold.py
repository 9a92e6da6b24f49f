"""How the image-level threshold is found without OOD images."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Experiment, Row

RULES = {"TPR@0.95": "tpr-0.95", "pseudo-OOD": "pseudo-ood"}
FIGURES = {"BA": "ba", "TPR": "tpr", "TNR": "tnr"}


def rows(desk: Desk) -> Iterator[Row]:
    """Two rows a detector that has pseudo-OOD images."""
    for detector in desk.detectors:
        if desk.has(detector, "pseudo-ood"):
            for title, rule in RULES.items():
                found = desk.scored(detector, image_threshold=rule)["ood"]
                yield Row((detector, title), tuple(found[key] for key in FIGURES.values()))


EXPERIMENT = Experiment(
    name="image-threshold",
    paper="Tab. A.12",
    shows="Effectiveness of the pseudo-OOD set approach compared to using TPR@0.95.",
    needs="detections on val, pseudo-ood, id and ood.",
    heads=("detector", "method"),
    columns=tuple(Column(title, "%", rising=True) for title in FIGURES),
    rows=rows,
)
