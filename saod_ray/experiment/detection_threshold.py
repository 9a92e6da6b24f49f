"""Tab. A.14 and Fig. 5(b): val's detections thresholded at a score, or at the LRP-optimal score of each class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import FIG_5, drawn_over_steps, fitted_v, with_splits
from saod_ray.score.daq import quality
from saod_ray.score.evaluation import evaluate

FIXED = {"none": -np.inf, "0.30": 0.3, "0.50": 0.5, "0.70": 0.7}


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """Five rows a detector. What a threshold leaves is matched as it was among all detections."""
    objects, settings = context.objects("val"), context.settings
    chosen, lacking = with_splits(context, context.detectors, "val")
    yield from lacking
    for detector in chosen:
        raw = context.raw(detector, "val")
        evaluation = evaluate("val", raw, objects, settings)
        choices = {name: np.full(objects.classes, score) for name, score in FIXED.items()}
        choices["LRP-opt."] = fitted_v(context, detector, context.under(detection_threshold="lrp").settings)
        for name, v in choices.items():
            kept = evaluation.selected(raw.score >= v[raw.label])
            own = quality(kept.sums().statistics(), settings)
            ap = context.benchmark.accuracy_of(kept.detections, "val").ap
            per_image = len(kept.detections.label) / len(raw.images)
            yield Row((detector, name), (per_image, own.laece, ap, own.lrp))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """Fig. 5(b) of the chosen detector."""
    caption = "AP is maximized with more detections while LRP benefits from properly-thresholded detections"
    return drawn_over_steps(outcome, "detection threshold", caption)


EXPERIMENT = Experiment(
    name="detection-threshold",
    paper="Tab. A.14 and Fig. 5(b)",
    shows=(
        "To avoid superficial LaECE gain (Tab. A.13), LRP Error requires the detections to be thresholded properly. "
        "LRP-optimal thresholding obtains class-wise thresholds. Results are from the val set."
    ),
    needs="detections on val.",
    heads=("detector", "threshold"),
    columns=FIG_5,
    rows=rows,
    charts=charts,
)
