"""What runs in a detector's actor: it detects on the pictures of a unit and commits the shards it made."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from saod_ray.config import DetectorSpec
from saod_ray.detect import registry
from saod_ray.detect.detections import Detections, Detector
from saod_ray.detect.registry import Entry
from saod_ray.engine.pictures import Picture
from saod_ray.errors import SaodError
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import UNCERTAINTIES, Rows
from saod_ray.store.store import Store
from saod_ray.store.units import RUN, Unit

PATIENCE = 120.0  # seconds for which a full disk or a store that cannot be reached is waited for
PAUSE = 1.0
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_POISONED = "CUDA error"  # what torch says when nothing can be done on the GPU any more by this process


class Receipt(NamedTuple):
    """A shard that was committed."""

    unit: Unit
    detector: str
    images: int
    empty: int
    failed: int
    detections: int
    seconds: float


@dataclass(frozen=True)
class Crew:
    """What an actor needs to know: its detectors and where everything lies."""

    entries: tuple[Entry, ...]
    specs: tuple[DetectorSpec, ...]
    classes: tuple[str, ...]
    weights: Path
    store: str
    device: str
    batch_size: int
    threads: int
    patience: float = PATIENCE


class Meters:
    """What Ray's own metrics show of a detector, where a dashboard or Prometheus looks at them."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter  # what Ray is told before it is imported is not known yet in a driver

        self._images = Counter(
            "saod_ray_images", "Images whose shards are committed.", tag_keys=("detector", "split", "outcome")
        )
        self._detections = Counter("saod_ray_detections", "Detections committed.", tag_keys=("detector", "split"))
        self._seconds = Counter("saod_ray_seconds", "Seconds of actors.", tag_keys=("detector", "split"))

    def count(self, receipt: Receipt) -> None:
        """Add a shard."""
        tags = {"detector": receipt.detector, "split": receipt.unit.split}
        outcomes = {"empty": receipt.empty, "failed": receipt.failed}
        outcomes["detected"] = receipt.images - receipt.empty - receipt.failed
        for outcome, images in outcomes.items():
            if images:
                self._images.inc(images, {**tags, "outcome": outcome})
        if receipt.detections:
            self._detections.inc(receipt.detections, tags)
        self._seconds.inc(receipt.seconds, tags)


class Worker:
    """An actor that holds a group of detectors. It is not restarted by Ray: the driver replaces it."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._meters = Meters()
        self._detectors: dict[str, Detector] = {}
        self._problem = ""
        for entry, spec in zip(crew.entries, crew.specs, strict=True):
            try:
                self._build(entry, spec)
            except SaodError as error:
                self._problem = str(error)
            except Exception as error:  # a user's class may raise anything
                self._problem = f"'{entry.name}' cannot be built ({_sentence(error)}): mend that and run again."

    def _build(self, entry: Entry, spec: DetectorSpec) -> None:
        crew = self._crew
        built = registry.build(entry, crew.classes, crew.weights, crew.device, crew.batch_size, crew.threads)
        if built.spec.fingerprint != spec.fingerprint:
            raise SaodError(
                f"The weights or config of '{entry.name}' are others here than where the run was started: put the "
                "same files on every node."
            )
        self._detectors[entry.name] = built

    def ready(self) -> str:
        """What is wrong with it, in a sentence, or nothing."""
        return self._problem

    def work(self, unit: Unit, name: str, key: str, failures: dict[int, str], *parts: list[Picture]) -> Receipt:
        """Detect and commit; `failures` are images that are known to end the detector's process."""
        began = time.monotonic()
        pictures = [picture for part in parts for picture in part]
        errors = [failures.get(k) or picture.error for k, picture in enumerate(pictures)]
        found = self._found(name, pictures, errors)
        shard = self._commit(unit, name, key, _rows(pictures, found, errors, self._labels(name)))
        seconds = time.monotonic() - began
        receipt = Receipt(unit, name, shard.images, shard.empty, shard.failed, shard.detections, seconds)
        self._meters.count(receipt)
        return receipt

    def attempt(self, name: str, start: int, stop: int, failures: dict[int, str], *parts: list[Picture]) -> None:
        """Detect on some of a unit's pictures and forget what was found: does it survive that?"""
        pictures = [picture for part in parts for picture in part]
        tried = [picture for k, picture in enumerate(pictures) if start <= k < stop and k not in failures]
        self._found(name, tried, [picture.error for picture in tried])

    def _found(self, name: str, pictures: list[Picture], errors: list[str | None]) -> list[Detections | None]:
        """What there is on the pictures without an error; those that the detector fails on get one."""
        detector = self._detectors[name]
        good = [k for k, error in enumerate(errors) if error is None]
        images = [pixels for k in good if (pixels := pictures[k].pixels) is not None]
        found: list[Detections | None] = [None] * len(pictures)
        for k, outcome in zip(good, _detected(detector, images), strict=True):
            if isinstance(outcome, str):
                errors[k] = outcome
            else:
                found[k] = outcome
        return found

    def _labels(self, name: str) -> np.ndarray:
        """The use case's label of each of the detector's classes."""
        order = {each: k for k, each in enumerate(self._crew.classes)}
        return np.array([order[each] for each in self._detectors[name].spec.classes], np.int16)

    def _commit(self, unit: Unit, name: str, key: str, rows: Rows) -> ledger.Shard:
        """The shard, then the page that lists it; a disk that is full is waited for."""
        store = Store(self._crew.store)
        fingerprint = self._detectors[name].spec.fingerprint
        until = time.monotonic() + self._crew.patience
        while True:
            try:
                shard = store.write_shard(name, unit.split, key, rows)
                page = Page(
                    detector=name,
                    split=unit.split,
                    unit=unit.name,
                    origin=Origin(RUN, fingerprint, key),
                    shards=[shard],
                )
                ledger.write_page(store.folder, page)
                return shard
            except (OSError, SaodError) as error:
                if time.monotonic() > until:
                    raise SaodError(
                        f"{self._crew.store} cannot be written to ({error}): mend that and run again."
                    ) from None
                time.sleep(PAUSE)


def _detected(detector: Detector, images: list[np.ndarray]) -> list[Detections | str]:
    """Detections, or for an image that the detector raises on even when it is alone, why."""
    if not images:
        return []
    try:
        found = detector.detect(images)
        if len(found) != len(images):
            raise ValueError(f"{len(found)} results for {len(images)} images")
        return [_checked(each, len(detector.spec.classes)) for each in found]
    except Exception as error:  # whatever a detector raises is about its images until each was tried alone
        if _POISONED in str(error):
            os._exit(1)  # every image after it would fail, too: a new process does the unit again
        if len(images) == 1:
            return [_sentence(error)]
    return [outcome for image in images for outcome in _detected(detector, [image])]


def _checked(found: Detections, classes: int) -> Detections | str:
    """Detections as a shard takes them, or what is wrong with them."""
    count = len(found.score)
    shapes = {"label": (count,), "box": (count, 4), "score": (count,), "variance": (count, 4)}
    values = {name: getattr(found, name) for name in ("label", "box", "score", *UNCERTAINTIES, "variance")}
    arrays = {name: np.asarray(value, np.float32) for name, value in values.items() if value is not None}
    for name, array in arrays.items():
        if array.shape != shapes.get(name, (count,)):
            return f"The detector gave {name} of shape {array.shape} for {count} scores."
    if not (np.isfinite(arrays["box"]).all() and np.isfinite(arrays["score"]).all()):
        return "The detector gave a box or a score that is no number."
    label = np.asarray(found.label).astype(np.int16)
    if not np.isin(label, range(classes)).all():
        return f"The detector gave a label that is not below {classes}."
    return Detections(**(arrays | {"label": label}))


def _sentence(error: Exception) -> str:
    """An exception without what differs from process to process, so that the same failure is the same row."""
    return _ADDRESS.sub("0x…", " ".join(f"{type(error).__name__}: {error}".split()))


def _rows(
    pictures: list[Picture], found: list[Detections | None], errors: list[str | None], labels: np.ndarray
) -> Rows:
    """A unit's rows in the order of its pictures."""
    there = [each for each in found if each is not None]
    counts = [0 if each is None else len(each.score) for each in found]
    columns: dict[str, np.ndarray] = {
        "label": labels[np.concatenate([each.label for each in there])] if there else np.zeros(0, np.int16),
        "box": np.concatenate([each.box for each in there]) if there else np.zeros((0, 4), np.float32),
        "score": np.concatenate([each.score for each in there]) if there else np.zeros(0, np.float32),
    }
    for name in (*UNCERTAINTIES, "variance"):
        has = [each for each in there if getattr(each, name) is not None]
        if has and all(getattr(each, name) is not None for each in there if len(each.score)):
            columns[name] = np.concatenate([getattr(each, name) for each in has])
    return Rows(
        image_id=np.array([picture.image_id for picture in pictures], np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        columns=columns,
        status=["ok" if error is None else "failed" for error in errors],
        error=list(errors),
        corruption=[picture.corruption for picture in pictures],
    )
