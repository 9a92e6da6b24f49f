"""Assemble the result of a detector from the scores of its splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.score import laece, thresholds
from saod_ray.score.ap import Accuracy
from saod_ray.score.bootstrap import Contributions
from saod_ray.score.daq import after_paper, daq, per_class, quality
from saod_ray.score.evaluation import REJECTABLE_SPLIT, Decisions
from saod_ray.score.objects import GroundTruth
from saod_ray.score.reducers import ClassSums, merge_sums
from saod_ray.score.results import (
    ClassResult,
    DetectorResult,
    OodRates,
    OodResult,
    ReliabilityBins,
    ShiftQuality,
    SplitCoverage,
    SplitQuality,
)
from saod_ray.score.self_aware import SelfAware
from saod_ray.splits import SplitName
from saod_ray.store.coverage import Coverage
from saod_ray.store.manifests import Description

Array = np.ndarray


@dataclass(frozen=True)
class SplitScores:
    """The scores of a test split. OOD images have decisions only.

    `sums_0` are at tau = 0, for the metrics of Kuzucu et al. `contributions` are for resamples.
    """

    decisions: Decisions
    sums: ClassSums | None = None
    sums_0: ClassSums | None = None
    accuracy: Accuracy | None = None
    contributions: Contributions | None = None


@dataclass(frozen=True)
class Assembly:
    """The scores of all splits of a detector under one set of settings."""

    settings: ScoreSettings
    description: Description
    ood_truth: GroundTruth
    self_aware: SelfAware
    val_accuracy: Accuracy
    splits: Mapping[str, SplitScores]

    def shifted(self) -> list[str]:
        """The corrupted ID splits."""
        return [split for split in self.splits if SplitName(split).is_shifted]

    def result(self, coverage: Mapping[str, Coverage]) -> DetectorResult:
        """Every metric of the detector."""
        inside = [split for split in ("id",) if split in self.splits]
        here, shift = self._quality(inside), self._quality(self.shifted())
        shift_quality = msgspec.convert(
            {**msgspec.structs.asdict(shift), "accept_rate_c5": self._accept_rate()}, ShiftQuality
        )
        ood = self._ood()
        joined = [ood.ba, here.idq, shift.idq]
        thresholds_by_class = zip(self.description.classes, self.self_aware.detection_thresholds, strict=True)
        result = DetectorResult(
            daq=daq(joined if self.description.severities else joined[:2], self.settings.daq_weights),
            id=here,
            shift=shift_quality,
            ood=ood,
            accuracy={
                split: accuracy.overall for split, accuracy in self._accuracies().items() if accuracy is not None
            },
            reliability=self._reliability(inside),
            image_threshold=self.self_aware.image_threshold,
            detection_thresholds={name: None if np.isnan(v) else float(v) for name, v in thresholds_by_class},
            coverage={split: _coverage(counts) for split, counts in coverage.items()},
        )
        return msgspec.structs.replace(result, per_class=self._per_class()) if inside else result

    def _accuracies(self) -> dict[str, Accuracy | None]:
        return {"val": self.val_accuracy, **{split: scores.accuracy for split, scores in self.splits.items()}}

    def _pooled(self, splits: Sequence[str], name: str = "sums") -> ClassSums:
        """The merged sums of splits that are evaluated as one, for instance all severities."""
        partials = [getattr(self.splits[split], name) for split in splits]
        return partials[0] if len(partials) == 1 else merge_sums(partials)

    def _quality(self, splits: Sequence[str]) -> SplitQuality:
        if not splits:
            return SplitQuality()
        own = quality(self._pooled(splits).statistics(), self.settings)
        return msgspec.structs.replace(own, **after_paper(self._pooled(splits, "sums_0").statistics()))

    def _accept_rate(self) -> float | None:
        """The share of accepted images at severity 5."""
        if REJECTABLE_SPLIT not in self.splits:
            return None
        accepted = self.splits[REJECTABLE_SPLIT].decisions.accepted
        return float(accepted.sum() / len(accepted))

    def _reliability(self, inside: Sequence[str]) -> dict[str, dict[str, ReliabilityBins]]:
        parts = {"id": inside, "shift": self.shifted()}
        classes = self.description.classes
        return {
            name: laece.reliability(self._pooled(splits).statistics(), classes)
            for name, splits in parts.items()
            if splits
        }

    def _per_class(self) -> dict[str, ClassResult]:
        scores = self.splits["id"]
        assert scores.accuracy is not None
        rows = per_class(self._pooled(["id"]).statistics(), self.settings, scores.accuracy.class_ap)
        return dict(zip(self.description.classes, rows, strict=True))

    def _ood(self) -> OodResult:
        if "id" not in self.splits or "ood" not in self.splits or not len(self.splits["ood"].decisions.images):
            return OodResult()
        subset = self.ood_truth.subset[self.splits["ood"].decisions.images]
        overall = self._rates(np.ones(len(subset), bool))
        names = self.description.subsets
        if len(names) == 1:
            by_subset = [overall]
        else:
            by_subset = [self._rates(subset == number) for number in range(len(names))]
        return OodResult(**msgspec.structs.asdict(overall), subsets=dict(zip(names, by_subset, strict=True)))

    def _rates(self, chosen: Array) -> OodRates:
        """Rates of ID images against the chosen OOD images (a mask)."""
        if not chosen.any():
            return OodRates()
        inside, outside = self.splits["id"].decisions, self.splits["ood"].decisions
        here, away = inside.uncertainty, outside.uncertainty[chosen]
        if self.settings.conventions == "paper":
            rates = thresholds.decided_accuracy(inside.accepted, outside.accepted[chosen])
        else:
            rates = thresholds.balanced_accuracy(here, away, self.self_aware.image_threshold)
        return OodRates(**rates, auroc=thresholds.auroc(here, away), fpr95=thresholds.fpr95(here, away))


def _coverage(counts: Coverage) -> SplitCoverage:
    """The counts for results.json; `missing` is absent if it is 0."""
    present = {name: counts[name] for name in ("images", "empty", "failed")}
    return SplitCoverage(**present, **({"missing": counts["missing"]} if counts["missing"] else {}))
