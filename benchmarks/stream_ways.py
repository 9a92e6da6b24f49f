"""The ways of benchmarks.stream: the engine, an earlier engine in its own checkout, and bare loops."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
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
from saod_ray.data.prepare import ImageRequest, prepare
from saod_ray.detect import registry
from saod_ray.engine.cluster import connected
from saod_ray.engine.job import Job
from saod_ray.engine.plan import Plan, PlanOptions
from saod_ray.engine.resources import ResourceOptions
from saod_ray.store.units import Unit

BATCH = 32  # images that a bare loop prepares at once
SKIPPED = 4  # units at the start that do not count: they were prepared while the actors started
# what the engine of commit b40d690 is measured with, in its own checkout
OLD_ENGINE = """
import json, os, sys
from pathlib import Path
setting = json.loads(sys.argv[1])
from benchmarks.stream_ways import Setting, streamed
from saod_ray.engine.cluster import connected
from saod_ray.engine.run import Sizes
sizes = Sizes(unit_images=setting.pop("unit_images"))
setting["weights"] = Path(setting["weights"])
with connected(None, cpus=os.cpu_count()):
    print("MEASURED", json.dumps(streamed(Setting(**setting, sizes=sizes))._asdict()))
"""


class Setting(NamedTuple):
    """What is detected on what."""

    title: str
    case: str
    data: str | None
    detectors: str
    weights: str
    split: str
    images: int
    unit_images: int

    @property
    def severity(self) -> int:
        return Unit(self.split, 0, 0).severity

    def absolute(self) -> Setting:
        """The same from any current folder."""
        return self._replace(
            case=_absolute(self.case),
            data=None if self.data is None else str(Path(self.data).resolve()),
            detectors=",".join(map(_absolute, self.detectors.split(","))),
            weights=str(Path(self.weights).resolve()),
        )


def _absolute(name: str) -> str:
    """The path of a TOML file; a name stays as it is."""
    return str(Path(name).resolve()) if name.endswith(".toml") else name


class Measurement(NamedTuple):
    """Of one way: images per second, CPU-milliseconds per image, and seconds until the first unit is done."""

    rate: float
    cpu_ms: float
    first_unit: float = 0.0
    store_mb: float = 0.0
    driver_ms: float = 0.0  # CPU of the driver per unit

    def __str__(self) -> str:
        more = f"  first unit after {self.first_unit:5.1f} s  {self.store_mb:5.0f} MB" if self.first_unit else ""
        return f"{self.rate:8.1f} images/s {self.cpu_ms:8.1f} CPU-ms per image{more}"


class Watch:
    """Samples the object store and the CPU time of this process and its children, and notes when units are done."""

    def __init__(self, detectors: int) -> None:
        self._detectors, self._left = detectors, dict[Unit, int]()
        self.done: list[tuple[float, int]] = []  # when, images
        self.peak = 0.0
        self._spent: dict[int, float] = {}
        self._over, self._lock = threading.Event(), threading.Lock()
        self._sampling = 0.0  # CPU of the sampling thread
        self._at = {"cpu": 0.0, "own": 0.0}

    def on_receipt(self, receipt: Any) -> None:
        """A unit is done when its last detector is."""
        left = self._left.pop(receipt.unit, self._detectors) - 1
        if left:
            self._left[receipt.unit] = left
            return
        self.done.append((time.monotonic(), receipt.images))
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

    def measurement(self) -> Measurement:
        """From the unit after those skipped to the last."""
        skipped = min(SKIPPED, len(self.done) // 2)
        since = self.done[skipped - 1][0]
        counted = self.done[skipped:]
        images, seconds = sum(images for _, images in counted), counted[-1][0] - since
        return Measurement(
            rate=images / seconds,
            cpu_ms=1e3 * (self._cpu() - self._at["cpu"]) / images,
            first_unit=self.done[0][0] - self._began,
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
    ray: Any = importlib.import_module("ray")
    name = "object_store_memory"
    return float(ray.cluster_resources()[name] - ray.available_resources().get(name, 0))


def measure_engine(setting: Setting) -> Measurement:
    """The engine on a private cluster, into a store of its own."""
    with connected(None, cpus=os.cpu_count()):
        from saod_ray.engine.run import Run

        job, plan = _planned(setting, "store")
        watch = Watch(len(job.specs))
        with watch.watching():
            Run(job, plan, ResourceOptions(unit_images=setting.unit_images)).detect(watch.on_receipt)
        return watch.measurement()


def measure_old_engine(setting: Setting, checkout: Path) -> Measurement:
    """The engine of a checkout of commit b40d690, with its own code in all processes."""
    command = [sys.executable, "-c", OLD_ENGINE, json.dumps(setting.absolute()._asdict())]
    env = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    # Ray's workers import from the current folder first
    finished = subprocess.run(command, env=env, cwd=checkout, capture_output=True, text=True, check=False)
    lines = [line for line in finished.stdout.splitlines() if line.startswith("MEASURED ")]
    if finished.returncode or not lines:
        raise SystemExit(f"The engine of {checkout} failed:\n{finished.stderr}")
    figures = json.loads(lines[-1].removeprefix("MEASURED "))
    figures["first_unit"] = figures.pop("starting")
    return Measurement(**figures)


def _planned(setting: Setting, store: str) -> tuple[Job, Plan]:
    place = workspace("stream") / store
    shutil.rmtree(place, ignore_errors=True)
    case = UseCase.load(setting.case, setting.data)
    job = Job.from_use_case(case, str(place), setting.detectors, Path(setting.weights))
    plan = job.plan(setting.unit_images, PlanOptions(setting.images))
    plan.units = [planned for planned in plan.units if planned.unit.split == setting.split]
    return job, plan


def bare_loops(setting: Setting, processes: int) -> Measurement:
    """Prepare once, call all detectors in turn, keep nothing; processes share the images and begin together."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(processes, spawn) as pool:
        barrier = manager.Barrier(processes)
        loops = [pool.submit(_loop, setting, k, processes, barrier) for k in range(processes)]
        measured = [loop.result() for loop in loops]
    return Measurement(sum(one.rate for one in measured), float(np.mean([one.cpu_ms for one in measured])))


def _loop(setting: Setting, number: int, processes: int, barrier: Any) -> Measurement:
    job, _ = _planned(setting, f"loop-{number}")
    images = job.inputs.images(setting.split)[: setting.images]
    rows = images.select("image_id", "file_name").iter_rows()
    requests = [ImageRequest(image_id, name) for image_id, name in rows][number::processes]
    batches = [requests[k : k + BATCH] for k in range(0, len(requests), BATCH)]
    classes = job.store.description.classes
    detectors = [registry.build(entry, classes, job.weights, batch_size=1, threads=1) for entry in job.entries]

    def detect(batch: list[ImageRequest]) -> None:
        prepared = prepare(job.prepare_options, batch, setting.severity)
        pixels = [image.pixels for image in prepared if image.pixels is not None]
        for detector in detectors:
            detector.detect(pixels)

    detect(batches[0])
    barrier.wait()
    began, cpu = time.monotonic(), time.process_time()
    for batch in batches:
        detect(batch)
    seconds = time.monotonic() - began
    return Measurement(len(requests) / seconds, 1e3 * (time.process_time() - cpu) / len(requests))
