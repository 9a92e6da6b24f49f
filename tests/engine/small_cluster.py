"""Fixtures of tests that run toy detectors on a small cluster, and what a finished store must look like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_runs import PER_DETECTOR, done, job, tiny

from saod_ray.engine.cluster import connected
from saod_ray.store.store import Store
from saod_ray.store.verify import verify

SPLITS = ("val", "pseudo-ood", "id", "id-c1", "id-c3", "id-c5", "ood")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return tiny(tmp_path_factory)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_metrics_report_interval_ms", "500")
        with connected(None, cpus=4):
            yield


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory) -> Path:
    """An undisturbed run of three detectors."""
    store = tmp_path_factory.mktemp("plain") / "store"
    receipts = done(job(data, store))
    assert sum(receipt.images for receipt in receipts) == 3 * PER_DETECTOR
    return store


def assert_intact(store: Path, detectors: list[str]) -> None:
    """Every image is accounted for exactly once, and no file is there without a reason."""
    verdict = verify(Store.open(str(store)), detectors)
    assert verdict.problems == [] and verdict.notes == []
    assert verdict.images == len(detectors) * PER_DETECTOR
    assert verdict.shards == len(detectors) * len(SPLITS)
