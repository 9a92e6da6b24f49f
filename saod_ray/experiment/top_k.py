"""Tab. A.13 and Fig. 5(a): dummy detections up to k an image make val's figures look calibrated.

A dummy scores 0, has a class at random and overlaps nothing, so it is a false positive in the first bin that changes
no other detection's match: the detections are matched once, and dummies are counted. AP is that of the detections
alone by Theorem 1 (tests/score/test_theorem.py holds the AP code to it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import FIG_5, drawn_over_steps, with_splits
from saod_ray.score.daq import quality
from saod_ray.score.evaluation import evaluate
from saod_ray.score.matching import TOP
from saod_ray.score.split import SplitDetections
from saod_ray.score.statistics import Statistics

Array = np.ndarray
FILLED = (100, 300, 500)
SEED = 0


def dummy_classes(images: int, classes: int) -> Array:
    """The classes of each image's dummies, most of which stay unused: those up to 100 begin those up to 300."""
    return np.random.default_rng(SEED).integers(0, classes, (images, max(FILLED)), dtype=np.int32)


def counted_dummies(split: SplitDetections, classes: int, k: int) -> Array:
    """How many dummies of each class count when all images are filled up to k detections.

    As everywhere, no more than the first `TOP` detections of an image and class do.
    """
    count = np.diff(split.offsets)
    image = np.arange(len(count))
    used = np.arange(max(FILLED)) < k - count[:, None]
    drawn = (dummy_classes(len(count), classes) + classes * image[:, None])[used]
    there = np.bincount(np.repeat(image, count) * classes + split.label, minlength=len(count) * classes)
    dummies = np.bincount(drawn, minlength=len(there))
    return np.minimum(dummies, np.maximum(TOP - there, 0)).reshape(-1, classes).sum(axis=0)


def with_dummies(sums: Statistics, dummies: Array) -> Statistics:
    """The statistics with so many dummies a class: false positives in the first bin, whose scores add nothing."""
    bin_count = sums.bin_count.copy()
    bin_count[:, 0] += dummies
    return replace(sums, fp=sums.fp + dummies, bin_count=bin_count)


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """A row a detector as it is, and one for each k."""
    objects, settings = context.objects("val"), context.settings
    chosen, lacking = with_splits(context, context.detectors, "val")
    yield from lacking
    for detector in chosen:
        raw, ap = context.raw(detector, "val"), context.accuracy(detector, "val").ap
        alone = evaluate("val", raw, objects, settings).sums().statistics()
        for k in (0, *FILLED):
            found = quality(with_dummies(alone, counted_dummies(raw, objects.classes, k)), settings)
            many = float(np.maximum(np.diff(raw.offsets), k).mean())
            yield Row((detector, f"up to {k}" if k else "none"), (many, found.laece, ap, found.lrp))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """Fig. 5(a) of the chosen detector."""
    caption = "Dummy detections decrease LaECE artificially with no effect on AP; LRP penalizes them"
    return drawn_over_steps(outcome, "dummy detections", caption)


EXPERIMENT = Experiment(
    name="top-k",
    paper="Tab. A.13 and Fig. 5(a)",
    shows=(
        "Dummy detections decrease LaECE superficially with no effect on AP due to top-k survival. LRP Error penalizes "
        "dummy detections and requires the detections to be thresholded properly. The val set is used."
    ),
    needs="detections on val.",
    heads=("detector", "dummy det."),
    columns=FIG_5,
    rows=rows,
    charts=charts,
)
