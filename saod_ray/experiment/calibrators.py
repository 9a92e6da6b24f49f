"""Tab. 5: what calibrators do to LaECE and LRP on the ID images, none of which is rejected."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.experiment.sweep import fitted_v, having, judged, pseudo_id, reaching
from saod_ray.selfaware import calibrated, fit_calibrators

# as the paper has them, then those of Kuzucu et al.
KINDS = ("none", "linear", "histogram", "isotonic", "platt", "temperature")


def rows(desk: Desk) -> Iterator[Row | Remark]:
    """Two rows a detector: LaECE and LRP. The detections are those that reach v."""
    chosen, lacking = having(desk, desk.detectors, "val", "id")
    yield from lacking
    for detector in chosen:
        v = fitted_v(desk, detector, desk.settings)
        known, kept = pseudo_id(desk, detector), reaching(desk.raw(detector, "id"), v)
        found = []
        for kind in KINDS:
            settings = desk.under(calibrator=kind).settings
            functions = fit_calibrators(known, desk.objects("val"), v, settings, settings.tau)
            found.append(judged(calibrated(kept, functions), desk.objects("id"), settings))
        for title in ("LaECE", "LRP"):
            yield Row((detector, title), tuple(each[title.lower()] for each in found))


EXPERIMENT = Experiment(
    name="calibrators",
    paper="Tab. 5",
    shows="Effect of post hoc calibration on LaECE and LRP (in %).",
    needs="detections on val and id.",
    heads=("detector", "measure"),
    columns=tuple(Column(kind, rising=False) for kind in KINDS),
    rows=rows,
)
