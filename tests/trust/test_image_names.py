"""Names of images that come from annotations or from a store's manifest stay inside the data folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from usecases import random_use_case

from saod_ray.config import UseCase
from saod_ray.data.images import MAX_BYTES, ImageLimits, load
from saod_ray.data.manifest import image_table
from saod_ray.errors import SaodError
from saod_ray.files import BadNameError, Folder
from saod_ray.store import manifests

HOSTILE = ["../secret.png", "a/../../secret.png", "/etc/passwd", "/dev/zero", "..", "a/..", "a\0b"]


def png(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cv2.imencode(".png", np.zeros((4, 5, 3), np.uint8))[1].tobytes())
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder, and a secret beside it."""
    png(tmp_path / "secret.png")
    png(tmp_path / "data" / "a" / "1.png")
    return tmp_path / "data"


@pytest.mark.parametrize("name", HOSTILE)
def test_annotations_cannot_name_what_is_outside(tmp_path: Path, name: str) -> None:
    random_use_case(tmp_path, 1)
    for file in ("val", "id", "ood"):
        original = (tmp_path / f"{file}.json").read_text()
        value = json.loads(original)
        value["images"][1]["file_name"] = name
        (tmp_path / f"{file}.json").write_text(json.dumps(value))
        with pytest.raises(SaodError, match="leads out of the data's root"):
            manifests.bundle_manifests(UseCase.load(tmp_path / "use-case.toml"))
        (tmp_path / f"{file}.json").write_text(original)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_manifest_cannot_either(data: Path, name: str) -> None:
    """A store's manifest may come from elsewhere, or be older than the check of annotations."""
    with pytest.raises(BadNameError, match="leads out of"):
        load(Folder(str(data)), name, ImageLimits(follow_links=True))


def test_names_that_only_look_strange_are_fine() -> None:
    names = ["a..b.png", "..a/b.png", "...", " ", "ä/é.png", "a//b.png", "./c.png", "C:\\x.png"]
    assert image_table(range(len(names)), "sub/", names)["file_name"].to_list() == [f"sub/{name}" for name in names]


def test_links_out_of_the_folder_need_a_word(data: Path, tmp_path: Path) -> None:
    folder = Folder(str(data))
    (data / "inner.png").symlink_to(data / "a" / "1.png")
    (data / "outer.png").symlink_to(tmp_path / "secret.png")
    (data / "outer").symlink_to(tmp_path)
    assert load(folder, "inner.png").shape == (4, 5, 3)
    for name in ("outer.png", "outer/secret.png"):
        with pytest.raises(BadNameError, match="--follow-links"):
            load(folder, name)
        assert load(folder, name, ImageLimits(follow_links=True)).shape == (4, 5, 3)
    (tmp_path / "link").symlink_to(data)
    assert load(Folder(str(tmp_path / "link")), "a/1.png").shape == (4, 5, 3)  # the folder itself may be one


def test_only_regular_files_are_opened(data: Path) -> None:
    os.mkfifo(data / "pipe.png")
    (data / "zero.png").symlink_to("/dev/zero")
    folder = Folder(str(data))
    for name in ("pipe.png", "zero.png"):
        with pytest.raises(BadNameError, match="is not a regular file"):
            load(folder, name, ImageLimits(follow_links=True))
        with pytest.raises(BadNameError, match="is not a regular file"):
            folder.read(name)
        with pytest.raises(BadNameError, match="is not a regular file"):
            folder.head(name, 16)
    with pytest.raises(SaodError, match="Is a directory"):
        load(folder, "a")
    with pytest.raises(FileNotFoundError):
        load(folder, "none.png")


def test_a_file_of_any_size_is_not_read(data: Path) -> None:
    with (data / "sparse.png").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(BadNameError, match="has 1,073,741,825 bytes, more than"):
        load(Folder(str(data)), "sparse.png")
