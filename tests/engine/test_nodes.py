"""Clusters of several nodes and of GPUs that are only declared: nodes that go, pools that grow and let go."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from toy_runs import PER_DETECTOR, done, failed, files, job, tiny

from saod_ray.engine.cluster import QUIET, connected
from saod_ray.engine.plan import PlanOptions
from saod_ray.engine.resources import ResourceOptions
from saod_ray.engine.workers import Receipt

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return tiny(tmp_path_factory)


@pytest.fixture
def cluster() -> Iterator[object]:
    """A head without room for anything."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    with connected(cluster.address):
        yield cluster
    cluster.shutdown()


def test_a_node_that_goes_with_actors_and_images(cluster, data, tmp_path) -> None:
    """All that runs and all that is decoded is on the node that is removed; another takes over."""
    detectors = {"a": {"seconds": 0.05}, "b": {"seconds": 0.05, "shift": 1.0}}
    nodes = [cluster.add_node(num_cpus=3)]
    receipts: list[Receipt] = []

    def replace(receipt: Receipt) -> None:
        receipts.append(receipt)
        if len(receipts) in (4, 12):
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            nodes.append(cluster.add_node(num_cpus=3))

    done(
        job(data, tmp_path / "store", detectors),
        ResourceOptions(actors=(1, 1), batch_size=2, unit_images=4),
        on_receipt=replace,
    )
    assert sum(receipt.images for receipt in receipts) == 2 * PER_DETECTOR
    assert failed(tmp_path / "store", "a") == failed(tmp_path / "store", "b") == {}
    done(job(data, tmp_path / "again", detectors), ResourceOptions(actors=(1, 1), batch_size=2, unit_images=9))
    assert files(tmp_path / "store") == files(tmp_path / "again")


def test_pools_of_gpus(data, tmp_path) -> None:
    """One GPU per actor; the second pipeline grows to both GPUs, which the first one lets go."""
    notes = tmp_path / "notes"
    notes.mkdir()
    detectors = {"quick": {"notes": str(notes)}, "slow": {"notes": str(notes), "seconds": 1.0, "shift": 1.0}}
    with connected(None, cpus=8, gpus=2):
        receipts = done(
            job(data, tmp_path / "store", detectors),
            ResourceOptions(actors=(1, 2), group=1, batch_size=2, unit_images=2),
            options=PlanOptions(2),
        )
        until = time.monotonic() + 60
        while ray.available_resources().get("GPU") != 2:
            assert time.monotonic() < until
            time.sleep(0.2)
    assert sum(receipt.images for receipt in receipts) == 2 * 2 * 7
    notes_by_process = [json.loads(path.read_text()) for path in notes.iterdir()]
    assert {note["device"] for note in notes_by_process} == {"cuda"}
    assert sorted(note["gpus"] for note in notes_by_process if note["name"] == "slow") == ["0", "1"]
    assert sorted(note["gpus"] for note in notes_by_process if note["name"] == "quick") in (["0"], ["1"], ["0", "1"])
