"""The plan of a run: ranges of images that some detector's shards in the store do not cover.

A range is named by its position in the split's manifest, and its shard by a digest of everything it is computed from. A
valid range supersedes the ranges within it, so that small shards can be compacted at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from saod_ray.config import DetectorSpec
from saod_ray.errors import SaodError, join_truncated
from saod_ray.splits import SplitName
from saod_ray.store import ledger
from saod_ray.store.compaction import IMAGES
from saod_ray.store.ledger import Page
from saod_ray.store.store import Store
from saod_ray.store.units import RUN, Unit, superseded

FORMAT = 1  # of shards; increase it when the same inputs give other rows
UNIT_IMAGES = 128


@dataclass(frozen=True)
class PlannedUnit:
    """A unit, and the detectors whose shards do not cover it."""

    unit: Unit
    detectors: tuple[str, ...]


class PlanOptions(NamedTuple):
    """Which images a run covers, and which detections it may replace."""

    limit: int | None = None  # images per split
    retry_failed: bool = False
    val_shift: bool = False  # corrupted copies of val as well
    replace: bool = False  # detections of other weights, options, packages or another seed


ALL_IMAGES = PlanOptions()


@dataclass
class Plan:
    """The units to do, in the order of the splits, and what the store already has. Counts are images per detector."""

    units: list[PlannedUnit] = field(default_factory=list)
    cached: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)  # of the cached ones
    stale: list[Page] = field(default_factory=list)  # removed when the detector that replaces them is ready

    @property
    def busy_detectors(self) -> list[str]:
        """The detectors that lack images."""
        return [name for name, count in self.missing.items() if count]

    def images_to_prepare(self, detectors: Collection[str]) -> int:
        """How many images are decoded, once for all these detectors."""
        return sum(
            planned.unit.image_count for planned in self.units if not set(detectors).isdisjoint(planned.detectors)
        )


class ShardInputs:
    """The images of a store's splits, and digests of everything that a shard is computed from."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.seed = store, seed
        self.manifest = cache(store.manifest)
        self._digests = cache(self._image_digests)

    def images(self, split: str) -> pl.DataFrame:
        """The images of a split, in the order in which ranges count them."""
        return self.manifest(SplitName(split).source).images

    def key(self, fingerprint: str, unit: Unit) -> str:
        """The name of a unit's shard: a digest, so that the same work has the same name everywhere."""
        seed = str(self.seed) if unit.severity else ""
        state = hashlib.blake2b("\0".join([str(FORMAT), fingerprint, unit.split, seed]).encode(), digest_size=16)
        state.update(b"".join(self._digests(unit.split)[unit.start : unit.stop]))
        return state.hexdigest()

    def is_valid(self, page: Page, fingerprint: str) -> bool:
        """Whether a page was computed from the images as they are now, with this fingerprint."""
        unit = Unit.from_name(page.split, page.unit)
        return unit.stop <= self.images(page.split).height and page.origin.sha256 == self.key(fingerprint, unit)

    def _image_digests(self, split: str) -> list[bytes]:
        """One digest per image, over its id, file name and, in pseudo-OOD, the boxes that are blanked."""
        images = self.images(split)
        boxes = boxes_by_image(self.manifest(SplitName(split).source).objects) if SplitName(split).is_pseudo_ood else {}
        digests = []
        for image_id, name in images.select("image_id", "file_name").iter_rows():
            text = f"{image_id}\0{name}\0".encode()
            digests.append(hashlib.blake2b(text + boxes.get(image_id, np.zeros(0)).tobytes(), digest_size=16).digest())
        return digests


def boxes_by_image(objects: pl.DataFrame) -> dict[int, np.ndarray]:
    """Image id → (n, 4) float64, x, y, w, h of its objects in pixels."""
    parts = objects.partition_by("image_id", as_dict=True, maintain_order=True)
    return {int(key[0]): part.select("x", "y", "w", "h").to_numpy() for key, part in parts.items()}


def make_plan(
    inputs: ShardInputs,
    specs: Sequence[DetectorSpec],
    unit_images: int = UNIT_IMAGES,
    options: PlanOptions = ALL_IMAGES,
) -> Plan:
    """The units that some detector's shards do not cover.

    Raises SaodError for detections that may not be replaced.
    """
    plan = Plan()
    for counts in (plan.cached, plan.missing, plan.failed):
        counts.update((spec.name, 0) for spec in specs)
    for split in [*inputs.store.splits, *(inputs.store.val_shift if options.val_shift else ())]:
        height = inputs.images(split).height
        count = min(options.limit or height, height)
        ranges: dict[tuple[int, int], list[str]] = {}
        for spec in specs:
            lacking = ~_covered(inputs, spec, Unit(split, 0, count), plan, options)[:count]
            plan.missing[spec.name] += int(lacking.sum())
            plan.cached[spec.name] += count - int(lacking.sum())
            for start, stop in _ranges(lacking, unit_images):
                ranges.setdefault((start, stop), []).append(spec.name)
        plan.units += [PlannedUnit(Unit(split, *bounds), tuple(names)) for bounds, names in sorted(ranges.items())]
    return plan


def refuse_other_seed(inputs: ShardInputs, detectors: Sequence[str]) -> None:
    """Raise SaodError for another seed than that of the store's corrupted images: results would not compare."""
    for split in [*inputs.store.splits, *inputs.store.val_shift]:
        for name in detectors if Unit(split, 0, 0).severity else ():
            for page in inputs.store.pages(name, split)[:1]:
                if page.origin.kind == RUN and not inputs.is_valid(page, page.origin.file):
                    raise SaodError(
                        f"The corrupted images of '{name}' in {inputs.store.uri} were made with another --seed: give that one, "
                        "or use another store."
                    )


def _covered(inputs: ShardInputs, spec: DetectorSpec, requested: Unit, plan: Plan, options: PlanOptions) -> np.ndarray:
    """Which images of a split valid pages cover, as a mask; the other pages are added to the plan as stale."""
    covered = np.zeros(inputs.images(requested.split).height, bool)
    pages = ledger.pages(inputs.store.folder, spec.name, requested.split)
    # listed after the pages: a shard exists before the page that lists it
    files = set(inputs.store.folder.list(f"detections/{spec.name}/{requested.split}"))
    valid = []
    for page in pages:
        unit = Unit.from_name(requested.split, page.unit)
        has_shards = all(f"{shard.name}.parquet" in files for shard in page.shards)
        if page.origin.kind != RUN or (has_shards and not inputs.is_valid(page, spec.fingerprint)):
            _refuse_other(inputs, page, unit.stop > requested.stop < len(covered), options)
        elif has_shards and not (options.retry_failed and _failed(page) and unit.stop <= requested.stop):
            covered[unit.start : unit.stop] = True
            valid.append(page)
            continue
        plan.stale.append(page)
    hidden = {page.unit for page in superseded(valid)}
    current = [page for page in valid if page.unit not in hidden]
    plan.failed[spec.name] += sum(_failed_before(inputs, page, requested.stop) for page in current)
    return covered


def _refuse_other(inputs: ShardInputs, page: Page, is_beyond: bool, options: PlanOptions) -> None:
    """Raise SaodError for imported detections, for any without --replace, and for images beyond --limit."""
    place = f"{inputs.store.uri} holds detections of '{page.detector}' on {page.split}"
    if page.origin.kind != RUN:
        raise SaodError(f"{place} that were imported: use another store.")
    other = "that were made with other weights, options or packages, or with another --seed"
    if not options.replace:
        raise SaodError(f"{place} {other}: give --replace to redo them, or use another store.")
    if is_beyond:
        raise SaodError(f"{place} beyond --limit {other}: run without --limit to redo all, or use another store.")


def _failed(page: Page) -> int:
    return sum(shard.failed for shard in page.shards)


def _failed_before(inputs: ShardInputs, page: Page, stop: int) -> int:
    """How many of a page's images before `stop` failed."""
    unit = Unit.from_name(page.split, page.unit)
    if unit.stop <= stop or not _failed(page):
        return _failed(page)
    rows = [inputs.store.read_shard(page.detector, page.split, shard) for shard in page.shards]
    status = [image_status for part in rows for image_status in part.status]
    return status[: max(stop - unit.start, 0)].count("failed")


def _ranges(lacking: np.ndarray, length: int, large: int = IMAGES) -> list[tuple[int, int]]:
    """Ranges [start, stop) of True, cut at multiples of `length` and of `large`.

    >>> _ranges(np.array([0, 1, 1, 1, 0, 1], bool), 2)
    [(1, 2), (2, 4), (5, 6)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], lacking.astype(np.int8), [0]])))
    ranges: list[tuple[int, int]] = []
    for start, stop in edges.reshape(-1, 2).tolist():
        cuts = {start, stop, *_multiples(start, stop, length), *_multiples(start, stop, large)}
        ranges += pairwise(sorted(cuts))
    return ranges


def _multiples(start: int, stop: int, of: int) -> range:
    return range((start // of + 1) * of, stop, of)


def discard(store: Store, pages: Sequence[Page]) -> None:
    """Remove stale pages from the store, each before its shards. Pages that another run replaced meanwhile stay."""
    places = {(page.detector, page.split) for page in pages}
    listed = {place: ledger.pages(store.folder, *place) for place in places}
    for page in pages:
        if page in listed[page.detector, page.split]:
            store.folder.delete(ledger.page_name(page.detector, page.split, page.unit))
            for shard in page.shards:
                store.folder.delete(store.shard_file(page.detector, page.split, shard.name))


def summary(plan: Plan, groups: Sequence[Sequence[str]]) -> str:
    """The plan in one sentence; `groups` are the detectors that share a pipeline."""
    counts = [f"{name} {missing:,}" for name, missing in plan.missing.items() if missing]
    if not counts:
        return "nothing to do: the store is complete"
    stale = sum(shard.images for page in plan.stale for shard in page.shards)
    replaced = f"; {stale:,} images that failed or changed are replaced" if stale else ""
    prepared = sum(plan.images_to_prepare(group) for group in groups)
    passes = f" (in {len(groups)} passes, one per group of detectors)" if len(groups) > 1 else ""
    return f"{len(plan.units):,} units, {prepared:,} images to decode{passes}; to detect: {join_truncated(counts, 9)}{replaced}"
