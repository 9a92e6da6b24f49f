"""Runs of toy detectors on a tiny use case, and what they leave in a store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toys import content

from saod_ray.config import ScoreSettings, UseCase
from saod_ray.data.images import decode
from saod_ray.data.shapes import Recipe, make
from saod_ray.engine.attempts import DEFAULT_HANG, HangLimit
from saod_ray.engine.driver import Callbacks
from saod_ray.engine.job import Job
from saod_ray.engine.plan import ALL_IMAGES, Plan, PlanOptions
from saod_ray.engine.resources import ResourceOptions
from saod_ray.engine.run import Run, RunStatistics
from saod_ray.engine.workers import Receipt
from saod_ray.report.results import results
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.seals import encode_json
from saod_ray.store.store import Store

PER_DETECTOR = 56  # images of all splits
PLAIN = {"a": {}, "b": {"shift": 1.0}, "c": {"shift": 2.0}}


def tiny(factory: pytest.TempPathFactory) -> Path:
    """The data of all tests here: 6 images in val, 8 in id, 12 in ood."""
    root = factory.getbasetemp() / "engine-data"
    make(str(root), Recipe(0, 0.02), lambda done, total: None, workers=1)
    return root


def own_copy(data: Path, place: Path) -> Path:
    shutil.copytree(data, place, ignore=shutil.ignore_patterns("train"))
    return place


def toml(folder: Path, detectors: dict[str, dict[str, Any]]) -> Path:
    """A file of toy detectors by name, with their options; the class is next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).parent / "toys.py", folder / "toys.py")
    tables = [
        f'[{name}]\nbackend = "toys:Toy"\noptions = {{ '
        + ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
        + " }\n"
        for name, options in detectors.items()
    ]
    (folder / "detectors.toml").write_text("".join(tables))
    return folder / "detectors.toml"


def job(
    data: Path, store: Path, detectors: dict[str, dict[str, Any]] | None = None, seed: int = 0, batch_size: int = 2
) -> Job:
    file = toml(store.parent / f"{store.name}-detectors", PLAIN if detectors is None else detectors)
    case = UseCase.load("shapes", str(data))
    return Job.from_use_case(case, str(store), str(file), store.parent, seed=seed, batch_size=batch_size)


def detect(
    work: Job,
    resources: ResourceOptions,
    plan: Plan | None = None,
    on_receipt: Callable[[Receipt], None] = lambda receipt: None,
    hang: HangLimit = DEFAULT_HANG,
    may_grow: bool = False,
) -> RunStatistics:
    """Run the pipelines of a plan, without compaction."""
    plan = work.plan(resources.unit_images) if plan is None else plan
    return Run(work, plan, resources, may_grow=may_grow).detect(on_receipt, Callbacks(), hang)


def done(
    work: Job,
    resources: ResourceOptions | None = None,
    options: PlanOptions = ALL_IMAGES,
    *,
    plan: Plan | None = None,
    on_receipt: Callable[[Receipt], None] = lambda receipt: None,
    hang: HangLimit = DEFAULT_HANG,
    may_grow: bool = False,
) -> list[Receipt]:
    """Run on the connected cluster, as the command does."""
    resources = resources or ResourceOptions(actors=(1, 1), batch_size=2, unit_images=5)
    plan = plan or work.plan(resources.unit_images, options)
    receipts: list[Receipt] = []

    def collect(receipt: Receipt) -> None:
        receipts.append(receipt)
        on_receipt(receipt)

    if plan.units:
        detect(work, resources, plan, collect, hang, may_grow)
    work.compact()
    return receipts


def files(store: Path) -> dict[str, bytes]:
    """What must not depend on how a run went."""
    places = [path for name in ("detections", "ledger") for path in sorted((store / name).rglob("*"))]
    return {str(path.relative_to(store)): path.read_bytes() for path in places if path.is_file()}


def stamps(store: Path) -> dict[str, int]:
    places = [path for name in ("detections", "ledger") for path in sorted((store / name).rglob("*"))]
    return {str(path.relative_to(store)): path.stat().st_mtime_ns for path in places}


def scored(store: Path) -> bytes:
    benchmark = Benchmark(Store.open(str(store)), ScoreSettings(), False)
    scores = benchmark.score(benchmark.store.detectors(), lambda done, total: None)
    return encode_json(results(benchmark.store, ScoreSettings(), scores, False))


def contents(data: Path, folder: str) -> list[int]:
    """The toys' names of a folder's images, in their order."""
    return [content(decode(path.read_bytes(), path.name)) for path in sorted((data / "shapes" / folder).iterdir())]


def failed(store: Path, detector: str) -> dict[tuple[str, int], str]:
    """(split, image id) → why, of all failed images."""
    opened = Store.open(str(store))
    errors = {}
    for split in opened.splits:
        for shard in opened.shards(detector, split):
            rows = opened.read_shard(detector, split, shard)
            errors_by_image = zip(rows.image_id.tolist(), rows.error, strict=True)
            errors |= {(split, image_id): error for image_id, error in errors_by_image if error is not None}
    return errors
