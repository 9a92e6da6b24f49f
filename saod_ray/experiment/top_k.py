"""Tab. A.13 and Fig. 5(a): dummy detections, up to k per image, make the results on val look calibrated.

A dummy has score 0 and a random class and overlaps nothing. It is a false positive in the first bin and changes no
other match, so the detections are matched once and dummies are only counted. By Theorem 1 dummies do not change AP
(tests/score/test_theorem.py checks that for the AP code).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import FIG_5, step_charts, with_splits
from saod_ray.score.daq import quality
from saod_ray.score.evaluation import evaluate
from saod_ray.score.matching import TOP
from saod_ray.score.split import SplitDetections
from saod_ray.score.statistics import Statistics

Array = np.ndarray
FILLED = (100, 300, 500)
SEED = 0


def dummy_classes(images: int, classes: int) -> Array:
    """The classes of each image's dummies: (images, max k) int32. A smaller k uses the first ones of each row."""
    return np.random.default_rng(SEED).integers(0, classes, (images, max(FILLED)), dtype=np.int32)


def counted_dummies(split: SplitDetections, classes: int, k: int) -> Array:
    """The number of dummies per class, (classes,) int64, if all images are filled up to k detections.

    As in all metrics, only the first `TOP` detections of an image and class count.
    """
    count = np.diff(split.offsets)
    image = np.arange(len(count))
    used = np.arange(max(FILLED)) < k - count[:, None]
    cells = (dummy_classes(len(count), classes) + classes * image[:, None])[used]  # of image and class
    detections = np.bincount(np.repeat(image, count) * classes + split.label, minlength=len(count) * classes)
    dummies = np.bincount(cells, minlength=len(detections))
    return np.minimum(dummies, np.maximum(TOP - detections, 0)).reshape(-1, classes).sum(axis=0)


def with_dummies(sums: Statistics, dummies: Array) -> Statistics:
    """The statistics with this many dummies per class, as false positives with score 0 in the first bin."""
    bin_count = sums.bin_count.copy()
    bin_count[:, 0] += dummies
    return replace(sums, fp=sums.fp + dummies, bin_count=bin_count)


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """One row per detector without dummies, and one per k."""
    objects, settings = context.ground_truth("val"), context.settings
    detectors, remarks = with_splits(context, context.detectors, "val")
    yield from remarks
    for detector in detectors:
        raw, ap = context.raw_detections(detector, "val"), context.accuracy(detector, "val").ap
        without_dummies = evaluate("val", raw, objects, settings).sums().statistics()
        for k in (0, *FILLED):
            dummies = counted_dummies(raw, objects.classes, k)
            on_val = quality(with_dummies(without_dummies, dummies), settings)
            per_image = float(np.maximum(np.diff(raw.offsets), k).mean())
            yield Row((detector, f"up to {k}" if k else "none"), (per_image, on_val.laece, ap, on_val.lrp))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """Fig. 5(a) for the selected detector."""
    caption = "LaECE, AP and LRP on val by number of dummy detections: LaECE falls, AP stays, LRP rises"
    return step_charts(outcome, "dummy detections", caption)


EXPERIMENT = Experiment(
    name="top-k",
    paper="Tab. A.13 and Fig. 5(a)",
    shows=(
        "Why LaECE alone is not enough: padding every image of val with detections of score 0 lowers LaECE and leaves AP "
        "as it is, but raises LRP."
    ),
    needs="detections on val.",
    headers=("detector", "dummy det."),
    columns=FIG_5,
    rows=rows,
    charts=charts,
)
