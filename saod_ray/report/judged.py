"""One test split of one detector as the benchmark judges it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saod_ray.config import source_of
from saod_ray.score import uncertainty as unc
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.matching import Matches, greedy
from saod_ray.score.split import Split, image_uncertainty, load
from saod_ray.score.statistics import Statistics, statistics
from saod_ray.selfaware import SelfAware, calibrated

Array = np.ndarray


@dataclass(frozen=True)
class Judged:
    """Raw detections, those that the self-aware detector keeps (with raw scores), and the calibrated ones matched."""

    name: str
    raw: Split
    uncertainty: Array
    accepted: Array
    kept: Split
    sure: Split
    matches: Matches

    def judged_images(self) -> Array:
        """A mask of the images whose objects count: all, but at severity 5 the accepted ones alone."""
        return self.accepted if self.name == "id-c5" else np.ones(len(self.accepted), bool)

    def sums(self, benchmark: Benchmark, chosen: Array | None = None) -> Statistics:
        """The statistics over the images of a mask, or over all."""
        paper = benchmark.settings.conventions == "paper"
        mask = np.ones(len(self.accepted), bool) if chosen is None else chosen
        on = np.repeat(mask, np.diff(self.sure.offsets))
        counts = benchmark.objects["id"].counts(self.sure.images[mask & self.judged_images()])
        matches = Matches(self.matches.state[on], self.matches.iou[on])
        parts = self.sure.label[on], self.sure.score[on], matches, counts, benchmark.settings.bins
        return statistics(*parts, last_closed=paper)


def judge(benchmark: Benchmark, detector: str, split: str, mine: SelfAware, raw: Split | None = None) -> Judged:
    """Accept, threshold, calibrate and match a split of ID images, whose detections need not be loaded if given."""
    settings, objects = benchmark.settings, benchmark.objects[source_of(split)]
    kind = settings.uncertainty, settings.aggregate
    images, uncertainty = image_uncertainty(benchmark.store, detector, split, *kind, objects.image_ids, mine.ranges)
    accepted = mine.accepts(uncertainty, uncertainty != unc.NO_DETECTION)
    by_position = np.zeros(len(objects.image_ids), bool)
    by_position[images] = accepted
    raw = raw or load(benchmark.store, detector, split, objects)
    kept = raw.select(mine.keeps(raw, by_position))
    sure = calibrated(kept, mine.calibrators)
    matches = greedy(sure, objects, settings.tau, zero_id_misses=zero_id_misses(benchmark, split))
    return Judged(split, raw, uncertainty, accepted, kept, sure, matches)


def zero_id_misses(benchmark: Benchmark, split: str) -> bool:
    """Whether annotation id 0 is never found: officially, in the ID images and their first corrupted copy."""
    first = benchmark.store.description.severities[:1]
    return benchmark.settings.conventions == "official" and split in ("id", *(f"id-c{each}" for each in first))
