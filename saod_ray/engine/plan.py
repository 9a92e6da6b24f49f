"""What a run has to do: ranges of images that some detector's shards in the store do not cover.

A range is named by its place in the split's manifest, and its shard by a digest of all that it is made from. A range
that lies within another that is valid is superseded by it, so that small shards can be put together at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from saod_ray.config import DetectorSpec, source_of
from saod_ray.errors import SaodError, some
from saod_ray.store import ledger
from saod_ray.store.compaction import IMAGES
from saod_ray.store.ledger import Page
from saod_ray.store.store import Store
from saod_ray.store.units import RUN, Unit, superseded

FORMAT = 1  # of shards: raise it when the same inputs give other rows
UNIT_IMAGES = 128


@dataclass(frozen=True)
class Work:
    """A unit and the detectors that miss it."""

    unit: Unit
    detectors: tuple[str, ...]


class Asked(NamedTuple):
    """What a run is to make: of every split all images, or the first alone; and what of the store it may replace."""

    limit: int | None = None
    retry_failed: bool = False
    val_shift: bool = False  # corrupted copies of val, too
    replace: bool = False  # what was made with other weights, packages or another seed


ALL = Asked()


@dataclass
class Plan:
    """The work in the order of the splits, and what is there already."""

    work: list[Work] = field(default_factory=list)
    cached: dict[str, int] = field(default_factory=dict)  # images of a detector that need not be done
    missing: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)  # of the cached ones
    stale: list[Page] = field(default_factory=list)  # go when a detector is there that makes them anew

    @property
    def images(self) -> int:
        """How many images are decoded, each once for all detectors."""
        return sum(work.unit.stop - work.unit.start for work in self.work)


class Inputs:
    """The images of a store's splits, and digests of all that a shard is made from."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.seed = store, seed
        self.manifest = cache(store.manifest)
        self._digests = cache(self._image_digests)

    def images(self, split: str) -> pl.DataFrame:
        """The images of a split, in the order that ranges count."""
        return self.manifest(source_of(split)).images

    def key(self, fingerprint: str, unit: Unit) -> str:
        """The name of a shard: the same work has the same name everywhere."""
        seed = str(self.seed) if unit.severity else ""
        state = hashlib.blake2b("\0".join([str(FORMAT), fingerprint, unit.split, seed]).encode(), digest_size=16)
        state.update(b"".join(self._digests(unit.split)[unit.start : unit.stop]))
        return state.hexdigest()

    def is_valid(self, page: Page, fingerprint: str) -> bool:
        """Whether a page was made from what its images are now."""
        unit = Unit.named(page.split, page.unit)
        return unit.stop <= self.images(page.split).height and page.origin.sha256 == self.key(fingerprint, unit)

    def _image_digests(self, split: str) -> list[bytes]:
        """Of every image: its id, its file's name, and in pseudo-OOD its objects, which are blanked."""
        images = self.images(split)
        boxes = boxes_by_image(self.manifest(source_of(split)).objects) if split == "pseudo-ood" else {}
        digests = []
        for image_id, name in images.select("image_id", "file_name").iter_rows():
            text = f"{image_id}\0{name}\0".encode()
            digests.append(hashlib.blake2b(text + boxes.get(image_id, np.zeros(0)).tobytes(), digest_size=16).digest())
        return digests


def boxes_by_image(objects: pl.DataFrame) -> dict[int, np.ndarray]:
    """x, y, w, h of each image's objects."""
    parts = objects.partition_by("image_id", as_dict=True, maintain_order=True)
    return {int(key[0]): part.select("x", "y", "w", "h").to_numpy() for key, part in parts.items()}


def plan(inputs: Inputs, specs: Sequence[DetectorSpec], unit_images: int = UNIT_IMAGES, asked: Asked = ALL) -> Plan:
    """What is missing of what is asked for."""
    made = Plan()
    for counts in (made.cached, made.missing, made.failed):
        counts.update((spec.name, 0) for spec in specs)
    for split in [*inputs.store.splits, *(inputs.store.val_shift if asked.val_shift else ())]:
        height = inputs.images(split).height
        count = min(asked.limit or height, height)
        ranges: dict[tuple[int, int], list[str]] = {}
        for spec in specs:
            lacking = ~_covered(inputs, spec, Unit(split, 0, count), made, asked)[:count]
            made.missing[spec.name] += int(lacking.sum())
            made.cached[spec.name] += count - int(lacking.sum())
            for start, stop in _runs(lacking, unit_images):
                ranges.setdefault((start, stop), []).append(spec.name)
        made.work += [Work(Unit(split, *each), tuple(names)) for each, names in sorted(ranges.items())]
    return made


def refuse_other_seed(inputs: Inputs, detectors: Sequence[str]) -> None:
    """Refuse a seed that is not that of the other detectors' corrupted images: figures would not compare."""
    for split in [*inputs.store.splits, *inputs.store.val_shift]:
        for name in detectors if Unit(split, 0, 0).severity else ():
            for page in inputs.store.pages(name, split)[:1]:
                if page.origin.kind == RUN and not inputs.is_valid(page, page.origin.file):
                    raise SaodError(
                        f"The corrupted images of '{name}' in {inputs.store.uri} were made with another --seed: give that one, "
                        "or use another store."
                    )


def _covered(inputs: Inputs, spec: DetectorSpec, wanted: Unit, made: Plan, asked: Asked) -> np.ndarray:
    """Which images of a split a detector's pages cover, without those of pages that go, which it adds to the plan."""
    covered = np.zeros(inputs.images(wanted.split).height, bool)
    pages = ledger.pages(inputs.store.folder, spec.name, wanted.split)
    # after the pages: a shard is there before the page that lists it
    files = set(inputs.store.folder.list(f"detections/{spec.name}/{wanted.split}"))
    kept = []
    for page in pages:
        unit = Unit.named(wanted.split, page.unit)
        is_there = all(f"{shard.name}.parquet" in files for shard in page.shards)
        if page.origin.kind != RUN or (is_there and not inputs.is_valid(page, spec.fingerprint)):
            _refuse_other(inputs, page, unit.stop > wanted.stop < len(covered), asked)
        elif is_there and not (asked.retry_failed and _failed(page) and unit.stop <= wanted.stop):
            covered[unit.start : unit.stop] = True
            kept.append(page)
            continue
        made.stale.append(page)
    gone = {page.unit for page in superseded(kept)}
    made.failed[spec.name] += sum(_failed_before(inputs, p, wanted.stop) for p in kept if p.unit not in gone)
    return covered


def _refuse_other(inputs: Inputs, page: Page, is_beyond: bool, asked: Asked) -> None:
    """Refuse to take away what is not ours, what nobody said may go, and images beyond the limit."""
    place = f"{inputs.store.uri} holds detections of '{page.detector}' on {page.split}"
    if page.origin.kind != RUN:
        raise SaodError(f"{place} that were imported: use another store.")
    other = "that were made with other weights, options or packages, or with another --seed"
    if not asked.replace:
        raise SaodError(f"{place} {other}: say --replace to make them anew, or use another store.")
    if is_beyond:
        raise SaodError(f"{place} beyond --limit {other}: run without --limit to make all anew, or use another store.")


def _failed(page: Page) -> int:
    return sum(shard.failed for shard in page.shards)


def _failed_before(inputs: Inputs, page: Page, stop: int) -> int:
    """The failed images of a page that come before one."""
    unit = Unit.named(page.split, page.unit)
    if unit.stop <= stop or not _failed(page):
        return _failed(page)
    rows = [inputs.store.read_shard(page.detector, page.split, shard) for shard in page.shards]
    status = [each for part in rows for each in part.status]
    return status[: max(stop - unit.start, 0)].count("failed")


def _runs(lacking: np.ndarray, length: int, large: int = IMAGES) -> list[tuple[int, int]]:
    """Ranges of True, cut where a multiple of the length lies, and where a large shard ends.

    >>> _runs(np.array([0, 1, 1, 1, 0, 1], bool), 2)
    [(1, 2), (2, 4), (5, 6)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], lacking.astype(np.int8), [0]])))
    found = []
    for start, stop in edges.reshape(-1, 2).tolist():
        cuts = {start, stop, *_multiples(start, stop, length), *_multiples(start, stop, large)}
        found += list(pairwise(sorted(cuts)))
    return found


def _multiples(start: int, stop: int, of: int) -> range:
    return range((start // of + 1) * of, stop, of)


def discard(store: Store, pages: Sequence[Page]) -> None:
    """Take stale pages out of the store: first the page, then its shards. One that another run replaced since stays."""
    places = {(page.detector, page.split) for page in pages}
    there = {place: ledger.pages(store.folder, *place) for place in places}
    for page in pages:
        if page in there[page.detector, page.split]:
            store.folder.delete(ledger.page_name(page.detector, page.split, page.unit))
            for shard in page.shards:
                store.folder.delete(store.shard_file(page.detector, page.split, shard.name))


def said(made: Plan) -> str:
    """The plan in one sentence."""
    detectors = [f"{name} {missing:,}" for name, missing in made.missing.items() if missing]
    if not detectors:
        return "nothing to do: all that is asked for is there"
    old = sum(shard.images for page in made.stale for shard in page.shards)
    again = f"; {old:,} images that failed, or were made otherwise, are replaced" if old else ""
    return f"{len(made.work):,} units, {made.images:,} images to decode; to detect: {some(detectors, 9)}{again}"
