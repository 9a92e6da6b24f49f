"""Tab. A.14 and Fig. 5(b): detections on val above a fixed score, or above the LRP-optimal score of each class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import FIG_5, fit_detection_thresholds, step_charts, with_splits
from saod_ray.score.daq import quality
from saod_ray.score.evaluation import evaluate

FIXED = {"none": -np.inf, "0.30": 0.3, "0.50": 0.5, "0.70": 0.7}


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """Five rows per detector. Detections keep the matches they have among all detections."""
    objects, settings = context.ground_truth("val"), context.settings
    detectors, remarks = with_splits(context, context.detectors, "val")
    yield from remarks
    for detector in detectors:
        raw = context.raw_detections(detector, "val")
        evaluation = evaluate("val", raw, objects, settings)
        thresholds = {name: np.full(objects.classes, score) for name, score in FIXED.items()}
        thresholds["LRP-opt."] = fit_detection_thresholds(
            context, detector, context.benchmark_with(detection_threshold="lrp").settings
        )
        for name, v in thresholds.items():
            thresholded = evaluation.selected(raw.score >= v[raw.label])
            on_val = quality(thresholded.sums().statistics(), settings)
            ap = context.benchmark.accuracy_of(thresholded.detections, "val").ap
            per_image = len(thresholded.detections.label) / len(raw.images)
            yield Row((detector, name), (per_image, on_val.laece, ap, on_val.lrp))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """Fig. 5(b) for the selected detector."""
    caption = "AP and LRP on val by detection threshold: AP is highest without one, LRP is lowest with one"
    return step_charts(outcome, "detection threshold", caption)


EXPERIMENT = Experiment(
    name="detection-threshold",
    paper="Tab. A.14 and Fig. 5(b)",
    shows=(
        "What the threshold v does on val: AP only falls as it rises, while LRP has its optimum in between. "
        "LRP-opt. sets one threshold per class."
    ),
    needs="detections on val.",
    headers=("detector", "threshold"),
    columns=FIG_5,
    rows=rows,
    charts=charts,
)
