"""Scoring on a cluster: what tasks leave in the cache is what scoring in one process computes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import import_golden
from toy_runs import scored

from saod_ray.config import ScoreSettings
from saod_ray.engine import scoring
from saod_ray.engine.cluster import connected
from saod_ray.engine.scoring import score_ahead
from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.store import Store


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with connected(None, cpus=2):
        yield


@pytest.fixture
def store(tmp_path) -> Path:
    import_golden(str(tmp_path / "store"), shard_images=16)
    return tmp_path / "store"


def test_nothing_is_left_to_do(store, tmp_path) -> None:
    shutil.copytree(store, tmp_path / "other")
    reported: list[tuple[int, int]] = []
    opened = Store.open(str(store))
    score_ahead(Benchmark(opened, ScoreSettings()), ["toy"], lambda done, total: reported.append((done, total)))
    shards = sum(len(opened.shards("toy", split)) for split in opened.splits)
    assert shards > 2 * len(opened.splits) and reported == [(k + 1, shards + 1) for k in range(shards + 1)]
    shutil.rmtree(store / "detections")  # so that nothing can be computed from them
    assert scored(store) == scored(tmp_path / "other")


def test_what_scoring_refuses_is_refused(store) -> None:
    next((store / "ledger" / "toy" / "id").iterdir()).unlink()
    with pytest.raises(SaodError, match=r"id \(240 images\) missing"):
        score_ahead(Benchmark(Store.open(str(store)), ScoreSettings()), ["toy"])


def test_tasks_that_hang_are_given_up(store, tmp_path, monkeypatch) -> None:
    """As those of a node that is cut off; whoever scores computes what is missing."""
    shutil.copytree(store, tmp_path / "other")
    monkeypatch.setattr(scoring, "PATIENCE", 3.0)
    stopped: list[psutil.Process] = []

    def freeze(done: int, total: int) -> None:
        for process in psutil.Process().children(recursive=True):
            if process not in stopped and " ".join(process.cmdline()).startswith("ray::"):
                process.suspend()
                stopped.append(process)

    try:
        score_ahead(Benchmark(Store.open(str(store)), ScoreSettings()), ["toy"], freeze)
    finally:
        for process in stopped:
            process.kill()  # a stopped process would be given later tasks
    assert stopped
    assert scored(store) == scored(tmp_path / "other")
