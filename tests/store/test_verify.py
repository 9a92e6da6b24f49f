from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import saod_ray

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.store import Store
from saod_ray.store.verify import verify


@pytest.fixture
def copy(golden_store: Store, tmp_path: Path) -> Store:
    shutil.copytree(golden_store.uri, tmp_path / "store", ignore=shutil.ignore_patterns("cache"))
    return Store.open(str(tmp_path / "store"))


def one_shard(store: Store, split: str) -> Path:
    (file,) = Path(store.folder.path(f"detections/toy/{split}")).iterdir()
    return file


def test_a_whole_store(copy) -> None:
    verdict = verify(copy, ["toy"])
    assert (verdict.problems, verdict.notes) == ([], [])
    assert (verdict.shards, verdict.images) == (7, 180 + 180 + 4 * 240 + 300)


@pytest.mark.parametrize("share", [0.0001, 0.1, 0.5, 0.9, 0.9999])
def test_a_flipped_byte_is_found_and_the_repair_named(copy, share) -> None:
    file = one_shard(copy, "id-c3")
    data = bytearray(file.read_bytes())
    data[int(share * len(data))] ^= 0x10
    file.write_bytes(data)
    (problem,) = verify(copy, ["toy"]).problems
    assert problem.where == f"detections/toy/id-c3/{file.name}"
    assert "is damaged" in problem.what
    assert f"saod-ray import {copy.uri} --use-case FILE --detector toy --split id-c3" in problem.repair
    assert "--detections id-c3.detections.json.gz --replace" in problem.repair


def test_scoring_notices_flipped_bytes_in_what_it_reads(copy) -> None:
    file = one_shard(copy, "id")
    whole = file.read_bytes()
    noticed = 0
    for place in range(200, len(whole), len(whole) // 12):
        data = bytearray(whole)
        data[place] ^= 0x04
        file.write_bytes(data)
        shutil.rmtree(copy.folder.path("cache"), ignore_errors=True)
        try:
            Benchmark(copy, ScoreSettings()).score(["toy"])
        except SaodError as error:
            noticed += 1
            assert "is damaged" in str(error) and "verify" in str(error)
    assert noticed >= 6  # the other bytes are of columns that scoring does not read


def flipped(path: Path, place: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= bit
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["use-case.json", "ledger/toy/id/all.json", "manifest/id.objects.parquet"])
def test_flipped_bytes_in_what_is_not_a_shard_are_never_used(golden_store, tmp_path, name) -> None:
    """Every flipped byte is refused with one sentence, or changes nothing (white space)."""
    expected = Benchmark(golden_store, ScoreSettings()).score(["toy"])["toy"].result
    rng = np.random.default_rng(3)
    refused = 0
    for number in range(25):
        folder = tmp_path / str(number)
        shutil.copytree(golden_store.uri, folder, ignore=shutil.ignore_patterns("cache"))
        flipped(folder / name, int(rng.integers(1 << 30)), 1 << int(rng.integers(8)))
        try:
            assert Benchmark(Store.open(str(folder)), ScoreSettings()).score(["toy"])["toy"].result == expected
        except SaodError as error:
            refused += 1
            assert "is damaged" in str(error) or "incomplete" in str(error)
        shutil.rmtree(folder)
    assert refused >= 10


def test_a_shards_footer_is_checked(copy) -> None:
    file = one_shard(copy, "val")
    whole = file.read_bytes()
    for back in range(1, 4000, 97):
        flipped(file, len(whole) - back)
        with pytest.raises(SaodError, match="is damaged"):
            Benchmark(copy, ScoreSettings()).score(["toy"])
        file.write_bytes(whole)


def test_the_command(copy) -> None:
    run = saod_ray("verify", copy.uri)
    assert run.returncode == 0
    assert run.stdout.startswith(f"{copy.uri} is intact: 7 shards, 1,620 images, ")
    one_shard(copy, "ood").unlink()
    run = saod_ray("verify", copy.uri)
    assert run.returncode == 1
    assert "is gone; repair: saod-ray import" in run.stdout
    assert run.stderr == f"saod-ray: {copy.uri} has 1 problem: repair it with the command above, then verify again.\n"


def test_missing_splits_strays_and_manifests(copy) -> None:
    shutil.rmtree(copy.folder.path("ledger/toy/val"))
    verdict = verify(copy, ["toy"])
    assert [p.what for p in verdict.problems] == ["has no detections: all 180 images are missing"]
    assert "safe to delete" in verdict.notes[0]
    manifest = Path(copy.folder.path("manifest/id.objects.parquet"))
    data = bytearray(manifest.read_bytes())
    data[len(data) // 2] ^= 0x10
    manifest.write_bytes(data)
    assert any(p.where == "manifest/id" for p in verify(Store.open(copy.uri), ["toy"]).problems)
