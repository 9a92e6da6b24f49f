"""What experiments share: detections, uncertainties, self-aware detectors and results of a store, computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.score.ap import Accuracy
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.evaluation import SplitEvaluation, evaluate_split
from saod_ray.score.objects import GroundTruth
from saod_ray.score.results import DetectorResult
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.split import SplitDetections, entropy_ranges, image_uncertainty, load, uncertainty_kinds
from saod_ray.score.thresholds import auroc
from saod_ray.score.uncertainty import Range
from saod_ray.splits import SplitName
from saod_ray.store.store import Store
from saod_ray.store.units import RUN

Array = np.ndarray
T = TypeVar("T")
SPLITS_IN_MEMORY = 2  # raw detections of one split take hundreds of megabytes at the paper's size


class ExperimentContext:
    """Detectors of a store and the settings to score them with.

    Methods that take `changes` use the settings with these changes, for example `image_threshold="tpr-0.95"`.
    """

    def __init__(self, store: Store, settings: ScoreSettings, detectors: Sequence[str], partial: bool = False) -> None:
        self.benchmark = Benchmark(store, settings, partial)
        self.store = self.benchmark.store
        self.settings, self.detectors, self.partial = settings, list(detectors), partial
        self.classes: list[str] = list(self.benchmark.classes)
        self.subsets: list[str] = list(self.store.description.subsets)
        self._coverage = self.benchmark.check_coverage(self.detectors)
        self._computed: dict[Hashable, object] = {}
        self._raw: dict[tuple[str, str], SplitDetections] = {}

    def _once(self, key: Hashable, compute: Callable[[], T]) -> T:
        if key not in self._computed:
            self._computed[key] = compute()
        return cast("T", self._computed[key])

    def benchmark_with(self, **changes: Any) -> Benchmark:
        """The benchmark with changed settings; it shares what was read from the store."""
        settings = ScoreSettings.from_options(**{**self.settings.model_dump(), **changes})
        return self._once(("benchmark", settings), lambda: self.benchmark.under(settings))

    # coverage -------------------------------------------------------------------------------------------------

    def has_split(self, detector: str, split: str) -> bool:
        """Whether the detector has detections on images of this split.

        A corrupted version of val must be complete (unless `partial`) and made with the same weights as val.
        """
        coverage = self._coverage[detector].get(split)
        if coverage is not None:
            return coverage["missing"] < coverage["images"]
        images = sum(shard.images for shard in self.store.shards(detector, split))
        is_enough = images > 0 if self.partial else images == self.benchmark.totals["val"]
        return is_enough and self._fingerprints(detector, split) == self._fingerprints(detector, "val")

    def _fingerprints(self, detector: str, split: str) -> set[str]:
        """The fingerprints that runs recorded; none for imported detections."""
        return {page.origin.file for page in self.store.pages(detector, split) if page.origin.kind == RUN}

    def shifted_splits(self, detector: str) -> list[str]:
        """The corrupted ID splits that the detector has, by ascending severity."""
        return [split for split in self.store.splits if SplitName(split).is_shifted and self.has_split(detector, split)]

    def uncertainty_kinds(self, detector: str) -> list[str]:
        """The uncertainties that the detector's shards have the columns for, in the order of `UNCERTAINTIES`."""
        return self._once(("kinds", detector), lambda: uncertainty_kinds(self.store, detector))

    def ground_truth(self, source: str) -> GroundTruth:
        """The ground truth of val, id or ood."""
        return self.benchmark.objects[source]

    # detections and uncertainties -----------------------------------------------------------------------------

    def raw_detections(self, detector: str, split: str) -> SplitDetections:
        """All detections of a split; the most recently used splits stay in memory."""
        key = (detector, split)
        detections = self._raw.pop(key, None) or load(
            self.store, detector, split, self.ground_truth(SplitName(split).source)
        )
        self._raw[key] = detections
        while len(self._raw) > SPLITS_IN_MEMORY:
            self._raw.pop(next(iter(self._raw)))
        return detections

    def uncertainty(
        self, detector: str, split: str, kind: str | None = None, aggregate: str | None = None
    ) -> tuple[Array, Array]:
        """The positions, (n,) int64, and uncertainties, (n,) float64, of a split's images.

        `kind` and `aggregate` default to those of the settings.
        """
        kind, aggregate = kind or self.settings.uncertainty, aggregate or self.settings.aggregate
        ids = self.ground_truth(SplitName(split).source).image_ids
        ranges = self._ranges(detector) if kind == "joint-entropy-normalised" else None
        key = ("uncertainty", detector, split, kind, aggregate)
        return self._once(key, lambda: image_uncertainty(self.store, detector, split, kind, aggregate, ids, ranges))

    def _ranges(self, detector: str) -> Range:
        self.benchmark.refuse_unfit(detector, self._coverage[detector], ["val"])
        return self._once(("ranges", detector), lambda: entropy_ranges(self.store, detector))

    def auroc(
        self, detector: str, kind: str | None = None, aggregate: str | None = None, subset: str | None = None
    ) -> float | None:
        """AUROC of ID against all OOD images, or against a subset; None if there are no such images."""
        if not (self.has_split(detector, "id") and self.has_split(detector, "ood")):
            return None
        _, inside = self.uncertainty(detector, "id", kind, aggregate)
        images, outside = self.uncertainty(detector, "ood", kind, aggregate)
        if subset is not None:
            outside = outside[self.ground_truth("ood").subset[images] == self.subsets.index(subset)]
        return auroc(inside, outside) if len(outside) else None

    def accuracy(self, detector: str, split: str) -> Accuracy:
        """COCO's metrics of all detections of a split, from the store's cache if possible."""
        return self._once(("accuracy", detector, split), lambda: self.benchmark.accuracy(detector, split))

    # self-aware detectors -------------------------------------------------------------------------------------

    def self_aware(self, detector: str, **changes: Any) -> SelfAware:
        """The self-aware detector, fitted on val and pseudo-ood.

        Raises:
            SaodError: There are no detections to fit it on.
        """
        benchmark = self.benchmark_with(**changes)
        benchmark.refuse_unfit(detector, self._coverage[detector], benchmark.fit_splits())
        return self._once(("self-aware", detector, benchmark.settings), lambda: benchmark.fit(detector).selfaware)

    def result(self, detector: str, **changes: Any) -> DetectorResult:
        """The result of scoring a detector."""
        benchmark = self.benchmark_with(**changes)
        key = ("result", detector, benchmark.settings)
        return self._once(key, lambda: benchmark.score([detector])[detector].result)

    def evaluation(self, detector: str, split: str, self_aware: SelfAware | None = None) -> SplitEvaluation:
        """Accept images of an ID split, and threshold, calibrate and match its detections.

        `self_aware` defaults to the self-aware detector of the settings.
        """
        fitted = self_aware or self.self_aware(detector)
        truth, raw = self.ground_truth(SplitName(split).source), self.raw_detections(detector, split)
        return evaluate_split(self.store, detector, split, truth, fitted, raw.kept_by)
