"""A self-aware detector: what turns raw detections into "accepted, and calibrated" or "rejected"."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.score import calibrators, thresholds
from saod_ray.score.calibrators import Calibrator
from saod_ray.score.lrp import optimal_thresholds
from saod_ray.score.matching import FP, TP, greedy
from saod_ray.score.objects import Objects
from saod_ray.score.order import class_order
from saod_ray.score.split import Split
from saod_ray.score.uncertainty import Range

Array = np.ndarray
FIT_TAU = 0.1  # the published evaluation's IoU for v, whatever tau is


class _File(msgspec.Struct, frozen=True):
    """The JSON form. A threshold of null keeps nothing of its class, -1 everything; null calibrates nothing."""

    detector: str
    fingerprint: str
    use_case: str
    classes: list[str]  # by label
    settings: dict[str, Any]
    image_threshold: float
    detection_thresholds: dict[str, float | None]
    calibrators: dict[str, Calibrator | None]
    ranges: Range | None = None
    format: int = 1


@dataclass(frozen=True)
class SelfAware:
    """Image threshold, detection thresholds and calibrators of one detector, by label."""

    settings: ScoreSettings
    image_threshold: float
    detection_thresholds: Array
    calibrators: list[Calibrator | None]
    ranges: Range | None = None  # of val's entropies, where the uncertainty is normalised by them

    def accepts(self, uncertainty: Array, detected: Array) -> Array:
        """Which images are accepted: those with a detection and an uncertainty below the threshold.

        At the threshold itself an image is accepted under the paper's conventions alone.
        """
        if self.settings.conventions == "paper":
            return detected & (uncertainty <= self.image_threshold)
        return detected & (uncertainty < self.image_threshold)

    def keeps(self, split: Split, accepted: Array) -> Array:
        """A mask of the detections that reach their class's threshold on accepted images (a mask by position)."""
        on_accepted = np.repeat(accepted[split.images], np.diff(split.offsets))
        mask: Array = on_accepted & (split.score >= self.detection_thresholds[split.label])
        return mask

    def to_json(self, detector: str, fingerprint: str, use_case: str, classes: list[str]) -> dict[str, Any]:
        """A JSON value that `load` reads."""
        values = [None if np.isnan(v) else float(v) for v in self.detection_thresholds]
        file = _File(
            detector=detector,
            fingerprint=fingerprint,
            use_case=use_case,
            classes=classes,
            settings=self.settings.model_dump(mode="json"),
            image_threshold=self.image_threshold,
            detection_thresholds=dict(zip(classes, values, strict=True)),
            calibrators=dict(zip(classes, self.calibrators, strict=True)),
            ranges=self.ranges,
        )
        value: dict[str, Any] = msgspec.to_builtins(file)
        return value

    @classmethod
    def load(cls, path: Path) -> SelfAware:
        """Read a file that `score` wrote; nothing in it is executed."""
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_File)
        except FileNotFoundError:
            raise SaodError(f"There is no file {path}: `saod-ray score` writes it into the store.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SaodError(f"{path} is not a self-aware detector ({error}): score the store again.") from None
        thresholds = [file.detection_thresholds[name] for name in file.classes]
        return cls(
            settings=ScoreSettings.of(**file.settings),
            image_threshold=file.image_threshold,
            detection_thresholds=np.array([np.nan if v is None else v for v in thresholds]),
            calibrators=[file.calibrators[name] for name in file.classes],
            ranges=file.ranges,
        )


def calibrated(split: Split, functions: list[Calibrator | None]) -> Split:
    """The same detections with each class's calibrator applied to its scores."""
    score = split.score.copy()
    order = np.argsort(split.label, kind="stable")
    starts = np.searchsorted(split.label[order], np.arange(len(functions) + 1))
    for label, function in enumerate(functions):
        mine = order[starts[label] : starts[label + 1]]
        if function is not None and len(mine):
            score[mine] = function(score[mine])
    return split.with_score(score)


def image_threshold(inside: Array, outside: Array, rule: str) -> float:
    """u from the uncertainties of pseudo-ID and pseudo-OOD images; the latter are looked at by one rule only."""
    if rule == "pseudo-ood":
        return thresholds.pseudo_ood_threshold(inside, outside)
    if rule.startswith("tpr-"):
        return thresholds.tpr_threshold(inside, float(rule.removeprefix("tpr-")))
    return float(rule)


def detection_thresholds(pseudo_id: Split, objects: Objects, settings: ScoreSettings) -> Array:
    """v per class from raw detections on pseudo-ID images."""
    if settings.detection_threshold != "lrp":
        return np.full(objects.classes, float(settings.detection_threshold))
    paper = settings.conventions == "paper"
    tau = settings.tau if paper else FIT_TAU
    matches = greedy(pseudo_id, objects, tau, zero_id_misses=not paper)
    return optimal_thresholds(pseudo_id.label, pseudo_id.score, matches, objects.counts(pseudo_id.images), tau)


def fit_calibrators(
    pseudo_id: Split, objects: Objects, v: Array, settings: ScoreSettings, tau: float, after_paper: bool = False
) -> list[Calibrator | None]:
    """One calibrator a class from the detections that survive v; no image is rejected.

    `after_paper` fits the variants of Kuzucu et al.: isotonic regression clips, a line does not fall.
    """
    paper = settings.conventions == "paper"
    limit = v[pseudo_id.label]
    kept = pseudo_id.select(pseudo_id.score >= limit if paper else ~(pseudo_id.score < limit))
    matches = greedy(kept, objects, tau, zero_id_misses=not (paper or after_paper))
    order, start = class_order(kept.label, kept.score, objects.classes)
    known = objects.counts(kept.images) > 0
    fitted: list[Calibrator | None] = []
    for label in range(objects.classes):
        mine = order[start[label] : start[label + 1]]
        mine = mine[(matches.state[mine] == TP) | (matches.state[mine] == FP)] if known[label] else mine[:0]
        pairs = kept.score[mine], matches.iou[mine]
        clip = paper or after_paper
        fitted.append(calibrators.fit(settings.calibrator, *pairs, settings.bins, clip=clip, rising=after_paper))
    return fitted
