"""From a store to every metric of the benchmark, for several detectors at once.

Three steps, each spread over all cores: fit each detector on val; evaluate every other split of every detector; assemble
each detector's result. The kernels and polars release the interpreter's lock, so threads are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from saod_ray.config import ScoreSettings, source_of
from saod_ray.errors import SaodError, ShardGoneError
from saod_ray.machine import usable_cores
from saod_ray.score import ap, bootstrap
from saod_ray.score.ap import Accuracy
from saod_ray.score.bootstrap import Bootstrap, Evidence, Parts, Separation, parts_of
from saod_ray.score.calibrators import Calibrator
from saod_ray.score.coverage import Coverage, coverage, refuse_gaps, refuse_mixture
from saod_ray.score.daq import AFTER_PAPER_BINS
from saod_ray.score.evaluation import Keep, decide, evaluate_split
from saod_ray.score.matching import zero_id_rule
from saod_ray.score.results import AccuracyResult, DetectorResult
from saod_ray.score.split import FORMAT, SplitDetections, entropy_ranges, ground_truth, image_uncertainty, load
from saod_ray.score.uncertainty import Range
from saod_ray.selfaware import (
    Identity,
    SelfAware,
    SelfAwareFile,
    detection_thresholds,
    fit_calibrators,
    image_threshold,
)
from saod_ray.store.cache import content_key
from saod_ray.store.seals import origin_digests
from saod_ray.store.store import Store
from saod_ray.store.units import RUN

if TYPE_CHECKING:
    from saod_ray.score.assembly import SplitScores

Array = np.ndarray
Progress = Callable[[int, int], None]
RESULT_FORMAT = 2  # of cached results: raise it when any metric changes


@dataclass(frozen=True)
class Scored:
    """One detector's result and its self-aware detector as a file, and resamples of `bootstrap.METRICS`."""

    result: DetectorResult
    selfaware: SelfAwareFile
    replicates: Array | None = None


class _CachedScores(msgspec.Struct, frozen=True):
    """A `Scored` without resamples, as the cache has it."""

    result: DetectorResult
    selfaware: SelfAwareFile


@dataclass(frozen=True)
class Fitted:
    """What val gave; `calibrators_0` are fitted at tau = 0 (Kuzucu et al.)."""

    selfaware: SelfAware
    calibrators_0: list[Calibrator | None]
    accuracy: Accuracy


class Benchmark:
    """A scoring of some of a store's detectors under one set of settings."""

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
        """The same store under other settings: its ledger and ground truth are not read again."""
        other = copy(self)
        other.settings = settings
        return other

    def score(self, detectors: Sequence[str], progress: Progress | None = None) -> dict[str, Scored]:
        """Score the detectors; those whose shards and settings were scored before are looked up.

        Where an import replaces detections meanwhile, the ledger is read again.
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

    def _score(self, detectors: Sequence[str], progress: Progress | None) -> dict[str, Scored]:
        covered = self.covered(detectors)
        for name in detectors:
            self.refuse_unfit(name, covered[name], self.fitted_on())
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

    def covered(self, detectors: Sequence[str]) -> dict[str, dict[str, Coverage]]:
        """The coverage of each detector; mixtures are refused, and gaps unless the scoring may be partial."""
        covered = {name: coverage(self.store, name, self.totals) for name in detectors}
        for name in detectors:
            refuse_mixture(self.store, name)
            if not self.partial:
                refuse_gaps(self.store, name, covered[name])
        return covered

    def cached(self, detector: str) -> Scored | None:
        """An earlier scoring under these settings, partial or not; None where there was none."""
        keys = (self._result_key(detector, partial) for partial in (False, True))
        return next((entry for key in keys if (entry := self._cached(key)) is not None), None)

    def coverage(self, detector: str) -> dict[str, Coverage]:
        """How many images of each split are there."""
        return coverage(self.store, detector, self.totals)

    def _cached(self, key: str) -> Scored | None:
        """An earlier scoring, if its resamples (where they are asked for) are cached too."""
        value = self.store.cache.value(key)
        if value is None:
            return None
        try:
            entry = msgspec.convert(value, _CachedScores)
        except msgspec.ValidationError:  # written by another version
            return None
        if self.resamples is None:
            return Scored(entry.result, entry.selfaware)
        arrays = self.store.cache.arrays(self._replicates_key(key))
        return None if arrays is None else Scored(entry.result, entry.selfaware, arrays["figures"])

    def fitted_on(self) -> list[str]:
        """The splits that the settings fit thresholds on."""
        return ["val", "pseudo-ood"] if self.settings.image_threshold == "pseudo-ood" else ["val"]

    def refuse_unfit(self, detector: str, covered: dict[str, Coverage], splits: Sequence[str]) -> None:
        """Refuse to fit a detector that has nothing on one of these splits."""
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
    ) -> dict[str, Scored]:
        from saod_ray.score.assembly import Assembly

        jobs = [(name, split) for name in detectors for split in self._test_splits(covered[name])]
        done, total = 0, len(detectors) * (1 if self.resamples is None else 2) + len(jobs)
        fitted: dict[str, Fitted] = {}
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
                evidence = self.evidence(fitted[name], splits[name])
                replicates[name] = bootstrap.replicates(evidence, self.resamples, pool)
                progress(done := done + 1, total)
        scored = {}
        for name in detectors:
            aware, accuracy = fitted[name].selfaware, fitted[name].accuracy
            assembly = Assembly(
                self.settings, self.store.description, self.objects["ood"], aware, accuracy, splits[name]
            )
            file = replace(aware, identity=self._identity(name)).to_file()
            scored[name] = Scored(assembly.result(covered[name]), file, replicates.get(name))
        return scored

    def _test_splits(self, covered: dict[str, Coverage]) -> list[str]:
        """The splits to evaluate that have detections."""
        present = [split for split in self.store.splits if covered[split]["missing"] < covered[split]["images"]]
        return [split for split in present if split not in ("val", "pseudo-ood")]

    # one detector, one split ----------------------------------------------------------------------------------

    def _uncertainty(self, detector: str, split: str, ranges: Range | None) -> tuple[Array, Array]:
        kind, aggregate = self.settings.uncertainty, self.settings.aggregate
        ids = self.objects[source_of(split)].image_ids
        return image_uncertainty(self.store, detector, split, kind, aggregate, ids, ranges)

    def fit(self, detector: str) -> Fitted:
        """The self-aware detector that val gives, and val's own accuracy."""
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
        outside = np.empty(0)
        if settings.image_threshold == "pseudo-ood":
            _, outside = self._uncertainty(detector, "pseudo-ood", ranges)
        u = image_threshold(uncertainty[annotated[images]], outside, settings.image_threshold)
        v = detection_thresholds(pseudo_id, truth, settings)
        calibrators = fit_calibrators(pseudo_id, truth, v, settings, settings.tau)
        calibrators_0 = fit_calibrators(pseudo_id, truth, v, settings, 0.0, after_paper=True)
        return Fitted(SelfAware(settings, u, v, calibrators, ranges), calibrators_0, accuracy)

    def fitted(self, detector: str) -> SelfAware:
        """The self-aware detector that val gives, with its identity."""
        return replace(self.fit(detector).selfaware, identity=self._identity(detector))

    def pseudo_id(self, detector: str, val: SplitDetections) -> SplitDetections:
        """The annotated images of val, on which everything is fitted; a partial store may have none."""
        annotated = val.on_images(self.objects["val"].annotated()[val.images])
        if not len(annotated.images):
            raise SaodError(
                f"'{detector}' has no detections on val's annotated images, which thresholds are fitted on: complete "
                f"it with `{self.store.completing(detector, 'val')}`."
            )
        return annotated

    def score_split(self, detector: str, split: str, fitted: Fitted) -> SplitScores:
        """Evaluate a test split and reduce it to sums; OOD images have decisions alone."""
        from saod_ray.score.assembly import SplitScores
        from saod_ray.score.reducers import BinRule

        truth, aware = self.objects[source_of(split)], fitted.selfaware
        if source_of(split) == "ood":
            return SplitScores(decide(self.store, detector, split, truth, aware))
        reader = _MeasuringReader(self, detector, split)
        evaluation = evaluate_split(self.store, detector, split, truth, aware, reader.read)
        parts = parts_of(evaluation) if self.resamples is not None else None
        sums = evaluation.sums()
        any_overlap = evaluation.rematched(fitted.calibrators_0, tau=0.0)
        sums_0 = any_overlap.sums(BinRule(AFTER_PAPER_BINS, lower_open=True))
        return SplitScores(evaluation.decisions(), sums, sums_0, reader.accuracy, parts)

    def raw_and_accuracy(self, detector: str, split: str) -> tuple[SplitDetections | None, Accuracy]:
        """The accuracy of a split, and all its detections where they had to be loaded for it."""
        cached = self._cached_accuracy(detector, split)
        if cached is not None:
            return None, cached
        raw = load(self.store, detector, split, self.objects[source_of(split)])
        return raw, self._measure_accuracy(detector, split, raw)

    def accuracy(self, detector: str, split: str) -> Accuracy:
        """AP, AR and oLRP of all detections of a split: looked up, or computed and cached."""
        return self.raw_and_accuracy(detector, split)[1]

    def accuracy_of(self, detections: SplitDetections, split: str) -> Accuracy:
        """AP, AR and oLRP of some detections of a split. Every split is an evaluation of its own here, unpooled."""
        misses = zero_id_rule(self.settings.conventions)
        return ap.accuracy(detections, self.objects[source_of(split)], zero_id_misses=misses)

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
        """COCO's metrics depend on no setting but the conventions."""
        digests = [shard.sha256 for shard in self.store.shards(detector, split)]
        ground = self.store.description.manifests[source_of(split)]
        return content_key("accuracy", str(FORMAT), ground, self.settings.conventions, *digests)

    # one detector ---------------------------------------------------------------------------------------------

    def _result_key(self, detector: str, partial: bool) -> str:
        parts = ["result", str(FORMAT), str(RESULT_FORMAT), *map(str, self._identity(detector)), str(partial)]
        parts += [self.settings.model_dump_json(), *self.store.description.manifests.values()]
        for split in self.store.splits:
            parts += [split, *(shard.sha256 for shard in self.store.shards(detector, split))]
        return content_key(*parts)

    def _replicates_key(self, result_key: str) -> str:
        assert self.resamples is not None
        return content_key("replicates", str(bootstrap.FORMAT), result_key, *map(str, self.resamples))

    def evidence(self, fitted: Fitted, splits: dict[str, SplitScores]) -> Evidence:
        """What resamples weigh, image by image."""

        def pooled(names: list[str]) -> Parts | None:
            parts = [scores.parts for name, scores in splits.items() if name in names and scores.parts is not None]
            return sum(parts[1:], parts[0]) if parts else None

        separation = None
        if "id" in splits and "ood" in splits and len(splits["ood"].decisions.images):
            both = splits["id"].decisions, splits["ood"].decisions
            separation = Separation(*both, self.settings, fitted.selfaware.image_threshold)
        return Evidence(
            settings=self.settings,
            objects=self.objects["id"],
            images=self.totals,
            corrupted=bool(self.store.description.severities),
            separation=separation,
            parts={"id": pooled(["id"]), "shift": pooled([name for name in splits if name.startswith("id-c")])},
        )

    def _identity(self, detector: str) -> Identity:
        """Whose detections the thresholds are fitted on: val's and pseudo-ood's say so where a run made them."""
        pages = [page for split in ("val", "pseudo-ood") for page in self.store.pages(detector, split)]
        versions = {page.origin.file if page.origin.kind == RUN else None for page in pages}
        fingerprint = versions.pop() if len(versions) == 1 else None
        origin = "mixed" if versions else "import" if fingerprint is None else RUN
        source = tuple(origin_digests(self.store, detector, self.fitted_on()).items())
        return Identity(detector, self.store.description.name, tuple(self.classes), fingerprint, origin, source)


class _MeasuringReader:
    """Reads the detections of a split that are kept, and measures the accuracy of all of them on the way.

    All of them are in memory only as long as that takes.
    """

    def __init__(self, benchmark: Benchmark, detector: str, split: str) -> None:
        self._benchmark, self._detector, self._split = benchmark, detector, split
        self.accuracy: Accuracy | None = None

    def read(self, keep: Keep) -> SplitDetections:
        """The kept detections."""
        raw, self.accuracy = self._benchmark.raw_and_accuracy(self._detector, self._split)
        if raw is not None:
            return raw.kept_by(keep)
        truth = self._benchmark.objects[source_of(self._split)]
        return load(self._benchmark.store, self._detector, self._split, truth, keep)


def _on_images(part: SplitDetections, chosen: Array) -> Array:
    """A mask of the detections on the chosen images (a mask by position)."""
    mask: Array = np.repeat(chosen[part.images], np.diff(part.offsets))
    return mask
