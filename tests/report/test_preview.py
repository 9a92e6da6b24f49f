from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import saod_ray

from saod_ray.config import UseCase
from saod_ray.corrupt import draw
from saod_ray.report.preview import CAPTION, CELL, GAP, Preview


def silent(done: int, total: int) -> None:
    """No progress."""


CASE = """
name = "tiny"
[splits.val]
annotations = "val.json"
[splits.id]
annotations = "val.json"
severities = [1, 5]
[[splits.ood]]
name = "far"
annotations = "val.json"
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Path:
    """Images of the size of a cell, so that a sheet shows them pixel for pixel."""
    root = tmp_path_factory.mktemp("tiny")
    for k in range(3):
        pixels = np.full((CELL[1], CELL[0], 3), 60 + 60 * k, np.uint8)
        cv2.imwrite(str(root / f"{k}.png"), pixels)
    images = [{"id": k, "file_name": f"{k}.png"} for k in range(3)]
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [50, 60, 100, 40]}
    value = {"images": images, "annotations": [box], "categories": [{"id": 1, "name": "für <b>"}]}
    (root / "val.json").write_text(json.dumps(value))
    (root / "tiny.toml").write_text(CASE)
    assert saod_ray("data", "build", root / "tiny.toml").returncode == 0
    return root / "tiny.toml"


def cell(sheet, k: int) -> np.ndarray:
    left = GAP + k * (CELL[0] + GAP)
    return np.asarray(sheet)[GAP : GAP + CELL[1], left : left + CELL[0]]


def test_a_sheet_shows_the_images_and_their_boxes(case) -> None:
    sheet = Preview(UseCase.load(case)).sheet("val", 3, 0, silent)
    assert sheet.size == (3 * (CELL[0] + GAP) + GAP, CELL[1] + CAPTION + 2 * GAP)
    assert (cell(sheet, 0) == 60).all()
    assert (cell(sheet, 2) == 180).all()
    boxed = cell(sheet, 1)
    assert (boxed[65:95, 55:145] == 120).all()  # inside of the box
    assert (boxed[60, 60:140] != 120).any(axis=-1).all()  # its upper edge


def test_blanked_objects_are_black(case) -> None:
    blanked = cell(Preview(UseCase.load(case)).sheet("pseudo-ood", 3, 0, silent), 1)
    assert (blanked[60:100, 50:150] == 0).all()
    assert (blanked[:60] == 120).all()


def test_corrupted_sheets_show_the_drawn_corruption(case) -> None:
    preview = Preview(UseCase.load(case))
    assert draw(0, 0, 5) != draw(1, 0, 5)  # or the next line cannot fail
    first, second = (cell(preview.sheet("id-c5", 3, seed, silent), 0) for seed in (0, 1))
    assert (first != second).any()
    assert (first == cell(preview.sheet("id-c5", 3, 0, silent), 0)).all()
    everything = preview.all_corruptions(2, 0, silent)
    assert everything.size[0] == 6 * (CELL[0] + GAP) + GAP  # three corruptions a row at two severities
    assert everything.size[1] == 5 * (CELL[1] + CAPTION + GAP) + GAP


def test_the_command(case, tmp_path) -> None:
    for args in (["--split", "ood/far", "--images", "2"], ["--all-corruptions", "--image", "1"]):
        result = saod_ray("data", "preview", case, *args, "--out", tmp_path / "sheet.png")
        assert (result.returncode, result.stdout) == (0, f"{tmp_path}/sheet.png\n")
        assert cv2.imread(str(tmp_path / "sheet.png")) is not None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--split", "idc3"], "'idc3' is not a split"),
        (["--split", "ood/near"], "the OOD subsets are far"),
        (["--split", "train"], "'train' is not built"),
        (["--image", "1"], "--image is for --all-corruptions"),
        (["--all-corruptions", "--split", "val"], "leave --split out"),
        (["--all-corruptions", "--image", "77"], "id has no image 77: its ids are 0, 1, 2"),
    ],
)
def test_bad_questions(case, tmp_path, args, message) -> None:
    result = saod_ray("data", "preview", case, *args, "--out", tmp_path / "x.png")
    assert result.returncode == 1
    assert message in result.stderr
    assert not (tmp_path / "x.png").exists()


def test_bad_places(case, tmp_path) -> None:
    result = saod_ray("data", "preview", case, "--out", tmp_path / "x.pdf")
    assert "is neither PNG nor JPEG" in result.stderr
    result = saod_ray("data", "preview", "shapes", "--data", tmp_path, "--out", tmp_path / "x.png")
    assert f"run `saod-ray data build shapes --data {tmp_path}` first" in result.stderr


def test_an_image_that_is_none(case, tmp_path) -> None:
    broken = case.parent / "2.png"
    intact = broken.read_bytes()
    try:
        broken.write_text("<html>")
        result = saod_ray("data", "preview", case, "--out", tmp_path / "x.png")
    finally:
        broken.write_bytes(intact)
    assert result.returncode == 1
    assert "2.png is not an image that can be read" in result.stderr
