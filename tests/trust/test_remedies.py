"""What is said, and done, where an import and a scoring meet, or an import was killed after its commit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import GOLDEN, saod_ray
from hostile import copy_store

from saod_ray.config import ScoreSettings, UseCase
from saod_ray.errors import SaodError
from saod_ray.report.cells import Cell, Header, Sheet
from saod_ray.report.export import comma_separated
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.coco_import import import_results
from saod_ray.store.store import Store

CASE = UseCase.load(GOLDEN / "use-case.toml")


@pytest.fixture
def store(golden_store: Store, tmp_path: Path) -> Store:
    return copy_store(golden_store, tmp_path / "store")


def contents(store: Store) -> dict[str, bytes]:
    base = Path(store.folder.path(""))
    return {str(path): path.read_bytes() for path in base.rglob("*") if path.is_file() and "cache" not in path.parts}


def test_scoring_takes_the_new_detections_when_an_import_replaces_them(store: Store) -> None:
    benchmark = Benchmark(store, ScoreSettings())
    for split in store.splits:
        benchmark.store.pages("toy", split)  # the snapshot is taken
    import_results(store.uri, CASE, "toy", "id", GOLDEN / "id-c1.detections.json.gz", replace=True)
    scored = benchmark.score(["toy"])["toy"].result
    assert scored == Benchmark(Store.open(store.uri), ScoreSettings()).score(["toy"])["toy"].result


def test_a_shard_that_is_really_gone_is_still_named(store: Store) -> None:
    (shard,) = store.shards("toy", "id")
    store.folder.delete(store.shard_file("toy", "id", shard.name))
    with pytest.raises(SaodError, match=r"is gone: `saod-ray verify"):
        Benchmark(store, ScoreSettings()).score(["toy"])


def import_again(store: Store, file: str) -> tuple[int, str, str]:
    options = ("--use-case", GOLDEN / "use-case.toml", "--detector", "toy", "--split", "id")
    run = saod_ray("import", store.uri, *options, "--detections", GOLDEN / file)
    return run.returncode, run.stdout, run.stderr


def test_the_same_import_again_is_done_already(store: Store) -> None:
    before = contents(store)
    code, out, errors = import_again(store, "id.detections.json.gz")
    assert code == 0 and "is already imported as toy on id" in errors and "toy on id: " in out
    assert contents(store) == before
    code, _, errors = import_again(store, "id-c1.detections.json.gz")
    assert code == 1 and "already: add --replace" in errors


def test_it_is_not_when_a_shard_is_gone(store: Store) -> None:
    (shard,) = store.shards("toy", "id")
    store.folder.delete(store.shard_file("toy", "id", shard.name))
    code, _, errors = import_again(store, "id.detections.json.gz")
    assert code == 1 and "add --replace" in errors


def test_images_that_are_there_twice_are_called_so(store: Store, tmp_path: Path) -> None:
    """An OOD subset beside the whole, as a kill between two deletions leaves it."""
    subset = store.description.subsets[0]
    other = copy_store(store, tmp_path / "other")
    shutil.rmtree(other.folder.path("ledger/toy/ood"))
    ids = set(other.images("ood", subset)["source_id"].to_list())
    assert ids
    empty = tmp_path / "empty.json"
    empty.write_text("[]")
    import_results(other.uri, CASE, "toy", f"ood/{subset}", empty)
    for place in ("ledger", "detections"):
        shutil.copytree(
            other.folder.path(f"{place}/toy/ood"), store.folder.path(f"{place}/toy/ood"), dirs_exist_ok=True
        )
    with pytest.raises(SaodError, match="has images twice in ood: run `saod-ray verify"):
        Benchmark(store, ScoreSettings()).score(["toy"])


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-x", "@SUM(A1)", "\tx", "\rx"])
def test_no_cell_of_a_csv_file_is_a_formula(text: str) -> None:
    sheet = Sheet("s", "", [Header(text)], [[Cell(text, text)], [Cell("-0.5", -0.5, is_number=True)]])
    lines = comma_separated(sheet).split("\n")
    assert all(line.lstrip('"').startswith("'") for line in (lines[0], lines[1]))
    assert comma_separated(sheet).endswith("\n-0.5\n")
