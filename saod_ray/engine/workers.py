"""What runs in a detector's actor: it detects on the pictures of a unit and commits the shards it made."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from saod_ray.config import DetectorSpec
from saod_ray.detect import registry
from saod_ray.detect.detections import Detections, Detector
from saod_ray.detect.outcomes import PoisonedError, outcomes, sentence
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
    store_digest: str
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
        self._problem = _other_store(crew)
        for entry, spec in zip(crew.entries, crew.specs, strict=True):
            try:
                self._build(entry, spec)
            except SaodError as error:
                self._problem = str(error)
            except Exception as error:  # a user's class may raise anything
                self._problem = f"'{entry.name}' cannot be built ({sentence(error)}): mend that and run again."

    def _build(self, entry: Entry, spec: DetectorSpec) -> None:
        crew = self._crew
        built = registry.build(entry, crew.classes, crew.weights, crew.device, crew.batch_size, crew.threads)
        if built.spec.fingerprint != spec.fingerprint:
            raise SaodError(
                f"The weights, config or packages of '{entry.name}' are others here than where the run was started: have "
                "the same files and versions on every node."
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
        try:
            made = outcomes(detector, images, self._crew.batch_size)
        except PoisonedError:
            os._exit(1)  # a new process does the unit again
        for k, outcome in zip(good, made, strict=True):
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


def _other_store(crew: Crew) -> str:
    """What to do where this node sees another store than the driver does, or nothing."""
    try:
        if Store(crew.store).identity() == crew.store_digest:
            return ""
    except (OSError, SaodError) as error:
        reason = f"it cannot be read: {error}"
    else:
        reason = "there is another one"
    return (
        f"The store {crew.store} of the driver is not there on node {socket.gethostname()} ({reason}): give --store a "
        "place that all nodes share, like s3://BUCKET/STORE."
    )


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
