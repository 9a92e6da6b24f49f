"""The command itself, killed at any moment, and two of it on one store: the store is what one undisturbed run makes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from toy_runs import PER_DETECTOR, files, tiny, toml

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("SAOD_KILLS", "2"))
PATIENCE = 300  # seconds
SLOW = {"a": {"seconds": 0.05}, "b": {"seconds": 0.05, "shift": 1.0}}
UNIT = 3  # images


@pytest.fixture(scope="module")
def tally(tmp_path_factory) -> Path:
    """A line for every image that a detector looked at."""
    return tmp_path_factory.mktemp("tally") / "images"


@pytest.fixture(scope="module")
def command(tmp_path_factory, tally) -> list[str]:
    """What all runs are asked for, but for the store."""
    slow = {name: {**options, "tally": str(tally)} for name, options in SLOW.items()}
    data, detectors = tiny(tmp_path_factory), toml(tmp_path_factory.mktemp("detectors"), slow)
    options = f"--data {data} --detectors {detectors} --unit-images {UNIT} --actors 1:1 --group 2 --json".split()
    return [sys.executable, "-m", "saod_ray", "run", *options]


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory) -> Path:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    assert finished(start(command, store)) == 0
    return store


def start(command: list[str], store: Path, *more: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, "--store", str(store), *more], **pipes)


def finished(process: subprocess.Popen[str]) -> int:
    _, errors = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors, errors
    return process.returncode


def same(store: Path, other: Path) -> bool:
    results = [(folder / "results.json").read_bytes() for folder in (store, other)]
    return files(store) == files(other) and results[0] == results[1]


def pages(store: Path) -> dict[Path, int]:
    times = {}
    for path in (store / "ledger").rglob("*.json"):
        try:
            times[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # compacted meanwhile
            continue
    return times


def wait_for(condition) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_driver_that_is_killed(command, undisturbed, tally, tmp_path) -> None:
    """At random moments after its first shard, or during compaction and scoring; nothing committed is redone.

    What is done again is at most the one unit that the one actor had in hand.
    """
    chance = random.Random(os.environ.get("SAOD_SEED", "1"))
    store, killed, rounds = tmp_path / "store", 0, 0
    tally.write_text("")
    committed: dict[Path, int] = {}
    again = 0
    while killed < KILLS:
        assert rounds < 3 * KILLS
        rounds += 1
        driver = start(command, store)
        wait_for(lambda d=driver, c=committed: pages(store).keys() - c.keys() or d.poll() is not None)
        time.sleep(chance.uniform(0, 4))
        its_own = psutil.Process(driver.pid).children(recursive=True) if driver.poll() is None else []
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        killed += driver.returncode == -signal.SIGKILL
        wait_for(lambda own=its_own: not any(process.is_running() for process in own))  # it leaves no process behind
        now = pages(store)
        assert all(now.get(path, stamp) == stamp for path, stamp in committed.items())
        committed = now
        if driver.returncode == 0:
            assert same(store, undisturbed)
            shutil.rmtree(store)
            committed, again = {}, again + redone(tally)
    assert finished(start(command, store)) == 0
    now = pages(store)
    assert all(now.get(path, stamp) == stamp for path, stamp in committed.items())
    assert same(store, undisturbed)
    again += redone(tally)
    print(f"{killed} kills, {again} images done again")
    assert again <= UNIT * killed


def redone(tally: Path) -> int:
    """How many images of a finished store were looked at more than once, all times counted; the tally is reset."""
    looked = len(tally.read_text().splitlines())
    tally.write_text("")
    return looked - len(SLOW) * PER_DETECTOR


def test_two_drivers_at_once(command, undisturbed, tmp_path) -> None:
    """One cuts the work otherwise, so that some images are done twice; each is there once."""
    store = tmp_path / "store"
    drivers = [start(command, store), start(command, store, "--unit-images", "4")]
    assert [finished(driver) for driver in drivers] == [0, 0]
    assert same(store, undisturbed)
