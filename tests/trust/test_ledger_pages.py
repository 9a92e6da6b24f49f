"""Ledger pages that lie: whose they are, what they count, and where their shards are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import GOLDEN, import_golden, saod_ray
from hostile import copy_store, forge_page, page_file

from saod_ray.config import ScoreSettings, UseCase
from saod_ray.errors import SaodError
from saod_ray.files import BadNameError, Folder
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.coco_import import import_results
from saod_ray.store.store import Store
from saod_ray.store.verify import verify


@pytest.fixture
def store(golden_store: Store, tmp_path: Path) -> Store:
    """Two detectors: `toy`, and `other` with the same detections at lower scores."""
    copied = copy_store(golden_store, tmp_path / "store")
    import_golden(copied.uri, "other")
    return copied


def assert_refused_everywhere(store: Store, detector: str, words: str) -> None:
    """Scoring and verifying both refuse, in the same words, and nothing is called safe to delete."""
    with pytest.raises(SaodError, match=words):
        Benchmark(store, ScoreSettings()).score([detector])
    verdict = verify(store, [detector])
    assert any(words in problem.what for problem in verdict.problems), verdict
    assert not any("safe to delete" in note for note in verdict.notes)
    with pytest.raises(SaodError, match=words):
        store.unlisted(detector, "id")


def test_the_healthy_store_is_whole(store: Store) -> None:
    assert verify(store, ["toy", "other"]).problems == []


@pytest.mark.parametrize(
    "source",
    [("other", "id"), ("toy", "id-c1"), ("toy", "val")],
    ids=["of another detector", "of another split", "of val"],
)
def test_a_copied_page_is_refused(store: Store, source: tuple[str, str]) -> None:
    shutil.copy(page_file(store, *source), page_file(store, "toy", "id"))
    assert_refused_everywhere(store, "toy", "is a copy of the page of")


def test_a_page_under_another_unit_is_refused_by_name(store: Store) -> None:
    shutil.copy(page_file(store, "toy", "id"), page_file(store, "toy", "id", "again"))
    assert_refused_everywhere(store, "toy", "is a copy of the page of 'toy' on id")
    run = saod_ray("score", store.uri, "--detectors", "toy")
    assert run.returncode == 1 and "-" not in run.stderr.partition("images")[0].partition("incomplete")[2]
    assert "id/again.json is a copy" in run.stderr and "delete it" in run.stderr


def listed_twice(page: dict[str, Any]) -> None:
    page["shards"] *= 2


def of_a_run(page: dict[str, Any]) -> None:
    page["unit"] = "00000000-00000010"
    page["origin"]["kind"] = "run"


def more_empty_than_images(page: dict[str, Any]) -> None:
    page["shards"][0]["empty"] = page["shards"][0]["images"] + 1


@pytest.mark.parametrize(
    ("change", "unit", "words"),
    [
        (listed_twice, "all", "listed more than once"),
        (of_a_run, "00000000-00000010", "images where its name says 10"),
        (more_empty_than_images, "all", "more empty and failed images"),
    ],
)
def test_counts_that_cannot_be(store: Store, change: Any, unit: str, words: str) -> None:
    path = page_file(store, "toy", "id")
    forge_page(path, change)
    path.rename(path.with_name(f"{unit}.json"))
    assert_refused_everywhere(store, "toy", words)


@pytest.mark.parametrize(
    "name",
    ["../../../../victim/precious", "/etc/passwd", "", ".", "a" * 31, "A" * 32, "a" * 32 + "\n", "a/" + "b" * 30, 7],
)
def test_a_shard_name_is_a_digest_or_refused(store: Store, name: object) -> None:
    forge_page(page_file(store, "toy", "id"), lambda page: page["shards"][0].update(name=name))
    assert_refused_everywhere(store, "toy", "is damaged")


def test_import_deletes_nothing_outside_the_store(store: Store, tmp_path: Path) -> None:
    victim = tmp_path / "victim" / "precious.parquet"
    victim.parent.mkdir()
    victim.write_bytes(b"kept")
    forge_page(page_file(store, "toy", "id"), lambda page: page["shards"][0].update(name="../../../../victim/precious"))
    case = UseCase.load(GOLDEN / "use-case.toml")
    with pytest.raises(SaodError):
        import_results(store.uri, case, "toy", "id", GOLDEN / "id.detections.json.gz", replace=True)
    assert victim.read_bytes() == b"kept"


def test_deletion_stays_in_the_folder(tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("kept")
    folder = Folder(str(tmp_path / "store"))
    folder.put("inside.txt", b"")
    (tmp_path / "store" / "link").symlink_to(tmp_path)
    for name in ("../victim.txt", str(victim), "link/victim.txt", "a/../../victim.txt"):
        with pytest.raises(BadNameError, match="leads out of"):
            folder.delete(name)
    folder.delete("inside.txt")
    assert victim.read_text() == "kept" and not folder.exists("inside.txt")
