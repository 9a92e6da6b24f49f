"""The actors of a run's pipeline: they detect on the images of a unit and commit its shards."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from saod_ray.config import DetectorSpec, base_fingerprint
from saod_ray.data.prepare import PreparedImage
from saod_ray.detect import registry
from saod_ray.detect.detections import Detections, Detector
from saod_ray.detect.outcomes import outcomes, sentence
from saod_ray.detect.registry import Entry
from saod_ray.engine.attempts import FATAL, Guard, TaskHistory
from saod_ray.engine.pipeline import PreparedUnit, UnitList, WorkerProblem, encode_message
from saod_ray.errors import SaodError, os_reason
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page, Shard
from saod_ray.store.rows import UNCERTAINTIES, Rows
from saod_ray.store.store import Store
from saod_ray.store.units import RUN, Unit

WRITE_PATIENCE = 120.0  # seconds for which a worker waits for a full disk or an unreachable store
PAUSE = 1.0
READY = "ready"  # message of a worker that waits until the driver has removed what the run replaces


class Receipt(NamedTuple):
    """A committed shard."""

    unit: Unit
    detector: str
    images: int
    empty: int
    failed: int
    detections: int
    seconds: float


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker needs to know."""

    entries: tuple[Entry, ...]
    specs: tuple[DetectorSpec, ...]
    classes: tuple[str, ...]
    weights: Path
    store: str
    store_digest: str
    device: str
    batch_size: int
    threads: int
    replaces: bool = False  # commits wait until the driver has removed what the run replaces
    patience: float = WRITE_PATIENCE


class Meters:
    """Counters for Ray's dashboard and Prometheus."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter  # a driver sets Ray's environment before Ray is imported

        tags = ("detector", "split")
        self._images = Counter("saod_ray_images", "Images of committed shards.", tag_keys=(*tags, "outcome"))
        self._detections = Counter("saod_ray_detections", "Detections of committed shards.", tag_keys=tags)
        self._seconds = Counter("saod_ray_seconds", "Seconds of actors.", tag_keys=tags)
        self._restarts = Counter("saod_ray_restarts", "Processes that ended with a unit in hand.", tag_keys=tags)

    def count(self, receipt: Receipt) -> None:
        """Count a committed shard."""
        tags = {"detector": receipt.detector, "split": receipt.unit.split}
        images_by_outcome = {
            "detected": receipt.images - receipt.empty - receipt.failed,
            "empty": receipt.empty,
            "failed": receipt.failed,
        }
        for outcome, images in images_by_outcome.items():
            if images:
                self._images.inc(images, {**tags, "outcome": outcome})
        if receipt.detections:
            self._detections.inc(receipt.detections, tags)
        self._seconds.inc(receipt.seconds, tags)

    def count_restart(self, detector: str, split: str) -> None:
        """Count a process that ended with a unit in hand."""
        self._restarts.inc(1, {"detector": detector, "split": split})


class DetectorWorker:
    """An actor that holds all detectors of a pipeline, commits one shard per unit and detector, and yields receipts."""

    def __init__(self, config: WorkerConfig, units: UnitList, guard: Guard) -> None:
        self._config, self._units, self._guard = config, units, guard
        self._meters = Meters()
        self._detectors: dict[str, Detector] = {}
        self._problem = store_problem(config) or guard.build([entry.name for entry in config.entries], self._build_all)

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        """Detect on a prepared unit, and yield one receipt per detector, or the problem that ends the run."""
        if self._problem:
            yield encode_message(WorkerProblem(self._problem))
            return
        number, images = PreparedUnit.from_table(batch)
        if not images:
            return  # the run stops
        if self._config.replaces:
            # at every unit, because a replay must yield as many messages as the original
            yield encode_message(READY)
            self._guard.wait_for_commits()
        request = self._units[number]
        for detector, shard in request.shards.items():
            try:
                receipt = self._process(request.unit, detector, shard, images)
            except SaodError as error:
                yield encode_message(WorkerProblem(str(error)))
                return
            if receipt is None:
                return
            yield encode_message(receipt)

    # detectors ----------------------------------------------------------------------------------------------

    def _build_all(self) -> None:
        for entry, spec in zip(self._config.entries, self._config.specs, strict=True):
            self._detectors[entry.name] = self._build(entry, spec)

    def _build(self, entry: Entry, spec: DetectorSpec) -> Detector:
        config = self._config
        try:
            detector = registry.build(
                entry, config.classes, config.weights, config.device, config.batch_size, config.threads
            )
        except SaodError:
            raise
        except Exception as error:  # a user's class may raise anything
            raise SaodError(
                f"'{entry.name}' cannot be built ({sentence(error)}): fix its class or options and run again."
            ) from error
        if detector.spec.fingerprint != base_fingerprint(spec.fingerprint):
            raise SaodError(
                f"The weights, config or packages of '{entry.name}' on node {socket.gethostname()} differ from those of the "
                "driver: install the same files and versions on every node."
            )
        return detector

    # units --------------------------------------------------------------------------------------------------

    def _process(self, unit: Unit, detector: str, shard: str, images: list[PreparedImage]) -> Receipt | None:
        """Detect and commit, unless the ledger lists the shard already; returns None if the run is stopping."""
        began = time.monotonic()
        task = f"images {unit.name} of {unit.split} with '{detector}'"
        history = self._guard.begin(task)
        if history.is_stopping:
            return None
        if history.deaths:
            self._meters.count_restart(detector, unit.split)
        committed = self._listed_shard(unit, detector, shard) if history.is_replay else None
        if committed is None:
            detections, errors = self._detect(task, history, detector, images)
            rows = make_rows(images, detections, errors, self._labels(detector))
            committed = self._commit(unit, detector, shard, rows)
        self._guard.end(task)
        counts = (committed.images, committed.empty, committed.failed, committed.detections)
        receipt = Receipt(unit, detector, *counts, time.monotonic() - began)
        self._meters.count(receipt)
        return receipt

    def _detect(
        self, task: str, history: TaskHistory, name: str, images: list[PreparedImage]
    ) -> tuple[list[Detections | None], list[str | None]]:
        """Per image its detections or None, and None or the reason."""
        detector, batch_size = self._detectors[name], self._config.batch_size

        def work(positions: Sequence[int]) -> list[Detections | str]:
            pixels = [images[position].pixels for position in positions]
            return outcomes(detector, [array for array in pixels if array is not None], batch_size)

        readable = [position for position, image in enumerate(images) if image.error is None]
        results = self._guard.run(task, history, readable, work, is_exact_alone=batch_size == 1)
        detections: list[Detections | None] = []
        errors: list[str | None] = []
        for position, image in enumerate(images):
            outcome = image.error or results.get(position, FATAL)
            detections.append(None if isinstance(outcome, str) else outcome)
            errors.append(outcome if isinstance(outcome, str) else None)
        return detections, errors

    def _labels(self, detector: str) -> np.ndarray:
        """The use case's label of each of the detector's classes, int16."""
        labels = {name: label for label, name in enumerate(self._config.classes)}
        return np.array([labels[name] for name in self._detectors[detector].spec.classes], np.int16)

    # the store ----------------------------------------------------------------------------------------------

    def _listed_shard(self, unit: Unit, detector: str, shard: str) -> Shard | None:
        """The shard, if a process that died later has committed it."""
        page = ledger.find_page(Store(self._config.store).folder, detector, unit.split, unit.name)
        return page.shards[0] if page is not None and page.origin.sha256 == shard else None

    def _commit(self, unit: Unit, detector: str, shard_name: str, rows: Rows) -> Shard:
        """Write the shard, then the page that lists it; wait while the disk is full. Raises SaodError."""
        store = Store(self._config.store)
        fingerprint = next(spec.fingerprint for spec in self._config.specs if spec.name == detector)
        until = time.monotonic() + self._config.patience
        while True:
            try:
                shard = store.write_shard(detector, unit.split, shard_name, rows)
                origin = Origin(RUN, fingerprint, shard_name)
                page = Page(detector=detector, split=unit.split, unit=unit.name, origin=origin, shards=[shard])
                ledger.write_page(store.folder, page)
                return shard
            except (OSError, SaodError) as error:
                if time.monotonic() > until:
                    raise SaodError(
                        f"{self._config.store} cannot be written to ({os_reason(error)}): fix that and run the same command to resume."
                    ) from error
                time.sleep(PAUSE)


def store_problem(config: WorkerConfig) -> str:
    """A sentence if this node sees another store than the driver, else an empty string."""
    try:
        if Store(config.store).identity() == config.store_digest:
            return ""
    except (OSError, SaodError) as error:
        reason = f"it cannot be read: {os_reason(error)}"
    else:
        reason = "there is another one"
    return (
        f"The driver's store {config.store} is not on node {socket.gethostname()} ({reason}): give --store a place that all "
        "nodes share, such as s3://BUCKET/STORE."
    )


def make_rows(
    images: Sequence[PreparedImage],
    detections: Sequence[Detections | None],
    errors: Sequence[str | None],
    labels: np.ndarray,
) -> Rows:
    """A unit's rows, in the order of its images. `labels` maps the detector's labels to the use case's."""
    present = [one for one in detections if one is not None]
    columns: dict[str, np.ndarray] = {
        "label": labels[np.concatenate([one.label for one in present])] if present else np.zeros(0, np.int16),
        "box": np.concatenate([one.box for one in present]) if present else np.zeros((0, 4), np.float32),
        "score": np.concatenate([one.score for one in present]) if present else np.zeros(0, np.float32),
    }
    for name in (*UNCERTAINTIES, "variance"):
        arrays = [getattr(one, name) for one in present if getattr(one, name) is not None]
        if arrays and all(getattr(one, name) is not None for one in present if len(one.score)):
            columns[name] = np.concatenate(arrays)
    counts = [0 if one is None else len(one.score) for one in detections]
    return Rows(
        image_id=np.array([image.image_id for image in images], np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        columns=columns,
        status=["ok" if error is None else "failed" for error in errors],
        error=list(errors),
        corruption=[image.corruption for image in images],
    )
