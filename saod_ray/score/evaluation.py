"""Evaluate one split of one detector: accept or reject images, then threshold, calibrate and match detections.

Scoring, resampling, reports, experiments and sweeps all start from a `SplitEvaluation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.score.calibrators import Calibrator, calibrated_scores
from saod_ray.score.matching import Matches, greedy, zero_id_rule
from saod_ray.score.objects import GroundTruth
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.split import SplitDetections, image_uncertainty, load
from saod_ray.score.uncertainty import NO_DETECTION
from saod_ray.splits import SplitName, shifted

if TYPE_CHECKING:
    import polars as pl

    from saod_ray.score.reducers import BinRule, ClassSums
    from saod_ray.store.store import Store

Array = np.ndarray
Calibrators = Sequence[Calibrator | None]
REJECTABLE_SPLIT = shifted(5)  # objects on its rejected images are not misses
Keep = Callable[[SplitDetections], Array]  # returns a mask of the detections to keep


class Decisions(NamedTuple):
    """The image-level decisions of a split."""

    images: Array  # (images,) positions, ascending
    uncertainty: Array  # (images,) float64
    accepted: Array  # (images,) bool

    def by_position(self, images: int) -> Array:
        """The accepted images as a mask over all `images` images of the source."""
        mask = np.zeros(images, bool)
        mask[self.images] = self.accepted
        return mask


@dataclass(frozen=True)
class SplitEvaluation:
    """The detections of a split that the self-aware detector keeps, with their outcomes.

    `detections` has the detections on accepted images that reach their class's threshold, with raw scores. `calibrated`
    has the same detections with calibrated scores, by which they were matched. Row i of `uncertainty` and `accepted` is
    image `detections.images[i]`.
    """

    split: str
    settings: ScoreSettings
    truth: GroundTruth
    uncertainty: Array
    accepted: Array
    detections: SplitDetections
    calibrated: SplitDetections
    matches: Matches

    def decisions(self) -> Decisions:
        """The uncertainty of each image, and whether it is accepted."""
        return Decisions(self.detections.images, self.uncertainty, self.accepted)

    def counted_images(self) -> Array:
        """A mask of the images whose objects count."""
        return counted_images(self.split, self.accepted)

    def object_counts(self, chosen: Array | None = None) -> Array:
        """The number of non-crowd objects per class on the images that count; `chosen` is a mask of a part of them."""
        counted = self.counted_images()
        return self.truth.counts(self.detections.images[counted if chosen is None else counted & chosen])

    def bin_rule(self) -> BinRule:
        """The bins of LaECE under these settings."""
        from saod_ray.score.reducers import BinRule

        return BinRule(self.settings.bins, last_closed=self.settings.conventions == "paper")

    def frame(self, **per_image: Array) -> pl.DataFrame:
        """The matches as a frame with one row per detection. `per_image` adds columns, with one value per image each."""
        from saod_ray.score.reducers import match_frame

        counts = np.diff(self.detections.offsets)
        columns = {name: np.repeat(values, counts) for name, values in per_image.items()}
        label, score = self.calibrated.label, self.calibrated.score
        return match_frame(label, score, self.matches, score=self.detections.score, **columns)

    def sums(self, rule: BinRule | None = None) -> ClassSums:
        """Sums over all detections."""
        from saod_ray.score.reducers import class_sums

        return class_sums(self.frame(), self.object_counts(), rule or self.bin_rule())

    def sums_by(self, groups: Array, count: int) -> list[ClassSums]:
        """Sums by group of images. `groups` has a number below `count` for each image, or -1 to ignore it."""
        from saod_ray.score.reducers import class_sums_by

        objects = [self.object_counts(groups == number) for number in range(count)]
        return class_sums_by(self.frame(group=groups), "group", objects, self.bin_rule())

    def selected(self, keep: Array) -> SplitEvaluation:
        """The detections of a mask, with their outcomes unchanged."""
        matches = Matches(*(values[keep] for values in self.matches))
        return replace(
            self, detections=self.detections.select(keep), calibrated=self.calibrated.select(keep), matches=matches
        )

    def matched_raw(self, severities: Sequence[int]) -> SplitEvaluation:
        """The same detections, matched by their raw scores."""
        return evaluate(self.split, self.detections, self.truth, self.settings, severities=severities)

    def rematched(self, calibrators: Calibrators, tau: float) -> SplitEvaluation:
        """The same detections with other calibrators and another tau. Annotation ids of 0 are not special here."""
        scored = calibrate(self.detections, calibrators)
        matches = greedy(scored, self.truth, tau, zero_id_misses=False)
        return replace(self, calibrated=scored, matches=matches)


def calibrate(detections: SplitDetections, calibrators: Calibrators) -> SplitDetections:
    """The same detections with each class's calibrator applied to their scores."""
    return detections.with_score(calibrated_scores(detections.label, detections.score, calibrators))


def counted_images(split: str, accepted: Array) -> Array:
    """A mask of the images whose objects count: all images, but at severity 5 only the accepted ones.

    On other splits, the objects of a rejected image count as misses.
    """
    return accepted if split == REJECTABLE_SPLIT else np.ones(len(accepted), bool)


def decide(store: Store, detector: str, split: str, truth: GroundTruth, self_aware: SelfAware) -> Decisions:
    """Compute the image-level uncertainties of a split, and accept or reject its images."""
    settings = self_aware.settings
    kind = settings.uncertainty, settings.aggregate
    images, uncertainty = image_uncertainty(store, detector, split, *kind, truth.image_ids, self_aware.ranges)
    return Decisions(images, uncertainty, self_aware.accepts(uncertainty, uncertainty != NO_DETECTION))


def keep_rule(self_aware: SelfAware, decisions: Decisions, truth: GroundTruth) -> Keep:
    """A function from any part of a split to a mask of the detections that the self-aware detector keeps."""
    accepted = decisions.by_position(len(truth.image_ids))
    return lambda part: self_aware.keeps(part, accepted)


def evaluate(
    split: str,
    detections: SplitDetections,
    truth: GroundTruth,
    settings: ScoreSettings,
    *,
    calibrators: Calibrators | None = None,
    severities: Sequence[int] = (),
    decisions: Decisions | None = None,
) -> SplitEvaluation:
    """Calibrate and match detections of a split, or of any part of it: images do not depend on each other.

    Args:
        split: Name of the split.
        detections: The detections that the self-aware detector keeps.
        truth: The ground truth of the split's source.
        settings: The settings.
        calibrators: One per class; None to match by raw scores.
        severities: The severities of the use case.
        decisions: Decisions on the images of `detections`; by default all images are accepted.
    """
    scored = detections if calibrators is None else calibrate(detections, calibrators)
    misses = zero_id_rule(settings.conventions, split, severities)
    matches = greedy(scored, truth, settings.tau, zero_id_misses=misses)
    if decisions is None:
        images = detections.images
        decisions = Decisions(images, np.full(len(images), np.nan), np.ones(len(images), bool))
    return SplitEvaluation(
        split, settings, truth, decisions.uncertainty, decisions.accepted, detections, scored, matches
    )


def evaluate_split(
    store: Store,
    detector: str,
    split: str,
    truth: GroundTruth,
    self_aware: SelfAware,
    read: Callable[[Keep], SplitDetections] | None = None,
) -> SplitEvaluation:
    """Evaluate a split of val or ID images with a self-aware detector.

    `read` returns the detections that a `Keep` function selects. By default they are read from the store; pass
    `raw.kept_by` if all detections are in memory already.
    """
    assert SplitName(split).source != "ood", "OOD images have no objects"
    decisions = decide(store, detector, split, truth, self_aware)
    keep = keep_rule(self_aware, decisions, truth)
    detections = load(store, detector, split, truth, keep) if read is None else read(keep)
    return evaluate(
        split,
        detections,
        truth,
        self_aware.settings,
        calibrators=self_aware.calibrators,
        severities=store.description.severities,
        decisions=decisions,
    )
