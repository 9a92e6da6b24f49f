"""From a store to every figure of the benchmark, for many detectors at once.

Three steps, each spread over all cores: fit each detector on val; look at every other split of every detector; put
the figures of each detector together. The kernels let go of the interpreter's lock, so threads are enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from saod_ray.config import ScoreSettings, source_of
from saod_ray.errors import SaodError, ShardGoneError
from saod_ray.score import ap, bootstrap, laece, thresholds
from saod_ray.score import uncertainty as unc
from saod_ray.score.bootstrap import Bootstrap, Decided, Evidence, Parts, Separation, parts_of
from saod_ray.score.coverage import Coverage, coverage, refuse_gaps, refuse_mixture
from saod_ray.score.daq import AFTER_PAPER_BINS, after_paper, daq, per_class, quality
from saod_ray.score.matching import greedy
from saod_ray.score.split import FORMAT, Split, entropy_ranges, ground_truth, image_uncertainty, load
from saod_ray.score.statistics import Statistics, statistics
from saod_ray.selfaware import Identity, SelfAware, calibrated, detection_thresholds, fit_calibrators, image_threshold
from saod_ray.store.cache import content_key
from saod_ray.store.seals import origin_digests
from saod_ray.store.store import Store
from saod_ray.store.units import RUN

Array = np.ndarray
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Scored:
    """One detector's figures and its self-aware detector, both as JSON values, and resamples of `bootstrap.FIGURES`."""

    figures: dict[str, Any]
    selfaware: dict[str, Any]
    replicates: Array | None = None


@dataclass(frozen=True)
class Fitted:
    """What val gave."""

    selfaware: SelfAware
    after_paper: list[Any]  # calibrators fitted at tau = 0
    accuracy: dict[str, Any]


@dataclass(frozen=True)
class _Seen:
    """What a test split gave. Splits without objects have uncertainties alone."""

    images: Array
    uncertainty: Array
    accepted: Array
    sums: Statistics | None = None
    sums_0: Statistics | None = None
    accuracy: dict[str, Any] | None = None
    parts: Parts | None = None

    def decided(self) -> Decided:
        return Decided(self.images, self.uncertainty, self.accepted)


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
        self.totals = {source: len(each.image_ids) for source, each in self.objects.items()}

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
        found = self.covered(detectors)
        for name in detectors:
            self.refuse_unfit(name, found[name], self.fitted_on())
        keys = {name: self._result_key(name) for name in detectors}
        known = {name: self._known(keys[name]) for name in detectors}
        out = {name: scored for name, scored in known.items() if scored is not None}
        todo = [name for name in detectors if name not in out]
        for name, scored in self._compute(todo, found, progress or (lambda done, total: None)).items():
            out[name] = scored
            self.store.cache.put_value(keys[name], {"figures": scored.figures, "selfaware": scored.selfaware})
            if scored.replicates is not None:
                self.store.cache.put_arrays(self._replicates_key(keys[name]), {"figures": scored.replicates})
        return {name: out[name] for name in detectors}

    def covered(self, detectors: Sequence[str]) -> dict[str, dict[str, Coverage]]:
        """What became of the images of each detector; gaps, unless they may be, and mixtures are refused."""
        found = {name: coverage(self.store, name, self.totals) for name in detectors}
        for name in detectors:
            refuse_mixture(self.store, name)
            if not self.partial:
                refuse_gaps(self.store, name, found[name])
        return found

    def _known(self, key: str) -> Scored | None:
        """What was scored before, if its resamples (where they are asked for) are known too."""
        value = self.store.cache.value(key)
        if value is None or self.resamples is None:
            return None if value is None else Scored(**value)
        arrays = self.store.cache.arrays(self._replicates_key(key))
        return None if arrays is None else Scored(**value, replicates=arrays["figures"])

    def fitted_on(self) -> list[str]:
        """The splits that the settings fit thresholds on."""
        return ["val", "pseudo-ood"] if self.settings.image_threshold == "pseudo-ood" else ["val"]

    def refuse_unfit(self, detector: str, found: dict[str, Coverage], splits: Sequence[str]) -> None:
        """Refuse to fit a detector that has nothing on one of these splits."""
        for split in splits:
            if found[split]["missing"] >= found[split]["images"]:
                raise SaodError(
                    f"'{detector}' has no detections on {split}, which thresholds are fitted on: import them first"
                    + (", or score with --image-threshold tpr-0.95." if split == "pseudo-ood" else ".")
                )
        if not self.objects["val"].annotated().any():
            raise SaodError("val has no annotations, so no threshold can be fitted: give val annotated images.")

    def _compute(
        self, detectors: list[str], found: dict[str, dict[str, Coverage]], progress: Progress
    ) -> dict[str, Scored]:
        jobs = [
            (name, split)
            for name in detectors
            for split in self._present(found[name])
            if split not in ("val", "pseudo-ood")
        ]
        done, total = 0, len(detectors) * (1 if self.resamples is None else 2) + len(jobs)
        fitted: dict[str, Fitted] = {}
        seen: dict[str, dict[str, _Seen]] = {name: {} for name in detectors}
        replicates: dict[str, Array] = {}

        def look(job: tuple[str, str]) -> _Seen:
            return self._look(*job, fitted[job[0]])

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for name, fit in zip(detectors, pool.map(self.fit, detectors), strict=True):
                fitted[name] = fit
                progress(done := done + 1, total)
            for (name, split), each in zip(jobs, pool.map(look, jobs), strict=True):
                seen[name][split] = each
                progress(done := done + 1, total)
            for name in detectors:
                if self.resamples is None:
                    break
                evidence = self._evidence(fitted[name], seen[name])
                replicates[name] = bootstrap.replicates(evidence, self.resamples, pool)
                progress(done := done + 1, total)
        scored = {name: self._assemble(name, fitted[name], seen[name], found[name]) for name in detectors}
        return {name: replace(each, replicates=replicates.get(name)) for name, each in scored.items()}

    def _present(self, found: dict[str, Coverage]) -> list[str]:
        return [split for split in self.store.splits if found[split]["missing"] < found[split]["images"]]

    # one detector, one split ----------------------------------------------------------------------------------

    def _uncertainty(self, detector: str, split: str, ranges: unc.Range | None) -> tuple[Array, Array]:
        kind, aggregate = self.settings.uncertainty, self.settings.aggregate
        ids = self.objects[source_of(split)].image_ids
        return image_uncertainty(self.store, detector, split, kind, aggregate, ids, ranges)

    def fit(self, detector: str) -> Fitted:
        """The self-aware detector that val gives, and val's own figures."""
        settings, objects = self.settings, self.objects["val"]
        normalised = settings.uncertainty == "joint-entropy-normalised"
        ranges = entropy_ranges(self.store, detector) if normalised else None
        annotated = objects.annotated()
        pseudo_id, accuracy = self._kept(
            detector, "val", lambda part: np.repeat(annotated[part.images], np.diff(part.offsets))
        )
        pseudo_id = self.pseudo_id(detector, pseudo_id)
        images, uncertainty = self._uncertainty(detector, "val", ranges)
        outside = np.empty(0)
        if settings.image_threshold == "pseudo-ood":
            _, outside = self._uncertainty(detector, "pseudo-ood", ranges)
        u = image_threshold(uncertainty[annotated[images]], outside, settings.image_threshold)
        v = detection_thresholds(pseudo_id, objects, settings)
        fitted = fit_calibrators(pseudo_id, objects, v, settings, settings.tau)
        fitted_0 = fit_calibrators(pseudo_id, objects, v, settings, 0.0, after_paper=True)
        return Fitted(SelfAware(settings, u, v, fitted, ranges), fitted_0, accuracy)

    def pseudo_id(self, detector: str, val: Split) -> Split:
        """The part of val that everything is fitted on: its annotated images, of which a partial store may have none."""
        found = val.on_images(self.objects["val"].annotated()[val.images])
        if not len(found.images):
            raise SaodError(
                f"'{detector}' has no detections on val's annotated images, which thresholds are fitted on: complete "
                f"it with `{self.store.completing(detector, 'val')}`."
            )
        return found

    def _look(self, detector: str, split: str, fitted: Fitted) -> _Seen:
        images, uncertainty = self._uncertainty(detector, split, fitted.selfaware.ranges)
        accepted = fitted.selfaware.accepts(uncertainty, uncertainty != unc.NO_DETECTION)
        if source_of(split) == "ood":
            return _Seen(images, uncertainty, accepted)
        objects, settings, mine = self.objects["id"], self.settings, fitted.selfaware
        by_position = np.zeros(len(objects.image_ids), bool)
        by_position[images] = accepted
        kept, accuracy = self._kept(detector, split, lambda part: mine.keeps(part, by_position))
        # severity 5: a rejected image is not judged at all; elsewhere its objects are misses
        judged = images[accepted] if split == "id-c5" else images
        counts = objects.counts(judged)
        paper = settings.conventions == "paper"
        sure = calibrated(kept, mine.calibrators)
        matches = greedy(sure, objects, settings.tau, zero_id_misses=not paper and self._first_copy(split))
        sums = statistics(sure.label, sure.score, matches, counts, settings.bins, last_closed=paper)
        parts = parts_of(sure, matches, objects, judged, settings.bins, paper) if self.resamples is not None else None
        sure = calibrated(kept, fitted.after_paper)
        matches = greedy(sure, objects, 0.0, zero_id_misses=False)
        sums_0 = statistics(sure.label, sure.score, matches, counts, AFTER_PAPER_BINS, lower_open=True)
        return _Seen(images, uncertainty, accepted, sums, sums_0, accuracy, parts)

    def _kept(self, detector: str, split: str, keep: Callable[[Split], Array]) -> tuple[Split, dict[str, Any]]:
        """The detections that `keep` wants, and the accuracy of all of them, for which all are loaded only once."""
        objects = self.objects[source_of(split)]
        accuracy: dict[str, Any] | None = self.store.cache.value(self._accuracy_key(detector, split))
        if accuracy is not None:
            return load(self.store, detector, split, objects, keep), accuracy
        raw = load(self.store, detector, split, objects)
        return raw.select(keep(raw)), self._measured(detector, split, raw)

    def accuracy(self, detector: str, split: str) -> dict[str, Any]:
        """AP, AR and oLRP of all detections of a split: looked up, or computed and kept."""
        known: dict[str, Any] | None = self.store.cache.value(self._accuracy_key(detector, split))
        if known is not None:
            return known
        return self._measured(detector, split, load(self.store, detector, split, self.objects[source_of(split)]))

    def _measured(self, detector: str, split: str, raw: Split) -> dict[str, Any]:
        official = self.settings.conventions == "official"
        made = ap.accuracy(raw, self.objects[source_of(split)], zero_id_misses=official)
        self.store.cache.put_value(self._accuracy_key(detector, split), made)
        return made

    def _accuracy_key(self, detector: str, split: str) -> str:
        """COCO's figures depend on no setting but the conventions."""
        digests = [shard.sha256 for shard in self.store.shards(detector, split)]
        ground = self.store.description.manifests[source_of(split)]
        return content_key("accuracy", str(FORMAT), ground, self.settings.conventions, *digests)

    def _first_copy(self, split: str) -> bool:
        """Whether objects keep their ids here: the pooled evaluation numbers all copies but the first anew."""
        return split == "id" or split == f"id-c{self.store.description.severities[0]}"

    # one detector ---------------------------------------------------------------------------------------------

    def _result_key(self, detector: str) -> str:
        parts = ["result", str(FORMAT), *map(str, self._identity(detector)), str(self.partial)]
        parts += [self.settings.model_dump_json(), *self.store.description.manifests.values()]
        for split in self.store.splits:
            parts += [split, *(shard.sha256 for shard in self.store.shards(detector, split))]
        return content_key(*parts)

    def _replicates_key(self, result_key: str) -> str:
        assert self.resamples is not None
        return content_key("replicates", str(bootstrap.FORMAT), result_key, *map(str, self.resamples))

    def _evidence(self, fitted: Fitted, seen: dict[str, _Seen]) -> Evidence:
        def pooled(splits: list[str]) -> Parts | None:
            parts = [each.parts for split, each in seen.items() if split in splits and each.parts is not None]
            return sum(parts[1:], parts[0]) if parts else None

        separation = None
        if "id" in seen and "ood" in seen and len(seen["ood"].images):
            both = seen["id"].decided(), seen["ood"].decided()
            separation = Separation(*both, self.settings, fitted.selfaware.image_threshold)
        shifted = [split for split in seen if split.startswith("id-c")]
        return Evidence(
            settings=self.settings,
            objects=self.objects["id"],
            images=self.totals,
            corrupted=bool(self.store.description.severities),
            separation=separation,
            parts={"id": pooled(["id"]), "shift": pooled(shifted)},
        )

    def _assemble(self, detector: str, fitted: Fitted, seen: dict[str, _Seen], found: dict[str, Coverage]) -> Scored:
        mine, settings = fitted.selfaware, self.settings
        shifted = [split for split in seen if split.startswith("id-c")]
        nothing = dict.fromkeys(("idq", "laece", "lrp", "lrp_loc", "lrp_fp", "lrp_fn", "laece_0", "laace_0", "lrp_0"))
        figures: dict[str, Any] = {"id": nothing, "shift": {**nothing, "accept_rate_c5": None}, "reliability": {}}
        for name, splits in (("id", [split for split in ("id",) if split in seen]), ("shift", shifted)):
            if splits:
                sums, sums_0 = self._pooled(seen, splits)
                figures[name] = {**figures[name], **quality(sums, settings), **after_paper(sums_0)}
                figures["reliability"][name] = laece.reliability(sums, self.classes)
        if "id" in seen:
            figures["per_class"] = per_class(self._pooled(seen, ["id"])[0], settings, self.classes)
            for name, value in zip(self.classes, (seen["id"].accuracy or {})["class_ap"], strict=True):
                figures["per_class"][name]["ap"] = value
        if "id-c5" in seen:
            figures["shift"]["accept_rate_c5"] = float(seen["id-c5"].accepted.sum() / len(seen["id-c5"].images))
        figures["ood"] = self._ood(seen, mine)
        parts = [figures["ood"]["ba"], figures["id"]["idq"], figures["shift"]["idq"]]
        figures["daq"] = daq(parts if self.store.description.severities else parts[:2], settings.daq_weights)
        figures["accuracy"] = {
            split: {key: value for key, value in each.items() if key != "class_ap"}
            for split, each in {"val": fitted.accuracy, **{s: seen[s].accuracy for s in seen}}.items()
            if each is not None
        }
        figures["image_threshold"] = mine.image_threshold
        selfaware = replace(mine, identity=self._identity(detector)).to_json()
        figures["detection_thresholds"] = selfaware["detection_thresholds"]
        figures["coverage"] = {
            split: {key: value for key, value in each.items() if key != "missing" or value}
            for split, each in found.items()
        }
        return Scored(figures, selfaware)

    def _pooled(self, seen: dict[str, _Seen], splits: list[str]) -> tuple[Statistics, Statistics]:
        """The severities are one evaluation: their statistics add up."""
        sums, sums_0 = seen[splits[0]].sums, seen[splits[0]].sums_0
        assert sums is not None and sums_0 is not None
        for split in splits[1:]:
            sums, sums_0 = sums + seen[split].sums, sums_0 + seen[split].sums_0  # type: ignore[operator]
        return sums, sums_0

    def _ood(self, seen: dict[str, _Seen], mine: SelfAware) -> dict[str, Any]:
        nothing = dict.fromkeys(("ba", "tpr", "tnr", "auroc", "fpr95"))
        if "id" not in seen or "ood" not in seen or not len(seen["ood"].images):
            return {**nothing, "subsets": {}}
        inside, outside = seen["id"], seen["ood"]
        subset = self.objects["ood"].subset[outside.images]

        def figures(chosen: Array) -> dict[str, Any]:
            if not chosen.any():
                return dict(nothing)
            away = outside.uncertainty[chosen]
            if self.settings.conventions == "paper":
                rates = thresholds.decided_accuracy(inside.accepted, outside.accepted[chosen])
            else:
                rates = thresholds.balanced_accuracy(inside.uncertainty, away, mine.image_threshold)
            here = inside.uncertainty
            return {**rates, "auroc": thresholds.auroc(here, away), "fpr95": thresholds.fpr95(here, away)}

        whole = figures(np.ones(len(subset), bool))
        names = self.store.description.subsets
        each = [whole] if len(names) == 1 else [figures(subset == number) for number in range(len(names))]
        return {**whole, "subsets": dict(zip(names, each, strict=True))}

    def _identity(self, detector: str) -> Identity:
        """Whose detections the thresholds are fitted on: val's and pseudo-ood's say so where a run made them."""
        pages = [page for split in ("val", "pseudo-ood") for page in self.store.pages(detector, split)]
        made = {page.origin.file if page.origin.kind == RUN else None for page in pages}
        fingerprint = made.pop() if len(made) == 1 else None
        origin = "mixed" if made else "import" if fingerprint is None else RUN
        source = tuple(origin_digests(self.store, detector, self.fitted_on()).items())
        return Identity(detector, self.store.description.name, tuple(self.classes), fingerprint, origin, source)
