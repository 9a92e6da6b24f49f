"""Scoring on a cluster: what tasks leave in the cache is what scoring in one process computes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import import_golden
from toy_runs import scored

from saod_ray.config import ScoreSettings
from saod_ray.engine.cluster import connected
from saod_ray.engine.scoring import score_ahead
from saod_ray.errors import SaodError
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
    told: list[tuple[int, int]] = []
    opened = Store.open(str(store))
    score_ahead(opened, ["toy"], ScoreSettings(), False, None, lambda done, total: told.append((done, total)))
    shards = sum(len(opened.shards("toy", split)) for split in opened.splits)
    assert shards > 2 * len(opened.splits) and told == [(k + 1, shards + 1) for k in range(shards + 1)]
    shutil.rmtree(store / "detections")  # so that nothing can be computed from them
    assert scored(store) == scored(tmp_path / "other")


def test_what_scoring_refuses_is_refused(store) -> None:
    next((store / "ledger" / "toy" / "id").iterdir()).unlink()
    with pytest.raises(SaodError, match=r"id \(240 images\) missing"):
        score_ahead(Store.open(str(store)), ["toy"], ScoreSettings(), False, None, lambda done, total: None)
