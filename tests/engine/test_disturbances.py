"""Runs on a small cluster while actors are killed, room is short, signals come, or the disk is full."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
from small_cluster import SPLITS, assert_intact, cluster, data, plain  # noqa: F401  (fixtures)
from toy_runs import PER_DETECTOR, detect, done, failed, files, job, toml

from saod_ray.engine import driver, workers
from saod_ray.engine.driver import Callbacks
from saod_ray.engine.job import Job
from saod_ray.engine.plan import PlanOptions
from saod_ray.engine.resources import ResourceOptions
from saod_ray.engine.run import Run
from saod_ray.engine.workers import Receipt, WorkerConfig
from saod_ray.errors import SaodError

pytestmark = pytest.mark.slow


# actors that are killed, room that is short -----------------------------------------------------------------------------


def actors() -> list[psutil.Process]:
    """The processes of detectors on this test's cluster."""
    return [process for process in psutil.Process().children(recursive=True) if "DetectorWorker" in named(process)]


def named(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return ""


def test_actors_that_are_killed_every_few_seconds(data, tmp_path) -> None:
    tally, sizes = tmp_path / "tally", ResourceOptions(actors=(2, 2), batch_size=2, unit_images=8)
    slow = {"a": {"seconds": 0.15, "tally": str(tally)}, "b": {"seconds": 0.15, "shift": 1.0, "tally": str(tally)}}
    done(job(data, tmp_path / "undisturbed", slow), sizes)
    tally.unlink()
    over, killed = threading.Event(), []

    def kill() -> None:
        """Not before something was done since the last one, or a busy machine would never end."""
        chance, before = np.random.default_rng(0), 0
        while not over.wait(float(os.environ.get("SAOD_KILL_SECONDS", "1.5"))):
            busy = [process for process in actors() if ".submit" in named(process)]
            now = len(list((tmp_path / "store" / "ledger").rglob("*.json")))
            if busy and now > before:
                victim, before = busy[int(chance.integers(len(busy)))], now
                victim.send_signal(signal.SIGKILL)
                killed.append(victim.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        receipts = done(job(data, tmp_path / "store", slow), sizes)
    finally:
        over.set()
        killer.join()
    assert len(killed) >= 2
    assert sum(receipt.images for receipt in receipts) == 2 * PER_DETECTOR
    again = len(tally.read_text().splitlines()) - 2 * PER_DETECTOR
    print(f"{len(killed)} kills, {again} images done again")
    assert again <= len(killed) * sizes.unit_images  # what a killed actor had in hand, no more
    assert failed(tmp_path / "store", "a") == failed(tmp_path / "store", "b") == {}
    assert files(tmp_path / "store") == files(tmp_path / "undisturbed")


def test_a_pool_that_is_larger_than_the_cluster(data, plain, tmp_path) -> None:
    messages: list[str] = []
    work = job(data, tmp_path / "store")
    resources = ResourceOptions(actors=(9, 9), batch_size=2, unit_images=5)
    Run(work, work.plan(5), resources).detect(lambda receipt: None, Callbacks(on_message=messages.append))
    work.compact()
    assert messages == ["--actors 9: there is room for 5 on this cluster."]
    assert files(tmp_path / "store") == files(plain)


def test_what_cannot_be_scheduled_is_refused_with_the_reason(data, tmp_path, monkeypatch) -> None:
    work = job(data, tmp_path / "store", {"a": {}})
    with pytest.raises(SaodError, match=r"An actor needs .* 3 GPUs on one node, and the cluster has 4 CPUs and 0 GPUs"):
        done(work, ResourceOptions(gpus=3, batch_size=2))
    done(work)  # nothing is left behind that holds room
    assert_intact(tmp_path / "store", ["a"])


def test_a_cluster_that_may_grow_is_waited_for_until_a_signal(data, tmp_path, monkeypatch) -> None:
    """GPUs that are not there yet: the run says what it waits for, and Ctrl-C ends it."""
    monkeypatch.setattr(driver, "FIRST_WAIT", 1.0)
    messages: list[str] = []

    def on_message(message: str) -> None:
        messages.append(message)
        if len(messages) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    work = job(data, tmp_path / "store", {"a": {}})
    waiting = Run(work, work.plan(), ResourceOptions(actors=(1, 2), gpus=1, batch_size=2), may_grow=True)
    with pytest.raises(KeyboardInterrupt):
        waiting.detect(lambda receipt: None, Callbacks(on_message=on_message))
    assert "needs 0.75 CPUs and 1 GPUs on one node" in messages[0] and "0 of 0 GPUs" in messages[0]
    assert messages[1] == driver.STOPPING
    assert files(tmp_path / "store") == {}


def test_a_signal_lets_the_units_in_hand_finish(data, plain, tmp_path) -> None:
    work = job(data, tmp_path / "store", {"a": {"seconds": 0.1}})
    receipts: list[Receipt] = []

    def on_receipt(receipt: Receipt) -> None:
        receipts.append(receipt)
        if len(receipts) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    resources = ResourceOptions(actors=(1, 1), batch_size=2, unit_images=5)
    with pytest.raises(KeyboardInterrupt):
        detect(work, resources, on_receipt=on_receipt)
    pages = [page for split in SPLITS for page in work.store.pages("a", split)]
    assert 2 <= len(pages) <= 4  # those received, and one in hand
    again = done(work)
    committed = sum(shard.images for page in pages for shard in page.shards)
    assert sum(receipt.images for receipt in again) == PER_DETECTOR - committed
    assert_intact(tmp_path / "store", ["a"])


# a disk that is full ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root: run this test as root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as out, pytest.raises(OSError, match="No space left"):
        while True:
            out.write(bytes(4096))
    return ballast


def test_a_disk_that_is_full_for_a_while_and_for_good(data, plain, small_disk, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(workers, "WorkerConfig", partial(WorkerConfig, patience=4.0))
    store = small_disk / "store"
    file = toml(tmp_path / "detectors", {"a": {}})
    from saod_ray.config import UseCase

    work = Job.from_use_case(UseCase.load("shapes", str(data)), str(store), str(file), tmp_path, batch_size=2)
    done(work, ResourceOptions(actors=(1, 1), group=1, batch_size=2, unit_images=2), options=PlanOptions(2))
    before = files(store)
    ballast = fill(small_disk)
    with pytest.raises(
        SaodError, match=r"cannot be written to .*No space left on device.*: fix that and run the same"
    ) as caught:
        done(work)
    assert caught.value.code == 1 and "\n" not in str(caught.value)
    assert files(store) == before  # as whole as it was, and nothing half-written
    monkeypatch.setattr(workers, "WorkerConfig", partial(WorkerConfig, patience=60.0))
    timer = threading.Timer(4.0, ballast.unlink)
    timer.start()
    done(work)
    timer.join()
    assert files(store) == {name: content for name, content in files(plain).items() if "/a/" in name}


def test_a_private_cluster_listens_on_loopback_alone(data, plain) -> None:
    this_process = psutil.Process()
    sockets = [
        connection
        for process in (this_process, *this_process.children(recursive=True))
        for connection in process.net_connections("inet")
    ]
    listening = {
        connection.laddr.ip.removeprefix("::ffff:") for connection in sockets if connection.status == psutil.CONN_LISTEN
    }
    assert listening and all(ip_address(address).is_loopback for address in listening), listening


def test_rays_metrics_count_images_by_detector(data, tmp_path) -> None:
    (node,) = ray.nodes()
    address = f"http://127.0.0.1:{node['MetricsExportPort']}/metrics"
    counted: list[float] = []

    def scrape(receipt: Receipt) -> None:
        text = urllib.request.urlopen(address, timeout=30).read().decode()
        lines = [line for line in text.splitlines() if line.startswith("ray_saod_ray_images_total{")]
        counted.append(sum(float(line.split()[-1]) for line in lines if 'detector="metered"' in line))

    sizes = ResourceOptions(actors=(1, 1), group=1, batch_size=2, unit_images=4)
    done(job(data, tmp_path / "store", {"metered": {"seconds": 0.1}}), sizes, on_receipt=scrape)
    assert 0 < max(counted) <= PER_DETECTOR
    assert all(a <= b for a, b in pairwise(counted))


def test_actors_go_when_a_run_is_over(data, plain) -> None:
    until = time.monotonic() + 20
    while actors() or ray.available_resources()["CPU"] < 4:
        assert time.monotonic() < until, [(process.pid, named(process)) for process in actors()]
        time.sleep(0.2)
