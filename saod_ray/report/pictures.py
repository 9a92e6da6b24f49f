"""Which pictures a report shows: the worst accepted OOD and rejected ID images, and the detector beside its self-aware self."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from saod_ray.config import UseCase, built_in
from saod_ray.data.images import OTHERS_IMAGES, ImageLimits
from saod_ray.report.data import ReportData
from saod_ray.report.thumbnails import Detections, Thumbnails
from saod_ray.score.evaluation import decide
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.uncertainty import NO_DETECTION
from saod_ray.splits import SplitName

WORST = 4  # pictures of a row
SHOWN = 0.3  # raw detections below this score are left out of pictures
MOST = 12  # boxes of a picture
Array = np.ndarray


class Picture(NamedTuple):
    """A thumbnail as a data URI, what it is of, and what was said of it; `accepted` is None for the detector alone."""

    source: str
    caption: str
    accepted: bool | None
    verdict: str


@dataclass(frozen=True)
class Gallery:
    """Rows of pictures by detector and title; `missing` says why there are none."""

    missing: str = ""
    detectors: dict[str, dict[str, list[Picture]]] = field(default_factory=dict)


class _Looked(NamedTuple):
    """A split of a detector: image positions, uncertainties, verdicts."""

    split: str
    images: Array
    uncertainty: Array
    accepted: Array


def gallery(gathered: ReportData, data: str | None, seed: int, limits: ImageLimits = OTHERS_IMAGES) -> Gallery:
    """Pictures of every detector, as far as the images lie below `data` (or a built-in use case's root)."""
    name = gathered.results.use_case
    root = data or (UseCase.load(name).root if name in built_in() else None)
    if root is None:
        return Gallery("The images are not at hand: say where they lie with --data DIR to see pictures here.")
    album = _Album(gathered, Thumbnails(gathered.benchmark, root, seed, limits))
    shown = {name: album.rows(name) for name in gathered.results.ranked()}
    if not any(shown.values()):
        return Gallery("The images are not where they were looked for: say where they lie with --data DIR.")
    return Gallery(detectors=shown)


class _Album:
    """Chooses images and tells what a detector and its self-aware self say of them."""

    def __init__(self, gathered: ReportData, thumbnails: Thumbnails) -> None:
        self._gathered, self._benchmark, self._thumbnails = gathered, gathered.benchmark, thumbnails

    def rows(self, detector: str) -> dict[str, list[Picture]]:
        """The rows of one detector by their titles, empty ones left out."""
        out: dict[str, list[Picture | None]] = {}
        for split, title, wanted in (
            ("ood", "OOD images it is surest to accept", True),
            ("id", "ID images it is surest to reject", False),
        ):
            looked = self._look(detector, split)
            if looked is not None:
                order = np.argsort(looked.uncertainty if wanted else -looked.uncertainty, kind="stable")
                chosen = [int(k) for k in order if looked.accepted[k] == wanted][:WORST]
                out[title] = [self._picture(detector, looked, k, aware=wanted) for k in chosen]
        pairs: list[Picture | None] = []
        for split, position in self._examples():
            looked = self._look(detector, split)
            for k in np.flatnonzero(looked.images == position).tolist() if looked is not None else []:
                assert looked is not None
                pairs += [
                    self._picture(detector, looked, k, False, alone=True),
                    self._picture(detector, looked, k, True),
                ]
        out["The detector alone, and beside it the self-aware detector"] = pairs
        kept = {title: [picture for picture in pictures if picture] for title, pictures in out.items()}
        return {title: pictures for title, pictures in kept.items() if pictures}

    def _examples(self) -> list[tuple[str, int]]:
        """An ID image that the best detector accepts, at every severity, and the first image of each OOD subset."""
        first = next(iter(self._gathered.results.ranked()))
        inside, outside = self._look(first, "id"), self._look(first, "ood")
        out: list[tuple[str, int]] = []
        if inside is not None and inside.accepted.any():
            objects = np.diff(self._benchmark.objects["id"].start)[inside.images]
            with_objects = np.where(inside.accepted, np.minimum(objects, 3), -1)
            order = np.lexsort((inside.uncertainty, -with_objects))
            position = int(inside.images[order[0]])
            out += [(split, position) for split in self._benchmark.store.splits if SplitName(split).source == "id"]
        if outside is not None:
            subset = self._benchmark.objects["ood"].subset[outside.images]
            out += [("ood", int(outside.images[np.argmax(subset == number)])) for number in np.unique(subset)]
        return out

    def _look(self, detector: str, split: str) -> _Looked | None:
        store = self._benchmark.store
        if split not in store.splits or not store.shards(detector, split):
            return None
        truth = self._benchmark.objects[SplitName(split).source]
        return _Looked(split, *decide(store, detector, split, truth, self._gathered.selfaware[detector]))

    def _picture(self, detector: str, looked: _Looked, k: int, aware: bool, alone: bool = False) -> Picture | None:
        """One image: raw detections, or calibrated ones if it was accepted; `alone` leaves the verdict out."""
        mine, position, accepted = self._gathered.selfaware[detector], int(looked.images[k]), bool(looked.accepted[k])
        found, corruption = self._thumbnails.detections(detector, looked.split, position)
        shown = _aware(found, mine, accepted) if aware else found.select(found.score >= SHOWN)
        source = self._thumbnails.drawn(
            looked.split, position, corruption, shown.select(np.arange(len(shown.score))[:MOST])
        )
        if source is None:
            return None
        words = [looked.split, corruption, self._thumbnails.file_name(looked.split, position)]
        caption = " · ".join(word for word in words if word)
        if alone:
            return Picture(source, caption, None, "the detector alone")
        u = looked.uncertainty[k]
        said = "no detection" if u >= NO_DETECTION else f"u = {u:.3f}, threshold {mine.image_threshold:.3f}"
        return Picture(source, caption, accepted, f"{'accepted' if accepted else 'rejected'} ({said})")


def _aware(found: Detections, mine: SelfAware, accepted: bool) -> Detections:
    """What the self-aware detector says: calibrated detections, and nothing of an image that it rejects."""
    kept = found.select((found.score >= mine.detection_thresholds[found.label]) & accepted)
    score = kept.score.copy()
    for label in np.unique(kept.label):
        function = mine.calibrators[int(label)]
        if function is not None:
            score[kept.label == label] = function(score[kept.label == label])
    return kept._replace(score=score)
