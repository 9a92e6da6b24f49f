from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import psutil
import pytest
from conftest import saod_ray

from saod_ray.config import UseCase
from saod_ray.data import shapes, sources
from saod_ray.data.scenes import CLASSES, scene
from saod_ray.data.shapes import Recipe

SMALL = 0.02  # 80 scenes of train, 6 of val, 8 of id, 3 times 4 of ood


def made(root: Path, seed: int = 0, scale: float = SMALL, workers: int = 1) -> bool:
    return shapes.make(str(root), Recipe(seed, scale), lambda done, total: None, workers)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("shapes")
    made(root)
    return root


def test_one_seed_gives_the_same_bytes_with_any_number_of_workers(first, tmp_path) -> None:
    made(tmp_path, workers=2)
    assert files(tmp_path) == files(first)
    assert len(files(first)) == 80 + 6 + 8 + 3 * 4 + 7


def test_another_seed_differs(first, tmp_path) -> None:
    made(tmp_path, seed=1)
    ours, others = files(first), files(tmp_path)
    assert set(ours) == set(others)
    assert not [name for name in ours if ours[name] == others[name]]


def test_the_annotations_are_the_scenes(first) -> None:
    found = json.loads((first / "shapes/id.json").read_text())
    assert [category["name"] for category in found["categories"]] == list(CLASSES)
    drawn = [scene(0, "id", k) for k in range(8)]
    assert [[i["width"], i["height"]] for i in found["images"]] == [list(d.image.shape[1::-1]) for d in drawn]
    boxes = [[thing.x, thing.y, thing.w, thing.h] for each in drawn for thing in each.things]
    assert [a["bbox"] for a in found["annotations"]] == boxes
    image = cv2.imread(str(first / "shapes/id" / found["images"][3]["file_name"]))[..., ::-1]
    assert abs(image.astype(int) - drawn[3].image).mean() < 4  # JPEG at quality 92


def test_the_use_case_reads_them(first) -> None:
    found = sources.read(UseCase.load("shapes", str(first)), train=True)
    assert found.classes.names == CLASSES
    counts = {name: each.images.height for name, each in found.manifests.items()}
    assert counts == {"train": 80, "val": 6, "id": 8, "ood": 12}
    ids = [number for each in found.manifests.values() for number in each.images["image_id"]]
    assert len(set(ids)) == len(ids)
    assert set(found.manifests["id"].objects["image_id"]) == set(found.manifests["id"].images["image_id"])


def test_what_is_there_is_not_drawn_again(first, tmp_path) -> None:
    made(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert not made(tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    (tmp_path / "shapes/val/000003.jpg").unlink()
    assert made(tmp_path)
    assert files(tmp_path) == files(first)


def test_a_smaller_scale_leaves_nothing_of_the_larger_one(first, tmp_path) -> None:
    made(tmp_path, seed=3, scale=0.04)
    made(tmp_path)
    assert files(tmp_path) == files(first)


def test_scenes_of_train_are_drawn_only_for_training(first, tmp_path) -> None:
    recipe = Recipe(0, SMALL)
    assert shapes.make(str(tmp_path), recipe, lambda done, total: None, with_train=False)
    assert not (tmp_path / "shapes/train").exists() and not shapes.is_missing(str(tmp_path))
    assert shapes.is_missing(str(tmp_path), with_train=True) and shapes.existing_recipe(str(tmp_path)) == recipe
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "shapes/val").iterdir()}
    assert shapes.make(str(tmp_path), recipe, lambda done, total: None)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "shapes/val").iterdir()}
    assert files(tmp_path) == files(first)


@pytest.mark.slow
def test_a_killed_build_is_done_again(tmp_path) -> None:
    command = [sys.executable, "-m", "saod_ray", "data", "build", "shapes", "--scale", "0.1", "--seed", "5", "--data"]
    made(tmp_path / "calm", seed=5, scale=0.1)
    for share in (0.1, 0.5, 0.9):
        process = subprocess.Popen(
            [*command, str(tmp_path / "hasty")], stderr=subprocess.DEVNULL, start_new_session=True
        )
        while process.poll() is None and len(list((tmp_path / "hasty").rglob("*.jpg"))) < share * 480:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "hasty/shapes/made.json").exists()
    assert subprocess.run([*command, str(tmp_path / "hasty")], capture_output=True).returncode == 0
    assert files(tmp_path / "hasty/shapes") == files(tmp_path / "calm/shapes")


@pytest.mark.slow
def test_workers_end_with_a_build_that_is_killed(tmp_path) -> None:
    command = [sys.executable, "-m", "saod_ray", "data", "build", "shapes", "--scale", "0.5", "--data", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.rglob("*.jpg")):
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def test_build_and_status_on_a_fresh_machine(tmp_path) -> None:
    result = saod_ray("data", "build", "shapes", "--scale", "0.02", cwd=tmp_path)
    assert result.returncode == 0
    result = saod_ray("data", "status", "shapes", cwd=tmp_path)
    assert "built    " in result.stdout
    assert result.returncode == 0
    assert "missing" not in result.stdout
