"""Ranges of images: how work is cut, which pages count, and that large shards do not depend on the cuts."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saod_ray.data.prepare import PreparedImage
from saod_ray.detect.detections import Detections
from saod_ray.engine.plan import _ranges
from saod_ray.engine.workers import make_rows
from saod_ray.store import compaction, ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import Rows
from saod_ray.store.store import Store
from saod_ray.store.units import RUN, Unit, superseded

LABELS = np.arange(3, dtype=np.int16)


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 9), st.integers(1, 20))
def test_ranges_are_what_lacks_and_cross_no_boundary(lacking, length, large) -> None:
    ranges = _ranges(np.array(lacking, bool), length, large)
    assert [k for start, stop in ranges for k in range(start, stop)] == [
        k for k, is_missing in enumerate(lacking) if is_missing
    ]
    for start, stop in ranges:
        assert start < stop and start // length == (stop - 1) // length and start // large == (stop - 1) // large
    joins = [b for (_, b), (c, _) in pairwise(ranges) if b == c]
    assert all(at % length == 0 or at % large == 0 for at in joins)  # no cut without a reason


def page(start: int, stop: int) -> Page:
    return Page(detector="d", split="id", unit=Unit("id", start, stop).name, origin=Origin(RUN, "f", "k"), shards=[])


@given(st.sets(st.tuples(st.integers(0, 12), st.integers(1, 12)), max_size=12))
def test_a_page_within_another_is_superseded(ranges) -> None:
    pages = {(start, start + length): page(start, start + length) for start, length in ranges}
    within = [
        unit for unit in pages if any(other != unit and other[0] <= unit[0] and unit[1] <= other[1] for other in pages)
    ]
    assert {page.unit for page in superseded(list(pages.values()))} == {pages[unit].unit for unit in within}


def key(unit: Unit) -> str:
    return f"{unit.start:016x}{unit.stop:016x}"


def make_unit_rows(seed: int, start: int, stop: int) -> Rows:
    """A unit's rows, as an actor makes them; some images fail, some are empty, some detectors forget their columns."""
    pictures, outcomes, errors = [], [], []
    kind = seed % 3
    for k in range(start, stop):
        rng = np.random.default_rng([seed, k])
        count, fails = int(rng.integers(0, 3)), bool(rng.random() < 0.3)
        entropy = rng.random(count).astype(np.float32)
        has = count > 0 if kind == 0 else True if kind == 1 else bool(rng.random() < 0.9)
        detections = Detections(
            label=rng.integers(0, 3, count).astype(np.int16),
            box=rng.random((count, 4)).astype(np.float32),
            score=rng.random(count).astype(np.float32),
            entropy=entropy if has else None,
        )
        pictures.append(PreparedImage(100 + k, None, "fog", None))
        outcomes.append(None if fails else detections)
        errors.append("no luck" if fails else None)
    return make_rows(pictures, outcomes, errors, LABELS)


def commit(store: Store, seed: int, unit: Unit) -> None:
    shard = store.write_shard("d", unit.split, key(unit), make_unit_rows(seed, unit.start, unit.stop))
    origin = Origin(RUN, "f", key(unit))
    ledger.write_page(store.folder, Page(detector="d", split=unit.split, unit=unit.name, origin=origin, shards=[shard]))


def compacted(seed: int, images: int, cuts: list[set[int]]) -> dict[str, bytes]:
    """The files of a store that runs with different cuts wrote to."""
    with tempfile.TemporaryDirectory() as place:
        store = Store(place)
        for boundaries in cuts:
            ends = sorted({0, images, *(cut for cut in boundaries if cut < images)})
            for start, stop in pairwise(ends):
                commit(store, seed, Unit("id", start, stop))
        (Path(place) / "detections" / "d" / "id" / "orphan.parquet").write_bytes(b"of a killed run")
        compaction.compact(store, "d", "id", images, "f", key)
        before = {p: p.stat().st_mtime_ns for p in Path(place).rglob("*")}
        assert compaction.compact(store, "d", "id", images, "f", key) == 0
        assert before == {p: p.stat().st_mtime_ns for p in Path(place).rglob("*")}
        return {str(p.relative_to(place)): p.read_bytes() for p in Path(place).rglob("*") if p.is_file()}


@settings(max_examples=40)
@given(st.integers(0, 99), st.integers(1, 23), st.lists(st.sets(st.integers(1, 22)), min_size=1, max_size=2))
def test_large_shards_do_not_depend_on_the_cuts(seed, images, cuts) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "IMAGES", 8)
        boundaries = {8, 16}
        expected = compacted(seed, images, [boundaries])
        assert compacted(seed, images, [boundaries | extra for extra in cuts]) == expected
        assert len(expected) == 2 * len(range(0, images, 8))


def test_gaps_are_left_and_pages_of_other_work_do_not_count(tmp_path) -> None:
    store = Store(str(tmp_path))
    for start, stop in ((0, 2), (3, 5)):
        commit(store, 1, Unit("id", start, stop))
    assert compaction.compact(store, "d", "id", 5, "f", key) == 0
    assert len(store.shards("d", "id")) == 2
    shard = store.write_shard("d", "id", "f" * 32, make_unit_rows(1, 2, 3))
    other = Page(detector="d", split="id", unit=Unit("id", 2, 3).name, origin=Origin(RUN, "f", "x"), shards=[shard])
    ledger.write_page(store.folder, other)
    assert compaction.compact(store, "d", "id", 5, "f", key) == 0
    commit(store, 1, Unit("id", 2, 3))
    assert compaction.compact(store, "d", "id", 5, "f", key) == 1
    assert [shard.images for shard in store.shards("d", "id")] == [5]


def test_a_shard_that_is_gone_is_said(tmp_path) -> None:
    from saod_ray.errors import SaodError

    store = Store(str(tmp_path))
    commit(store, 1, Unit("id", 0, 2))
    commit(store, 1, Unit("id", 2, 4))
    store.folder.delete(store.shard_file("d", "id", key(Unit("id", 2, 4))))
    with pytest.raises(SaodError, match="is gone"):
        compaction.compact(store, "d", "id", 4, "f", key)
