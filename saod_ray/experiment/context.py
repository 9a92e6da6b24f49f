"""What experiments share: detections, uncertainties, self-aware detectors and scorings of a store, each made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from saod_ray.config import UNCERTAINTIES, ScoreSettings
from saod_ray.score.ap import Accuracy
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.evaluation import SplitEvaluation, evaluate_split
from saod_ray.score.objects import GroundTruth
from saod_ray.score.results import DetectorResult
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.split import SplitDetections, entropy_ranges, image_uncertainty, load
from saod_ray.score.thresholds import auroc
from saod_ray.score.uncertainty import Range, required_columns
from saod_ray.splits import SplitName
from saod_ray.store.rows import OPTIONAL
from saod_ray.store.store import Store
from saod_ray.store.units import RUN

Array = np.ndarray
Made = TypeVar("Made")
HELD = 2  # splits of raw detections in memory: at the paper's size one takes hundreds of megabytes


class ExperimentContext:
    """Some detectors of a store under one set of settings, which every method can change for itself."""

    def __init__(self, store: Store, settings: ScoreSettings, detectors: Sequence[str], partial: bool = False) -> None:
        self.benchmark = Benchmark(store, settings, partial)
        self.store = self.benchmark.store
        self.settings, self.detectors, self.partial = settings, list(detectors), partial
        self.classes: list[str] = list(self.benchmark.classes)
        self.subsets: list[str] = list(self.store.description.subsets)
        self._covered = self.benchmark.check_coverage(self.detectors)
        self._known: dict[Any, Any] = {}
        self._raw: dict[tuple[str, str], SplitDetections] = {}

    def _once(self, key: Any, make: Callable[[], Made]) -> Made:
        if key not in self._known:
            self._known[key] = make()
        found: Made = self._known[key]
        return found

    def under(self, **changes: Any) -> Benchmark:
        """The benchmark of this store under changed settings; nothing is read again for it."""
        settings = ScoreSettings.from_options(**{**self.settings.model_dump(), **changes})
        return self._once(("under", settings), lambda: self.benchmark.under(settings))

    # what there is --------------------------------------------------------------------------------------------

    def has(self, detector: str, split: str) -> bool:
        """Whether the detector has images of this split; of a corrupted copy of val all of them, and by the same weights."""
        covered = self._covered[detector].get(split)
        if covered is not None:
            return covered["missing"] < covered["images"]
        images = sum(shard.images for shard in self.store.shards(detector, split))
        is_enough = images > 0 if self.partial else images == self.benchmark.totals["val"]
        return is_enough and self._made_by(detector, split) == self._made_by(detector, "val")

    def _made_by(self, detector: str, split: str) -> set[str]:
        """Fingerprints of the detector, as runs noted them."""
        return {page.origin.file for page in self.store.pages(detector, split) if page.origin.kind == RUN}

    def shifted(self, detector: str) -> list[str]:
        """The corrupted ID splits that the detector has, by rising severity."""
        return [split for split in self.store.splits if SplitName(split).is_shifted and self.has(detector, split)]

    def kinds(self, detector: str) -> list[str]:
        """The uncertainties that the detector's shards have the columns of, in the order in which config.py has them."""
        return self._once(("kinds", detector), lambda: self._kinds(detector))

    def _kinds(self, detector: str) -> list[str]:
        there = {"score", *OPTIONAL}
        for split in ("val", "id", "ood"):
            shards = [shard for shard in self.store.shards(detector, split) if shard.detections]
            if shards:
                there &= {"score", *self.store.read_shard(detector, split, shards[0], OPTIONAL).columns}
        return [kind for kind in UNCERTAINTIES if there.issuperset(required_columns(kind))]

    def objects(self, source: str) -> GroundTruth:
        """The ground truth of val, id or ood."""
        return self.benchmark.objects[source]

    # detections and uncertainties -----------------------------------------------------------------------------

    def raw(self, detector: str, split: str) -> SplitDetections:
        """All detections of a split; the last few splits that were asked for stay in memory."""
        key = (detector, split)
        found = self._raw.pop(key, None) or load(self.store, detector, split, self.objects(SplitName(split).source))
        self._raw[key] = found
        while len(self._raw) > HELD:
            self._raw.pop(next(iter(self._raw)))
        return found

    def uncertainty(
        self, detector: str, split: str, kind: str | None = None, aggregate: str | None = None
    ) -> tuple[Array, Array]:
        """The positions of a split's images and their uncertainties, those of the settings unless said otherwise."""
        kind, aggregate = kind or self.settings.uncertainty, aggregate or self.settings.aggregate
        ids = self.objects(SplitName(split).source).image_ids
        ranges = self._ranges(detector) if kind == "joint-entropy-normalised" else None
        key = ("uncertainty", detector, split, kind, aggregate)
        return self._once(key, lambda: image_uncertainty(self.store, detector, split, kind, aggregate, ids, ranges))

    def _ranges(self, detector: str) -> Range:
        self.benchmark.refuse_unfit(detector, self._covered[detector], ["val"])
        return self._once(("ranges", detector), lambda: entropy_ranges(self.store, detector))

    def auroc(
        self, detector: str, kind: str | None = None, aggregate: str | None = None, subset: str | None = None
    ) -> float | None:
        """AUROC of ID against all OOD images or those of a subset; None where there are none."""
        if not (self.has(detector, "id") and self.has(detector, "ood")):
            return None
        _, inside = self.uncertainty(detector, "id", kind, aggregate)
        images, outside = self.uncertainty(detector, "ood", kind, aggregate)
        if subset is not None:
            outside = outside[self.objects("ood").subset[images] == self.subsets.index(subset)]
        return auroc(inside, outside) if len(outside) else None

    def accuracy(self, detector: str, split: str) -> Accuracy:
        """COCO's metrics of all detections of a split, from the store's cache where they are there."""
        return self._once(("accuracy", detector, split), lambda: self.benchmark.accuracy(detector, split))

    # self-aware detectors -------------------------------------------------------------------------------------

    def aware(self, detector: str, **changes: Any) -> SelfAware:
        """The self-aware detector that val gives under changed settings; refused where there is nothing to fit it on."""
        benchmark = self.under(**changes)
        benchmark.refuse_unfit(detector, self._covered[detector], benchmark.fit_splits())
        return self._once(("aware", detector, benchmark.settings), lambda: benchmark.fit(detector).selfaware)

    def scored(self, detector: str, **changes: Any) -> DetectorResult:
        """A detector's result under changed settings."""
        benchmark = self.under(**changes)
        key = ("scored", detector, benchmark.settings)
        return self._once(key, lambda: benchmark.score([detector])[detector].result)

    def evaluation(self, detector: str, split: str, self_aware: SelfAware | None = None) -> SplitEvaluation:
        """Accept, threshold, calibrate and match an ID split with this self-aware detector, or that of the settings."""
        chosen = self_aware or self.aware(detector)
        truth, raw = self.objects(SplitName(split).source), self.raw(detector, split)
        return evaluate_split(self.store, detector, split, truth, chosen, raw.kept_by)
