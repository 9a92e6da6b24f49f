"""Tab. 5: what calibrators do to LaECE and LRP on the ID images, none of which is rejected."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.experiment.sweep import evaluated, fitted_v, pseudo_id, reaching, with_splits
from saod_ray.score.fit import fit_calibrators

# as the paper has them, then those of Kuzucu et al.
KINDS = ("none", "linear", "histogram", "isotonic", "platt", "temperature")


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """Two rows a detector: LaECE and LRP. The detections are those that reach v."""
    chosen, lacking = with_splits(context, context.detectors, "val", "id")
    yield from lacking
    for detector in chosen:
        v = fitted_v(context, detector, context.settings)
        known, kept = pseudo_id(context, detector), reaching(context.raw(detector, "id"), v)
        found = []
        for kind in KINDS:
            settings = context.under(calibrator=kind).settings
            functions = fit_calibrators(known, context.objects("val"), v, settings, settings.tau)
            found.append(evaluated(kept, functions, context.objects("id"), settings))
        for title in ("LaECE", "LRP"):
            yield Row((detector, title), tuple(getattr(own, title.lower()) for own in found))


EXPERIMENT = Experiment(
    name="calibrators",
    paper="Tab. 5",
    shows="Effect of post hoc calibration on LaECE and LRP (in %).",
    needs="detections on val and id.",
    heads=("detector", "measure"),
    columns=tuple(Column(kind, rising=False) for kind in KINDS),
    rows=rows,
)
