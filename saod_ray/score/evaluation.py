"""Accept, threshold, calibrate and match one split of one detector: the only place that does.

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
Keep = Callable[[SplitDetections], Array]  # a mask of the detections to keep


class Decisions(NamedTuple):
    """The images of a split (positions, rising), their uncertainties, and a mask of the accepted ones."""

    images: Array
    uncertainty: Array
    accepted: Array

    def by_position(self, images: int) -> Array:
        """The accepted images as a mask over all images of the source."""
        mask = np.zeros(images, bool)
        mask[self.images] = self.accepted
        return mask


@dataclass(frozen=True)
class SplitEvaluation:
    """Detections of a split with their outcomes.

    `kept` has the detections on accepted images that reach their class's threshold, with raw scores; `calibrated` has
    the same ones with calibrated scores, by which they were matched. Row i of `uncertainty` and `accepted` is image
    `kept.images[i]`.
    """

    split: str
    settings: ScoreSettings
    truth: GroundTruth
    uncertainty: Array
    accepted: Array
    kept: SplitDetections
    calibrated: SplitDetections
    matches: Matches

    def decisions(self) -> Decisions:
        """The uncertainty of each image, and whether it is accepted."""
        return Decisions(self.kept.images, self.uncertainty, self.accepted)

    def counted_images(self) -> Array:
        """A mask of the images whose objects count."""
        return counted_images(self.split, self.accepted)

    def object_counts(self, chosen: Array | None = None) -> Array:
        """The number of non-crowd objects per class on the counted images, or on those of a mask among them."""
        counted = self.counted_images()
        return self.truth.counts(self.kept.images[counted if chosen is None else counted & chosen])

    def bin_rule(self) -> BinRule:
        """The bins of LaECE under these settings."""
        from saod_ray.score.reducers import BinRule

        return BinRule(self.settings.bins, last_closed=self.settings.conventions == "paper")

    def frame(self, **per_image: Array) -> pl.DataFrame:
        """The matches as a frame with one row per detection; `per_image` adds columns that have one value per image."""
        from saod_ray.score.reducers import match_frame

        counts = np.diff(self.kept.offsets)
        columns = {name: np.repeat(values, counts) for name, values in per_image.items()}
        label, score = self.calibrated.label, self.calibrated.score
        return match_frame(label, score, self.matches, score=self.kept.score, **columns)

    def sums(self, rule: BinRule | None = None) -> ClassSums:
        """Sums over all detections."""
        from saod_ray.score.reducers import class_sums

        return class_sums(self.frame(), self.object_counts(), rule or self.bin_rule())

    def sums_by(self, groups: Array, count: int) -> list[ClassSums]:
        """Sums by group of images: `groups` has a number below `count` for each image, or -1 to leave it out."""
        from saod_ray.score.reducers import class_sums_by

        objects = [self.object_counts(groups == number) for number in range(count)]
        return class_sums_by(self.frame(group=groups), "group", objects, self.bin_rule())

    def selected(self, keep: Array) -> SplitEvaluation:
        """The detections of a mask with the outcomes that they have among all."""
        matches = Matches(*(values[keep] for values in self.matches))
        return replace(self, kept=self.kept.select(keep), calibrated=self.calibrated.select(keep), matches=matches)

    def matched_raw(self, severities: Sequence[int]) -> SplitEvaluation:
        """The same detections with their raw scores, matched by them."""
        return evaluate(self.split, self.kept, self.truth, self.settings, severities=severities)

    def rematched(self, calibrators: Calibrators, tau: float) -> SplitEvaluation:
        """The same detections with other calibrators, matched at another tau; annotation ids mean nothing here."""
        scored = calibrate(self.kept, calibrators)
        matches = greedy(scored, self.truth, tau, zero_id_misses=False)
        return replace(self, calibrated=scored, matches=matches)


def calibrate(detections: SplitDetections, calibrators: Calibrators) -> SplitDetections:
    """The same detections with each class's calibrator applied to their scores."""
    return detections.with_score(calibrated_scores(detections.label, detections.score, calibrators))


def counted_images(split: str, accepted: Array) -> Array:
    """A mask of the images whose objects count: all of them, but at severity 5 the accepted ones alone.

    Elsewhere the objects of a rejected image are misses.
    """
    return accepted if split == REJECTABLE_SPLIT else np.ones(len(accepted), bool)


def decide(store: Store, detector: str, split: str, truth: GroundTruth, self_aware: SelfAware) -> Decisions:
    """The image-level uncertainties of a split, and which images the self-aware detector accepts."""
    settings = self_aware.settings
    kind = settings.uncertainty, settings.aggregate
    images, uncertainty = image_uncertainty(store, detector, split, *kind, truth.image_ids, self_aware.ranges)
    return Decisions(images, uncertainty, self_aware.accepts(uncertainty, uncertainty != NO_DETECTION))


def keeper(self_aware: SelfAware, decisions: Decisions, truth: GroundTruth) -> Keep:
    """A function that masks the detections which the self-aware detector keeps, in any part of the split."""
    accepted = decisions.by_position(len(truth.image_ids))
    return lambda part: self_aware.keeps(part, accepted)


def evaluate(
    split: str,
    kept: SplitDetections,
    truth: GroundTruth,
    settings: ScoreSettings,
    *,
    calibrators: Calibrators | None = None,
    severities: Sequence[int] = (),
    decisions: Decisions | None = None,
) -> SplitEvaluation:
    """Calibrate and match detections of a whole split, or of any part of it: images do not depend on each other.

    Without `decisions` no image is rejected.
    """
    scored = kept if calibrators is None else calibrate(kept, calibrators)
    misses = zero_id_rule(settings.conventions, split, severities)
    matches = greedy(scored, truth, settings.tau, zero_id_misses=misses)
    if decisions is None:
        everything = np.ones(len(kept.images), bool)
        decisions = Decisions(kept.images, np.full(len(kept.images), np.nan), everything)
    return SplitEvaluation(split, settings, truth, decisions.uncertainty, decisions.accepted, kept, scored, matches)


def evaluate_split(
    store: Store,
    detector: str,
    split: str,
    truth: GroundTruth,
    self_aware: SelfAware,
    read: Callable[[Keep], SplitDetections] | None = None,
) -> SplitEvaluation:
    """Evaluate a split of val or ID images with a self-aware detector.

    `read` gives the detections that a mask selects, if not from the store: `raw.kept_by` where all are at hand.
    """
    assert SplitName(split).source != "ood", "OOD images have no objects"
    decisions = decide(store, detector, split, truth, self_aware)
    keep = keeper(self_aware, decisions, truth)
    kept = load(store, detector, split, truth, keep) if read is None else read(keep)
    return evaluate(
        split,
        kept,
        truth,
        self_aware.settings,
        calibrators=self_aware.calibrators,
        severities=store.description.severities,
        decisions=decisions,
    )
