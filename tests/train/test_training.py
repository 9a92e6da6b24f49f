"""Trainings on real Ray clusters, killed for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import saod_ray

from saod_ray.data.shapes import Recipe, make

ASKED = ("--detector", "atss", "--epochs", "4", "--batch-size", "4", "--limit", "16")
PATIENCE = 240  # seconds


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    make(str(root), Recipe(0, 0.02), lambda done, total: None, workers=1)
    return root


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory) -> Path:
    weights = tmp_path_factory.mktemp("undisturbed")
    done = train(data, weights)
    assert done.returncode == 0, done.stderr
    return weights / "shapes"


def train(data: Path, weights: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return saod_ray("train", *ASKED, "--data", data, "--weights", weights, *more)


def started(data: Path, weights: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "saod_ray", "train", *ASKED, "--data", str(data), "--weights", str(weights)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(what: str, condition) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.05)


def training(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that train."""
    its_own = psutil.Process(driver.pid).children(recursive=True)
    return [process for process in its_own if "RayTrainWorker" in " ".join(process.cmdline())]


def checkpoints(weights: Path) -> list[Path]:
    return list((weights / "shapes" / "atss.checkpoints").glob("checkpoint_*/state.pt"))


def record(folder: Path) -> dict:
    return json.loads((folder / "atss.json").read_text())


@pytest.mark.slow
def test_what_a_training_leaves(undisturbed) -> None:
    training_record = record(undisturbed)
    assert training_record["done"]
    assert training_record["iterations"] == 4 * 4
    assert training_record["settings"]["images"] == 16
    assert set(training_record["val"]) == {"ap", "ap50", "ap75"}
    assert (undisturbed / "atss.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in undisturbed.iterdir()) == ["atss.json", "atss.png", "atss.safetensors"]


@pytest.mark.slow
def test_a_finished_training_is_not_done_again(data, undisturbed) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in undisturbed.iterdir()}
    again = train(data, undisturbed.parent, "--json")
    assert json.loads(again.stdout) == record(undisturbed)
    assert before == {path.name: path.stat().st_mtime_ns for path in undisturbed.iterdir()}
    other = train(data, undisturbed.parent, "--seed", 1)
    assert other.returncode == 1
    assert "other settings (seed)" in other.stderr


@pytest.mark.slow
def test_a_killed_driver_goes_on_and_ends_with_the_same_weights(data, undisturbed, tmp_path) -> None:
    driver = started(data, tmp_path)
    wait_for("a checkpoint", lambda: checkpoints(tmp_path))
    workers = training(driver)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert not record(tmp_path / "shapes")["done"]
    _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert not alive, "the training outlived its driver"
    done = train(data, tmp_path)
    assert done.returncode == 0, done.stderr
    assert record(tmp_path / "shapes")["iterations"] == 16
    assert (tmp_path / "shapes/atss.safetensors").read_bytes() == (undisturbed / "atss.safetensors").read_bytes()


@pytest.mark.slow
def test_a_killed_worker_is_replaced(data, undisturbed, tmp_path) -> None:
    driver = started(data, tmp_path)
    wait_for("a checkpoint", lambda: checkpoints(tmp_path))
    (worker,) = training(driver)
    worker.kill()
    assert driver.wait(PATIENCE) == 0
    assert record(tmp_path / "shapes")["iterations"] == 16
    assert (tmp_path / "shapes/atss.safetensors").read_bytes() == (undisturbed / "atss.safetensors").read_bytes()


@pytest.mark.slow
def test_two_workers_train_together(data, tmp_path) -> None:
    done = train(data, tmp_path, "--workers", 2)
    assert done.returncode == 0, done.stderr
    training_record = record(tmp_path / "shapes")
    assert training_record["iterations"] == 4 * 4  # a batch of four is two images on each
    assert sum(training_record["loss"][-3:]) < sum(training_record["loss"][:3])


def test_mistakes(data, tmp_path) -> None:
    def error_message(*arguments: object) -> str:
        done = saod_ray("train", "--data", data, "--weights", tmp_path / "w", *arguments)
        assert done.returncode == 1
        assert not (tmp_path / "w").exists()
        assert "Traceback" not in done.stderr
        return done.stderr.strip().splitlines()[-1]

    assert "did you mean 'atss'" in error_message("--detector", "ats")
    assert "nowhere.py: give the path of an mmdet config" in error_message("--detector", "nowhere.py")
    assert "one at a time" in error_message("--detector", "atss,f-rcnn")
    assert "cannot be shared by 3 workers" in error_message("--detector", "atss", "--workers", 3)
    assert "There is no checkpoint" in error_message("--detector", "atss", "--init", "nowhere.pth")
