"""Tab. 5: the effect of calibrators on LaECE and LRP on the ID images; no image is rejected."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row
from saod_ray.experiment.sweep import (
    above_thresholds,
    evaluate_quality,
    fit_detection_thresholds,
    pseudo_id,
    with_splits,
)
from saod_ray.score.fit import fit_calibrators

# those of the paper, then those of Kuzucu et al.
KINDS = ("none", "linear", "histogram", "isotonic", "platt", "temperature")


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """Two rows per detector: LaECE and LRP of the detections above the thresholds v."""
    detectors, remarks = with_splits(context, context.detectors, "val", "id")
    yield from remarks
    for detector in detectors:
        v = fit_detection_thresholds(context, detector, context.settings)
        fitted_on, selected = pseudo_id(context, detector), above_thresholds(context.raw_detections(detector, "id"), v)
        qualities = []
        for kind in KINDS:
            settings = context.benchmark_with(calibrator=kind).settings
            functions = fit_calibrators(fitted_on, context.ground_truth("val"), v, settings, settings.tau)
            qualities.append(evaluate_quality(selected, functions, context.ground_truth("id"), settings))
        for title in ("LaECE", "LRP"):
            yield Row((detector, title), tuple(getattr(quality, title.lower()) for quality in qualities))


EXPERIMENT = Experiment(
    name="calibrators",
    paper="Tab. 5",
    shows="What each calibrator does to LaECE and LRP on ID.",
    needs="detections on val and id.",
    headers=("detector", "measure"),
    columns=tuple(Column(kind, higher_is_better=False) for kind in KINDS),
    rows=rows,
)
