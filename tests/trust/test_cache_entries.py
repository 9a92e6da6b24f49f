"""Cache entries under a key that is not theirs, or changed in any way, count as absent."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from hostile import copy_store

from saod_ray.config import ScoreSettings
from saod_ray.files import Folder
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.store.cache import Cache, cache_key
from saod_ray.store.store import Store


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(Folder(str(tmp_path)))


ONE, OTHER = cache_key("one"), cache_key("other")


def test_entries_come_back_under_their_own_key(cache: Cache) -> None:
    cache.put_arrays(ONE, {"a": np.arange(6.0).reshape(2, 3), "b": np.empty((0, 2), np.int16)})
    cache.put_value(ONE, {"x": [1, None]})
    arrays = cache.arrays(ONE)
    assert arrays is not None and arrays["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and arrays["b"].shape == (0, 2)
    assert cache.value(ONE) == {"x": [1, None]}


def test_a_copied_entry_is_absent(cache: Cache, tmp_path: Path) -> None:
    cache.put_arrays(ONE, {"a": np.arange(3)})
    cache.put_value(ONE, 1)
    for suffix in ("arrays", "json"):
        target = tmp_path / "cache" / f"{OTHER}.{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "cache" / f"{ONE}.{suffix}", target)
    assert cache.arrays(OTHER) is None and cache.value(OTHER) is None


@pytest.mark.parametrize(
    "header",
    [b"", b"[]", b"null", b'["KEY", [["a", "O", [1]]]]', b'["KEY", [["a", "<f8", [-1]]]]', b'["KEY", [["a", "<f8", [9]]]]',
     b'["KEY", [["a", "no such", [1]]]]', b'["KEY", [["a", "<f8", [999999999999999999999]]]]', b"\xff", b"[" * 9999],
)  # fmt: skip
def test_a_header_with_a_fitting_checksum_may_say_anything(cache: Cache, tmp_path: Path, header: bytes) -> None:
    header = header.replace(b"KEY", ONE.encode())
    content = len(header).to_bytes(8, "little") + header + bytes(8)
    path = tmp_path / "cache" / f"{ONE}.arrays"
    path.parent.mkdir(parents=True)
    path.write_bytes(zlib.crc32(content).to_bytes(4, "little") + content)
    assert cache.arrays(ONE) is None


def test_every_flip_of_an_entry_is_noticed(cache: Cache, tmp_path: Path) -> None:
    cache.put_arrays(ONE, {"a": np.arange(3)})
    cache.put_value(ONE, {"daq": 0.5})
    for suffix, read in (("arrays", cache.arrays), ("json", cache.value)):
        path = tmp_path / "cache" / f"{ONE}.{suffix}"
        original = path.read_bytes()
        for bit in range(8 * len(original)):
            changed = bytearray(original)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            assert read(ONE) is None, bit
        path.write_bytes(original)
        assert read(ONE) is not None


def test_swapped_entries_change_no_score(golden_store: Store, tmp_path: Path) -> None:
    store = copy_store(golden_store, tmp_path / "store")
    resamples = Bootstrap(5, 0)
    expected = Benchmark(store, ScoreSettings(), False, resamples).score(["toy"])["toy"]
    files = sorted(path for path in (tmp_path / "store" / "cache").rglob("*") if path.is_file())
    assert len(files) > 5
    contents = [path.read_bytes() for path in files]
    for path, content in zip(files, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    scored = Benchmark(store, ScoreSettings(), False, resamples).score(["toy"])["toy"]
    assert scored.result == expected.result
    assert np.array_equal(scored.replicates, expected.replicates, equal_nan=True)
