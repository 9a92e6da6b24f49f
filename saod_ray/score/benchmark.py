"""Score a store: every metric of the benchmark, for several detectors at once.

There are three steps, and each uses all cores: fit each detector on val, evaluate every other split of every detector, and
assemble each detector's result. The kernels and polars release the interpreter's lock, so threads are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError, ShardGoneError
from saod_ray.machine import usable_cores
from saod_ray.score import ap, bootstrap
from saod_ray.score.ap import Accuracy
from saod_ray.score.bootstrap import Bootstrap, BootstrapInput, Contributions, OodSeparation, contributions
from saod_ray.score.calibrators import Calibrator
from saod_ray.score.daq import AFTER_PAPER_BINS
from saod_ray.score.evaluation import Keep, decide, evaluate_split
from saod_ray.score.fit import detection_thresholds, fit_calibrators, image_threshold
from saod_ray.score.matching import zero_id_rule
from saod_ray.score.results import AccuracyResult, DetectorResult
from saod_ray.score.self_aware import Identity, SelfAware, SelfAwareFile
from saod_ray.score.split import (
    FORMAT,
    SplitDetections,
    entropy_ranges,
    ground_truth,
    image_uncertainty,
    load,
    refuse_lacking,
)
from saod_ray.score.uncertainty import Range
from saod_ray.splits import SplitName
from saod_ray.store.cache import cache_key
from saod_ray.store.coverage import Coverage, coverage, refuse_gaps, refuse_mixture
from saod_ray.store.seals import origin_digests
from saod_ray.store.store import Store
from saod_ray.store.units import RUN

if TYPE_CHECKING:
    from saod_ray.score.assembly import SplitScores

Array = np.ndarray
Progress = Callable[[int, int], None]
RESULT_FORMAT = 2  # of cached results: increase it when any metric changes


@dataclass(frozen=True)
class ScoredDetector:
    """The result of one detector, the file of its self-aware detector, and resamples of `bootstrap.METRICS`."""

    result: DetectorResult
    selfaware: SelfAwareFile
    replicates: Array | None = None


class _CachedScores(msgspec.Struct, frozen=True):
    """A `ScoredDetector` without resamples, for the cache."""

    result: DetectorResult
    selfaware: SelfAwareFile


@dataclass(frozen=True)
class FittedDetector:
    """The fit on val, and the accuracy on val. `calibrators_0` are fitted at tau = 0 (Kuzucu et al.)."""

    selfaware: SelfAware
    calibrators_0: list[Calibrator | None]
    accuracy: Accuracy


class Benchmark:
    """Scores the detectors of a store under one set of settings.

    Args:
        store: The store; its ledger is frozen as it is now.
        settings: The settings.
        partial: Score detectors for which images are missing.
        resamples: Compute bootstrap replicates, too.
    """

    def __init__(
        self, store: Store, settings: ScoreSettings, partial: bool = False, resamples: Bootstrap | None = None
    ) -> None:
        self.store = store.snapshot()
        self.settings = settings
        self.partial = partial
        self.resamples = resamples
        self.classes = store.description.classes
        self.objects = {source: ground_truth(self.store, source) for source in ("val", "id", "ood")}
        self.totals = {source: len(truth.image_ids) for source, truth in self.objects.items()}

    def under(self, settings: ScoreSettings) -> Benchmark:
        """The same benchmark under other settings. Ledger and ground truth are not read again."""
        other = copy(self)
        other.settings = settings
        return other

    def score(self, detectors: Sequence[str], progress: Progress | None = None) -> dict[str, ScoredDetector]:
        """Score detectors. Results for the same shards and settings come from the cache.

        If an import replaces detections meanwhile, the ledger is read again.
        """
        while True:
            try:
                return self._score(detectors, progress)
            except ShardGoneError:
                fresh = self.store.snapshot()
                jobs = [(name, split) for name in detectors for split in self.store.splits]
                if all(fresh.pages(*job) == self.store.pages(*job) for job in jobs):
                    raise
                self.store = fresh

    def _score(self, detectors: Sequence[str], progress: Progress | None) -> dict[str, ScoredDetector]:
        covered = self.check_coverage(detectors)
        for name in detectors:
            self.refuse_unfit(name, covered[name], self.fit_splits())
        refuse_lacking(self.store, self.settings.uncertainty, detectors)
        keys = {name: self._result_key(name, self.partial) for name in detectors}
        cached = {name: self._cached(keys[name]) for name in detectors}
        scored = {name: entry for name, entry in cached.items() if entry is not None}
        pending = [name for name in detectors if name not in scored]
        computed = self._compute(pending, covered, progress or (lambda done, total: None)) if pending else {}
        for name, entry in computed.items():
            scored[name] = entry
            value = _CachedScores(entry.result, entry.selfaware)
            self.store.cache.put_value(keys[name], msgspec.to_builtins(value))
            if entry.replicates is not None:
                self.store.cache.put_arrays(self._replicates_key(keys[name]), {"figures": entry.replicates})
        return {name: scored[name] for name in detectors}

    def check_coverage(self, detectors: Sequence[str]) -> dict[str, dict[str, Coverage]]:
        """The coverage of each detector, by split.

        SaodError if a detector's detections come from several versions of it, or if images are missing (unless partial).
        """
        covered = {name: coverage(self.store, name, self.totals) for name in detectors}
        for name in detectors:
            refuse_mixture(self.store, name)
            if not self.partial:
                refuse_gaps(self.store, name, covered[name])
        return covered

    def cached(self, detector: str) -> ScoredDetector | None:
        """The cached result of an earlier scoring under these settings, partial or not; None if there is none."""
        keys = (self._result_key(detector, partial) for partial in (False, True))
        return next((entry for key in keys if (entry := self._cached(key)) is not None), None)

    def coverage(self, detector: str) -> dict[str, Coverage]:
        """The coverage of a detector, by split."""
        return coverage(self.store, detector, self.totals)

    def _cached(self, key: str) -> ScoredDetector | None:
        """A cached result; None if there is none, or if resamples are requested and not cached."""
        value = self.store.cache.value(key)
        if value is None:
            return None
        try:
            entry = msgspec.convert(value, _CachedScores)
        except msgspec.ValidationError:  # written by another version
            return None
        if self.resamples is None:
            return ScoredDetector(entry.result, entry.selfaware)
        arrays = self.store.cache.arrays(self._replicates_key(key))
        return None if arrays is None else ScoredDetector(entry.result, entry.selfaware, arrays["figures"])

    def fit_splits(self) -> list[str]:
        """The splits that thresholds are fitted on under these settings."""
        return ["val", "pseudo-ood"] if self.settings.image_threshold == "pseudo-ood" else ["val"]

    def refuse_unfit(self, detector: str, covered: dict[str, Coverage], splits: Sequence[str]) -> None:
        """Raise SaodError if a detector has no detections on one of these splits, or val has no annotations."""
        for split in splits:
            if covered[split]["missing"] >= covered[split]["images"]:
                raise SaodError(
                    f"'{detector}' has no detections on {split}, which thresholds are fitted on: import them first"
                    + (", or score with --image-threshold tpr-0.95." if split == "pseudo-ood" else ".")
                )
        if not self.objects["val"].annotated().any():
            raise SaodError("val has no annotations, so no threshold can be fitted: give val annotated images.")

    def _compute(
        self, detectors: list[str], covered: dict[str, dict[str, Coverage]], progress: Progress
    ) -> dict[str, ScoredDetector]:
        from saod_ray.score.assembly import Assembly

        jobs = [(name, split) for name in detectors for split in self._test_splits(covered[name])]
        done, total = 0, len(detectors) * (1 if self.resamples is None else 2) + len(jobs)
        fitted: dict[str, FittedDetector] = {}
        splits: dict[str, dict[str, SplitScores]] = {name: {} for name in detectors}
        replicates: dict[str, Array] = {}
        with ThreadPoolExecutor(usable_cores()) as pool:
            for name, fit in zip(detectors, pool.map(self.fit, detectors), strict=True):
                fitted[name] = fit
                progress(done := done + 1, total)
            tasks = [(name, split, fitted[name]) for name, split in jobs]
            for (name, split), scores in zip(jobs, pool.map(lambda task: self.score_split(*task), tasks), strict=True):
                splits[name][split] = scores
                progress(done := done + 1, total)
            for name in detectors:
                if self.resamples is None:
                    break
                data = self.bootstrap_input(fitted[name], splits[name])
                replicates[name] = bootstrap.replicates(data, self.resamples, pool)
                progress(done := done + 1, total)
        scored = {}
        for name in detectors:
            self_aware, accuracy = fitted[name].selfaware, fitted[name].accuracy
            assembly = Assembly(
                self.settings, self.store.description, self.objects["ood"], self_aware, accuracy, splits[name]
            )
            file = replace(self_aware, identity=self._identity(name)).to_file()
            scored[name] = ScoredDetector(assembly.result(covered[name]), file, replicates.get(name))
        return scored

    def _test_splits(self, covered: dict[str, Coverage]) -> list[str]:
        """The test splits that have detections."""
        present = [split for split in self.store.splits if covered[split]["missing"] < covered[split]["images"]]
        return [split for split in present if split not in ("val", "pseudo-ood")]

    # one detector, one split ----------------------------------------------------------------------------------

    def _uncertainty(self, detector: str, split: str, ranges: Range | None) -> tuple[Array, Array]:
        kind, aggregate = self.settings.uncertainty, self.settings.aggregate
        ids = self.objects[SplitName(split).source].image_ids
        return image_uncertainty(self.store, detector, split, kind, aggregate, ids, ranges)

    def fit(self, detector: str) -> FittedDetector:
        """Fit a self-aware detector on val, and measure the accuracy on val."""
        settings, truth = self.settings, self.objects["val"]
        normalised = settings.uncertainty == "joint-entropy-normalised"
        ranges = entropy_ranges(self.store, detector) if normalised else None
        annotated = truth.annotated()
        raw, accuracy = self.raw_and_accuracy(detector, "val")
        if raw is None:
            raw = load(self.store, detector, "val", truth, lambda part: _on_images(part, annotated))
        pseudo_id = self.pseudo_id(detector, raw)
        del raw
        images, uncertainty = self._uncertainty(detector, "val", ranges)
        pseudo_ood = np.empty(0)
        if settings.image_threshold == "pseudo-ood":
            _, pseudo_ood = self._uncertainty(detector, "pseudo-ood", ranges)
        u = image_threshold(uncertainty[annotated[images]], pseudo_ood, settings.image_threshold)
        v = detection_thresholds(pseudo_id, truth, settings)
        calibrators = fit_calibrators(pseudo_id, truth, v, settings, settings.tau)
        calibrators_0 = fit_calibrators(pseudo_id, truth, v, settings, 0.0, after_paper=True)
        return FittedDetector(SelfAware(settings, u, v, calibrators, ranges), calibrators_0, accuracy)

    def fit_self_aware(self, detector: str) -> SelfAware:
        """Fit a self-aware detector on val, with its identity."""
        return replace(self.fit(detector).selfaware, identity=self._identity(detector))

    def pseudo_id(self, detector: str, val: SplitDetections) -> SplitDetections:
        """The annotated images of val, on which everything is fitted; SaodError if a partial store has none."""
        annotated = val.on_images(self.objects["val"].annotated()[val.images])
        if not len(annotated.images):
            raise SaodError(
                f"'{detector}' has no detections on val's annotated images, which thresholds are fitted on: complete "
                f"it with `{self.store.completion_command(detector, 'val')}`."
            )
        return annotated

    def score_split(self, detector: str, split: str, fitted: FittedDetector) -> SplitScores:
        """Evaluate a test split and reduce it to sums. OOD images have decisions only."""
        from saod_ray.score.assembly import SplitScores
        from saod_ray.score.reducers import BinRule

        truth, self_aware = self.objects[SplitName(split).source], fitted.selfaware
        if SplitName(split).source == "ood":
            return SplitScores(decide(self.store, detector, split, truth, self_aware))
        reader = _MeasuringReader(self, detector, split)
        evaluation = evaluate_split(self.store, detector, split, truth, self_aware, reader.read)
        terms = contributions(evaluation) if self.resamples is not None else None
        sums = evaluation.sums()
        any_overlap = evaluation.rematched(fitted.calibrators_0, tau=0.0)
        sums_0 = any_overlap.sums(BinRule(AFTER_PAPER_BINS, lower_open=True))
        return SplitScores(evaluation.decisions(), sums, sums_0, reader.accuracy, terms)

    def raw_and_accuracy(self, detector: str, split: str) -> tuple[SplitDetections | None, Accuracy]:
        """The accuracy of a split, and all its detections if they were loaded for it (None if it was cached)."""
        cached = self._cached_accuracy(detector, split)
        if cached is not None:
            return None, cached
        raw = load(self.store, detector, split, self.objects[SplitName(split).source])
        return raw, self._measure_accuracy(detector, split, raw)

    def accuracy(self, detector: str, split: str) -> Accuracy:
        """AP, AR and oLRP of all detections of a split, from the cache if possible."""
        return self.raw_and_accuracy(detector, split)[1]

    def accuracy_of(self, detections: SplitDetections, split: str) -> Accuracy:
        """AP, AR and oLRP of any detections of a split. Severities are evaluated separately."""
        misses = zero_id_rule(self.settings.conventions)
        return ap.accuracy(detections, self.objects[SplitName(split).source], zero_id_misses=misses)

    def _cached_accuracy(self, detector: str, split: str) -> Accuracy | None:
        value = self.store.cache.value(self._accuracy_key(detector, split))
        try:
            return None if value is None else Accuracy(msgspec.convert(value, AccuracyResult), value["class_ap"])
        except (msgspec.ValidationError, KeyError):
            return None

    def _measure_accuracy(self, detector: str, split: str, raw: SplitDetections) -> Accuracy:
        accuracy = self.accuracy_of(raw, split)
        value = {**msgspec.to_builtins(accuracy.overall), "class_ap": accuracy.class_ap}
        self.store.cache.put_value(self._accuracy_key(detector, split), value)
        return accuracy

    def _accuracy_key(self, detector: str, split: str) -> str:
        """The key of AP, AR and oLRP, which depend on no setting except the conventions."""
        digests = [shard.sha256 for shard in self.store.shards(detector, split)]
        manifest = self.store.description.manifests[SplitName(split).source]
        return cache_key("accuracy", FORMAT, manifest, self.settings.conventions, *digests)

    # one detector ---------------------------------------------------------------------------------------------

    def _result_key(self, detector: str, partial: bool) -> str:
        parts = (*self._identity(detector), partial, self.settings.model_dump_json())
        return cache_key("result", FORMAT, RESULT_FORMAT, *parts, *self.store.content_digests(detector))

    def _replicates_key(self, result_key: str) -> str:
        assert self.resamples is not None
        return cache_key("replicates", bootstrap.FORMAT, result_key, *self.resamples)

    def bootstrap_input(self, fitted: FittedDetector, splits: dict[str, SplitScores]) -> BootstrapInput:
        """What resamples are computed from."""

        def pooled(names: list[str]) -> Contributions | None:
            parts = [splits[name].contributions for name in names if name in splits]
            terms = [part for part in parts if part is not None]
            return sum(terms[1:], terms[0]) if terms else None

        separation = None
        if "id" in splits and "ood" in splits and len(splits["ood"].decisions.images):
            separation = OodSeparation(
                splits["id"].decisions, splits["ood"].decisions, self.settings, fitted.selfaware.image_threshold
            )
        return BootstrapInput(
            settings=self.settings,
            objects=self.objects["id"],
            images=self.totals,
            has_shift=bool(self.store.description.severities),
            separation=separation,
            contributions={
                "id": pooled(["id"]),
                "shift": pooled([name for name in splits if SplitName(name).is_shifted]),
            },
        )

    def _identity(self, detector: str) -> Identity:
        """The detector that thresholds are fitted for, from the origins of its detections on val and pseudo-ood."""
        pages = [page for split in ("val", "pseudo-ood") for page in self.store.pages(detector, split)]
        versions = {page.origin.file if page.origin.kind == RUN else None for page in pages}
        fingerprint = versions.pop() if len(versions) == 1 else None
        origin = "mixed" if versions else "import" if fingerprint is None else RUN
        source = tuple(origin_digests(self.store, detector, self.fit_splits()).items())
        return Identity(detector, self.store.description.name, tuple(self.classes), fingerprint, origin, source)


class _MeasuringReader:
    """Reads the kept detections of a split, and measures the accuracy of all its detections on the way.

    All detections are in memory only while the accuracy is measured.
    """

    def __init__(self, benchmark: Benchmark, detector: str, split: str) -> None:
        self._benchmark, self._detector, self._split = benchmark, detector, split
        self.accuracy: Accuracy | None = None

    def read(self, keep: Keep) -> SplitDetections:
        """The detections that `keep` selects."""
        raw, self.accuracy = self._benchmark.raw_and_accuracy(self._detector, self._split)
        if raw is not None:
            return raw.kept_by(keep)
        truth = self._benchmark.objects[SplitName(self._split).source]
        return load(self._benchmark.store, self._detector, self._split, truth, keep)


def _on_images(part: SplitDetections, chosen: Array) -> Array:
    """A mask of the detections on the chosen images (a mask by position)."""
    mask: Array = np.repeat(chosen[part.images], np.diff(part.offsets))
    return mask
