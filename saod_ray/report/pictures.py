"""The pictures of a report: the worst decisions, and examples of the raw and the self-aware detector side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from saod_ray.config import UseCase, built_in
from saod_ray.data.images import OTHERS_IMAGES, ImageLimits
from saod_ray.report.data import ReportData
from saod_ray.report.thumbnails import ImageDetections, Thumbnails
from saod_ray.score.evaluation import decide
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.uncertainty import NO_DETECTION
from saod_ray.splits import SplitName

WORST = 4  # pictures per row
MIN_SCORE = 0.3  # raw detections below this score are not drawn
MOST_BOXES = 12  # per picture
Array = np.ndarray


class Picture(NamedTuple):
    """A thumbnail as a data URI, with a caption and a verdict; `accepted` is None for the raw detector."""

    source: str
    caption: str
    accepted: bool | None
    verdict: str


@dataclass(frozen=True)
class Gallery:
    """Rows of pictures by detector and title; `missing` says why there are no pictures."""

    missing: str = ""
    detectors: dict[str, dict[str, list[Picture]]] = field(default_factory=dict)


class _SplitDecisions(NamedTuple):
    """A detector's decisions on a split: (n,) arrays of image positions, uncertainties, and whether it accepts."""

    split: str
    images: Array
    uncertainty: Array
    accepted: Array


def gallery(
    report_data: ReportData, image_folder: str | None, seed: int, limits: ImageLimits = OTHERS_IMAGES
) -> Gallery:
    """Pictures of every detector, of the images that exist in `image_folder` (by default a built-in use case's root)."""
    name = report_data.results.use_case
    root = image_folder or (UseCase.load(name).root if name in built_in() else None)
    if root is None:
        return Gallery("There are no pictures, because the folder of the images is unknown: name it with --data DIR.")
    selection = _PictureSelection(report_data, Thumbnails(report_data.benchmark, root, seed, limits))
    rows = {name: selection.rows(name) for name in report_data.results.ranked()}
    if not any(rows.values()):
        return Gallery("There are no pictures, because the images were not found: name their folder with --data DIR.")
    return Gallery(detectors=rows)


class _PictureSelection:
    """Selects images, and draws the detections of a detector and of its self-aware version on them."""

    def __init__(self, report_data: ReportData, thumbnails: Thumbnails) -> None:
        self._report_data, self._benchmark, self._thumbnails = report_data, report_data.benchmark, thumbnails

    def rows(self, detector: str) -> dict[str, list[Picture]]:
        """The rows of pictures of one detector by title, without empty ones."""
        rows: dict[str, list[Picture | None]] = {}
        for split, title, accepts in (
            ("ood", "OOD images it is surest to accept", True),
            ("id", "ID images it is surest to reject", False),
        ):
            decisions = self._decisions(detector, split)
            if decisions is not None:
                order = np.argsort(decisions.uncertainty if accepts else -decisions.uncertainty, kind="stable")
                worst = [int(k) for k in order if decisions.accepted[k] == accepts][:WORST]
                rows[title] = [self._picture(detector, decisions, k, self_aware=accepts) for k in worst]
        pairs: list[Picture | None] = []
        for split, position in self._examples():
            decisions = self._decisions(detector, split)
            if decisions is None:
                continue
            for k in np.flatnonzero(decisions.images == position).tolist():
                pairs.append(self._picture(detector, decisions, k, self_aware=False, with_verdict=False))
                pairs.append(self._picture(detector, decisions, k, self_aware=True))
        rows["The raw detector, and next to it the self-aware detector"] = pairs
        available = {title: [picture for picture in pictures if picture] for title, pictures in rows.items()}
        return {title: pictures for title, pictures in available.items() if pictures}

    def _examples(self) -> list[tuple[str, int]]:
        """An ID image that the best detector accepts, at every severity, and the first image of each OOD subset.

        Examples are (split, position in the manifest).
        """
        best = next(iter(self._report_data.results.ranked()))
        inside, outside = self._decisions(best, "id"), self._decisions(best, "ood")
        examples: list[tuple[str, int]] = []
        if inside is not None and inside.accepted.any():
            objects = np.diff(self._benchmark.objects["id"].start)[inside.images]
            rank = np.where(inside.accepted, np.minimum(objects, 3), -1)  # accepted, and with up to three objects
            order = np.lexsort((inside.uncertainty, -rank))
            position = int(inside.images[order[0]])
            examples += [(split, position) for split in self._benchmark.store.splits if SplitName(split).source == "id"]
        if outside is not None:
            subset = self._benchmark.objects["ood"].subset[outside.images]
            examples += [("ood", int(outside.images[np.argmax(subset == number)])) for number in np.unique(subset)]
        return examples

    def _decisions(self, detector: str, split: str) -> _SplitDecisions | None:
        store = self._benchmark.store
        if split not in store.splits or not store.shards(detector, split):
            return None
        truth = self._benchmark.objects[SplitName(split).source]
        self_aware = self._report_data.selfaware[detector]
        return _SplitDecisions(split, *decide(store, detector, split, truth, self_aware))

    def _picture(
        self, detector: str, decisions: _SplitDecisions, k: int, *, self_aware: bool, with_verdict: bool = True
    ) -> Picture | None:
        """Image `k` of a split with raw detections, or with those of the self-aware detector; None if it is missing."""
        fitted = self._report_data.selfaware[detector]
        split, position, accepted = decisions.split, int(decisions.images[k]), bool(decisions.accepted[k])
        raw, corruption = self._thumbnails.detections(detector, split, position)
        selected = _self_aware_detections(raw, fitted, accepted) if self_aware else raw.select(raw.score >= MIN_SCORE)
        boxes = selected.select(np.arange(len(selected.score))[:MOST_BOXES])
        source = self._thumbnails.data_uri(split, position, corruption, boxes)
        if source is None:
            return None
        caption = " · ".join(filter(None, (split, corruption, self._thumbnails.file_name(split, position))))
        if not with_verdict:
            return Picture(source, caption, None, "raw detector")
        u = decisions.uncertainty[k]
        reason = "no detection" if u >= NO_DETECTION else f"u = {u:.3f}, threshold {fitted.image_threshold:.3f}"
        return Picture(source, caption, accepted, f"{'accepted' if accepted else 'rejected'} ({reason})")


def _self_aware_detections(raw: ImageDetections, fitted: SelfAware, accepted: bool) -> ImageDetections:
    """The calibrated detections above the thresholds; none on a rejected image."""
    selected = raw.select((raw.score >= fitted.detection_thresholds[raw.label]) & accepted)
    score = selected.score.copy()
    for label in np.unique(selected.label):
        calibrator = fitted.calibrators[int(label)]
        if calibrator is not None:
            score[selected.label == label] = calibrator(score[selected.label == label])
    return selected._replace(score=score)
