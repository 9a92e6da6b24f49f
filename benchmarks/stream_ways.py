"""The ways of benchmarks.stream: the engine, an earlier engine in its own checkout, and bare loops."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import workspace
from benchmarks.watch import Measurement, Watch
from saod_ray.config import UseCase
from saod_ray.data.prepare import ImageRequest, prepare
from saod_ray.detect import registry
from saod_ray.engine.cluster import connected
from saod_ray.engine.job import Job
from saod_ray.engine.plan import Plan, PlanOptions
from saod_ray.engine.resources import ResourceOptions
from saod_ray.store.units import Unit

BATCH = 32  # images that a bare loop prepares at once
# how the engine of commit b40d690 is measured: its own code in all processes, watched by ours
OLD_ENGINE = """
import json, os, sys
from pathlib import Path
setting = json.loads(sys.argv[1])
from benchmarks.stream_ways import Setting, _planned, stream
from benchmarks.watch import Watch
from saod_ray.engine.cluster import connected
from saod_ray.engine.run import Sizes
sizes = Sizes(unit_images=setting.pop("unit_images"))
setting["weights"] = Path(setting["weights"])
with connected(None, cpus=os.cpu_count()):
    job, plan = _planned(Setting(**setting, sizes=sizes), "store")
    watch = Watch(len(job.specs))
    with watch.watching():
        stream(job, plan, sizes, watch.on_receipt)
    print("MEASURED", json.dumps(watch.measurement()._asdict()))
"""
SHARED = ("stand_in.py", "watch.py")  # of these benchmarks, used with the earlier engine too


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
    """The engine of a checkout of commit b40d690, in a process of its own."""
    folder = _overlay(checkout.resolve())
    command = [sys.executable, "-c", OLD_ENGINE, json.dumps(setting.absolute()._asdict())]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    # Ray's workers import from the current folder first
    finished = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    lines = [line for line in finished.stdout.splitlines() if line.startswith("MEASURED ")]
    if finished.returncode or not lines:
        raise SystemExit(f"The engine of {checkout} failed:\n{finished.stderr}")
    return Measurement(**json.loads(lines[-1].removeprefix("MEASURED ")))


def _overlay(checkout: Path) -> Path:
    """A folder of links to a checkout, but with our stand-in detectors and our way of measuring."""
    folder = workspace("stream").resolve() / "old-engine"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "benchmarks").mkdir(parents=True)
    for name in ("saod_ray", "tests"):
        (folder / name).symlink_to(checkout / name)
    ours = Path(__file__).parent
    theirs = [path for path in (checkout / "benchmarks").glob("*.py") if path.name not in SHARED]
    for path in (*theirs, *(ours / name for name in SHARED)):
        (folder / "benchmarks" / path.name).symlink_to(path)
    return folder


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
