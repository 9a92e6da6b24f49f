"""Tab. A.14 and Fig. 5(b): val's detections thresholded at a score, or at the LRP-optimal score of each class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import FIG_5, drawn_over_steps, fitted_v, having, matched, summed
from saod_ray.score.daq import quality
from saod_ray.score.matching import Matches

FIXED = {"none": -np.inf, "0.30": 0.3, "0.50": 0.5, "0.70": 0.7}


def rows(desk: Desk) -> Iterator[Row | Remark]:
    """Five rows a detector. What a threshold leaves is matched as it was among all detections."""
    objects, settings = desk.objects("val"), desk.settings
    chosen, lacking = having(desk, desk.detectors, "val")
    yield from lacking
    for detector in chosen:
        raw = desk.raw(detector, "val")
        matches = matched(raw, objects, settings)
        choices = {name: np.full(objects.classes, score) for name, score in FIXED.items()}
        choices["LRP-opt."] = fitted_v(desk, detector, desk.under(detection_threshold="lrp").settings)
        for name, v in choices.items():
            keep = raw.score >= v[raw.label]
            kept = raw.select(keep)
            sums = summed(kept, Matches(matches.state[keep], matches.iou[keep]), objects, settings)
            found, ap = quality(sums, settings), desk.accuracy_of(kept, "val")["ap"]
            many = float(keep.sum() / len(raw.images))
            yield Row((detector, name), (many, found["laece"], ap, found["lrp"]))


def charts(desk: Desk, outcome: Outcome) -> dict[str, Spec]:
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
