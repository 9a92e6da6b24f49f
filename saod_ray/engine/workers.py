"""What runs in a detector's actor: it detects on the pictures of a unit and commits the shards it made."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
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


class Worker:
    """An actor that holds a group of detectors. It is not restarted by Ray: the driver replaces it."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._detectors: dict[str, Detector] = {}
        self._problem = ""
        try:
            self._build()
        except SaodError as error:
            self._problem = str(error)

    def _build(self) -> None:
        crew = self._crew
        for entry, spec in zip(crew.entries, crew.specs, strict=True):
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

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def work(
        self, unit: Unit, keys: dict[str, str], failures: dict[str, dict[int, str]], *parts: list[Picture]
    ) -> list[Receipt]:
        """Detect and commit, detector by detector; `failures` are images that are known to end a detector's process."""
        pictures = [picture for part in parts for picture in part]
        return [self._made(unit, name, key, failures.get(name, {}), pictures) for name, key in keys.items()]

    def attempt(self, name: str, start: int, stop: int, *parts: list[Picture]) -> None:
        """Detect on some of a unit's pictures and forget what was found: does it survive that?"""
        pictures = [picture for part in parts for picture in part][start:stop]
        _detected(self._detectors[name], [each.pixels for each in pictures if each.pixels is not None])

    def _made(self, unit: Unit, name: str, key: str, failures: dict[int, str], pictures: list[Picture]) -> Receipt:
        began = time.monotonic()
        known = [failures.get(k) or picture.error for k, picture in enumerate(pictures)]
        seen = [k for k, error in enumerate(known) if error is None]
        outcomes = _detected(self._detectors[name], [pictures[k].pixels for k in seen])
        found: list[Detections | None] = [None] * len(pictures)
        for k, outcome in zip(seen, outcomes, strict=True):
            if isinstance(outcome, str):
                known[k] = outcome
            else:
                found[k] = outcome
        rows = _rows(pictures, found, known, self._labels(name))
        shard = self._commit(unit, name, key, rows)
        return Receipt(unit, name, shard.images, shard.empty, shard.failed, shard.detections, time.monotonic() - began)

    def _labels(self, name: str) -> np.ndarray:
        """The use case's label of each of the detector's classes."""
        order = {each: k for k, each in enumerate(self._crew.classes)}
        return np.array([order[each] for each in self._detectors[name].spec.classes], np.int16)

    def _commit(self, unit: Unit, name: str, key: str, rows: Rows) -> ledger.Shard:
        """The shard, then the page that lists it; a disk that is full is waited for."""
        store = Store(self._crew.store)
        fingerprint = self._detectors[name].spec.fingerprint
        until = time.monotonic() + PATIENCE
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


def _detected(detector: Detector, images: Sequence[np.ndarray | None]) -> list[Detections | str]:
    """Detections, or for an image that the detector raises on even when it is alone, why."""
    given = [image for image in images if image is not None]
    if not given:
        return []
    try:
        return [_checked(each) for each in detector.detect(given)]
    except Exception as error:  # whatever a detector raises is about its images until each was tried alone
        if len(given) == 1:
            return [" ".join(f"{type(error).__name__}: {error}".split())]
    return [outcome for image in given for outcome in _detected(detector, [image])]


def _checked(found: Detections) -> Detections | str:
    numbers = (found.box, found.score)
    if all(np.isfinite(each).all() for each in numbers):
        return found
    return "The detector gave a box or a score that is no number."


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
        values = [value for each in there if (value := getattr(each, name)) is not None]
        if values and len(values) == len(there):
            columns[name] = np.concatenate(values)
    return Rows(
        image_id=np.array([picture.image_id for picture in pictures], np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        columns=columns,
        status=["ok" if error is None else "failed" for error in errors],
        error=list(errors),
        corruption=[picture.corruption for picture in pictures],
    )
