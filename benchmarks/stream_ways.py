"""The ways of benchmarks.stream: the engine in one stream or one pass a detector, bare loops, and Ray Data."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.measure import workspace
from saod_ray.config import UseCase
from saod_ray.detect import registry
from saod_ray.detect.detections import Detector
from saod_ray.detect.registry import Entry
from saod_ray.data.prepare import Wanted, prepare
from saod_ray.engine.plan import PlanOptions, Plan
from saod_ray.engine.run import CPU_ACTOR, CPU_DECODE, Job, ResourceOptions, stream
from saod_ray.engine.workers import Receipt
from saod_ray.store.units import Unit

BATCH = 32  # images that the peers decode at once, as the engine does
SKIPPED = 4  # units at the start that do not count: they were decoded while the actors started


class Setting(NamedTuple):
    """What is detected on what."""

    title: str
    case: str
    data: str | None
    detectors: str
    weights: Path
    split: str
    images: int
    sizes: ResourceOptions = ResourceOptions(unit_images=BATCH)

    @property
    def severity(self) -> int:
        return Unit(self.split, 0, 0).severity


class Figures(NamedTuple):
    """Of one way to do it: images a second, CPU-milliseconds an image, and what came before the first of them."""

    rate: float
    cpu_ms: float
    starting: float = 0.0
    store_mb: float = 0.0
    driver_ms: float = 0.0  # CPU of this process, a unit

    def __str__(self) -> str:
        return f"{self.rate:8.1f} images/s {self.cpu_ms:8.1f} CPU-ms an image"


class Watch:
    """Samples the object store and the CPU time of this process and all below it, and notes when units are done."""

    def __init__(self, detectors: int) -> None:
        self._detectors, self._left = detectors, dict[Unit, int]()
        self.done: list[tuple[float, int]] = []  # when, images
        self.peak = 0.0
        self._spent: dict[int, float] = {}
        self._over, self._lock = threading.Event(), threading.Lock()
        self._sampling = 0.0  # CPU of the thread that looks
        self._at = {"cpu": 0.0, "own": 0.0}

    def told(self, receipt: Receipt) -> None:
        """A unit is done when its last detector is."""
        left = self._left.pop(receipt.unit, self._detectors) - 1
        if left:
            self._left[receipt.unit] = left
        else:
            self.landed(receipt.images)

    def landed(self, images: int) -> None:
        """So many images have been through every detector."""
        self.done.append((time.monotonic(), images))
        if len(self.done) == SKIPPED:
            self._at = {"cpu": self._cpu(), "own": self._own()}

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        self._began = time.monotonic()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def figures(self) -> Figures:
        """From the unit after those skipped to the last."""
        since = self.done[SKIPPED - 1][0]
        counted = self.done[SKIPPED:]
        images, seconds = sum(images for _, images in counted), counted[-1][0] - since
        return Figures(
            rate=images / seconds,
            cpu_ms=1e3 * (self._cpu() - self._at["cpu"]) / images,
            starting=self.done[0][0] - self._began,
            store_mb=self.peak / 1e6,
            driver_ms=1e3 * (self._own() - self._at["own"]) / len(counted),
        )

    def _own(self) -> float:
        return time.process_time() - self._sampling

    def _sample(self) -> None:
        while not self._over.wait(0.2):
            self.peak = max(self.peak, _store_bytes())
            self._cpu()
            self._sampling = time.thread_time()

    def _cpu(self) -> float:
        """So far, without the sampling; what a process spends between the last look and its end is lost."""
        with self._lock:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    self._spent[process.pid] = sum(process.cpu_times()[:2])
            return sum(self._spent.values()) + self._own()


def _store_bytes() -> float:
    """What the cluster's object store holds; Ray reports it as a resource that is not available."""
    ray: Any = importlib.import_module("ray")  # which has few types
    name = "object_store_memory"
    return float(ray.cluster_resources()[name] - ray.available_resources().get(name, 0))


def streamed(setting: Setting) -> Figures:
    """The engine, on the cluster that is connected, into a store of its own."""
    job, made = _planned(setting, "store")
    watch = Watch(len(job.specs))
    with watch.watching():
        stream(job, made, setting.sizes, watch.told)
    return watch.figures()


def _planned(setting: Setting, store: str) -> tuple[Job, Plan]:
    place = workspace("stream") / store
    shutil.rmtree(place, ignore_errors=True)
    case = UseCase.load(setting.case, setting.data)
    job = Job.from_use_case(case, str(place), setting.detectors, setting.weights, seed=0)
    made = job.plan(setting.sizes, PlanOptions(setting.images))
    made.work = [each for each in made.work if each.unit.split == setting.split]
    return job, made


def one_by_one(setting: Setting) -> Figures:
    """The engine once for each detector: an image takes the sum of what it takes each time."""
    passes = [streamed(setting._replace(detectors=each)) for each in setting.detectors.split(",")]
    return Figures(1 / sum(1 / each.rate for each in passes), sum(each.cpu_ms for each in passes))


def bare_loops(setting: Setting, processes: int) -> Figures:
    """Decode and corrupt once, call the six in turn, keep nothing; processes share the images and begin as one."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(processes, spawn) as pool:
        barrier = manager.Barrier(processes)
        loops = [pool.submit(_loop, setting, k, processes, barrier) for k in range(processes)]
        found = [each.result() for each in loops]
    return Figures(sum(each.rate for each in found), float(np.mean([each.cpu_ms for each in found])))


def _loop(setting: Setting, number: int, of: int, barrier: Any) -> Figures:
    job, _ = _planned(setting, f"loop-{number}")
    wanted = _wanted(job, setting)[number::of]
    batches = [wanted[k : k + BATCH] for k in range(0, len(wanted), BATCH)]
    built = _built(job.entries, job.store.description.classes, job.weights)

    def once(batch: list[Wanted]) -> None:
        _, found = prepare(job.case.root, batch, setting.severity, 0)
        for detector in built:
            detector.detect([each.pixels for each in found if each.pixels is not None])

    once(batches[0])
    barrier.wait()
    began, cpu = time.monotonic(), time.process_time()
    for batch in batches:
        once(batch)
    return Figures(len(wanted) / (time.monotonic() - began), 1e3 * (time.process_time() - cpu) / len(wanted))


def _wanted(job: Job, setting: Setting) -> list[Wanted]:
    images = job.inputs.images(setting.split)[: setting.images]
    return [Wanted(number, name, None) for number, name in images.select("image_id", "file_name").iter_rows()]


def _built(entries: list[Entry], classes: list[str], weights: Path) -> list[Detector]:
    return [registry.build(entry, classes, weights, threads=1) for entry in entries]


class Holder:
    """An actor of the Ray Data peer: all detectors, and no shards are written."""

    def __init__(self, entries: list[Entry], classes: list[str], weights: Path) -> None:
        self._detectors = _built(entries, classes, weights)

    def detect(self, block: Any) -> int:
        """How many images a block has."""
        from ray.data.block import BlockAccessor

        images = list(BlockAccessor.for_block(block).to_numpy("pixels"))
        for detector in self._detectors:
            detector.detect(images)
        return len(images)


def ray_data(setting: Setting, actors: int) -> Figures:
    """Ray Data decodes and corrupts; references to its blocks go to as many actors as the engine has."""
    ray: Any = importlib.import_module("ray")
    job, _ = _planned(setting, "data")
    held = (job.entries, job.store.description.classes, job.weights)
    holders = [ray.remote(num_cpus=CPU_ACTOR)(Holder).remote(*held) for _ in range(actors)]
    busy: dict[Any, Any] = {}
    watch = Watch(1)
    with watch.watching():
        for block in _blocks(job, setting):
            holder = holders.pop() if holders else _freed(busy, watch)
            busy[holder.detect.remote(block)] = holder
        while busy:
            holders.append(_freed(busy, watch))
        for holder in holders:
            ray.kill(holder)
    return watch.figures()


def _blocks(job: Job, setting: Setting) -> Iterator[Any]:
    import ray

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    rows = [each._asdict() for each in _wanted(job, setting)]
    root, severity = job.case.root, setting.severity  # a job cannot be sent
    blocks = ray.data.from_items(rows, override_num_blocks=len(rows) // BATCH)

    def decoded(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        wanted = [
            Wanted(int(k), str(name), None) for k, name in zip(batch["image_id"], batch["file_name"], strict=True)
        ]
        _, found = prepare(root, wanted, severity, 0)
        return {"image_id": batch["image_id"], "pixels": [each.pixels for each in found]}

    prepared = blocks.map_batches(decoded, batch_size=BATCH, num_cpus=CPU_DECODE)
    for bundle in prepared.iter_internal_ref_bundles():
        yield from bundle.block_refs


def _freed(busy: dict[Any, Any], watch: Watch) -> Any:
    import ray

    (call,), _ = ray.wait(list(busy), num_returns=1)
    watch.landed(ray.get(call))
    return busy.pop(call)
