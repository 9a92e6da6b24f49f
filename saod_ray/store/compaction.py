"""Merge the small shards of a run into few large ones, whose bytes do not depend on the size of the units."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from saod_ray.errors import SaodError
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import Rows
from saod_ray.store.store import Store
from saod_ray.store.units import RUN, Unit, superseded

IMAGES = 4096  # per large shard; no unit of a run crosses the end of one


def compact(store: Store, detector: str, split: str, images: int, fingerprint: str, key: Callable[[Unit], str]) -> int:
    """Merge shards of a split into a large shard wherever all its images exist; returns the number of merges.

    Elsewhere only overlapping shards are merged, so that no image exists twice.

    Args:
        store: The store.
        detector: Name of the detector.
        split: Name of the split.
        images: The number of images of the split.
        fingerprint: Fingerprint of the detector.
        key: The name of the shard of a unit.
    """
    written, is_complete = 0, True
    listed = ledger.pages(store.folder, detector, split)
    for start in range(0, images, IMAGES):
        large = Unit(split, start, min(start + IMAGES, images))
        pages = _within(listed, large, key)
        is_covered = [unit for unit, _ in _chains(pages, is_touching=True)] == [large]
        is_complete &= is_covered
        for unit, parts in _chains(pages, is_touching=is_covered):
            if len(parts) > 1:
                _merge(store, unit, parts, fingerprint, key)
                written += 1
    clean(store, detector, split, is_complete)
    return written


def _merge(store: Store, unit: Unit, pages: list[Page], fingerprint: str, key: Callable[[Unit], str]) -> None:
    detector, split = pages[0].detector, unit.split
    try:
        rows = _merged_rows(store, pages)
    except SaodError:
        now = _within(ledger.pages(store.folder, detector, split), unit, key)
        if [page.unit for page in now] == [unit.name]:  # another run has merged them meanwhile
            return
        raise
    shard = store.write_shard(detector, split, key(unit), rows)
    origin = Origin(RUN, fingerprint, key(unit))
    ledger.write_page(store.folder, Page(detector=detector, split=split, unit=unit.name, origin=origin, shards=[shard]))


def clean(store: Store, detector: str, split: str, is_complete: bool) -> None:
    """Delete superseded pages, then their shards, and temporary files of killed writers.

    In a complete split, shards that no page lists are deleted, too: even another run that is about to list one does not
    need it.
    """
    superseded_pages = superseded(ledger.pages(store.folder, detector, split))
    for page in superseded_pages:
        store.folder.delete(ledger.page_name(detector, split, page.unit))
    for shard in [shard for page in superseded_pages for shard in page.shards]:
        store.folder.delete(store.shard_file(detector, split, shard.name))
    if is_complete:
        store.remove_unlisted(detector, split)
    for name in ("detections", "ledger"):
        store.folder.below(f"{name}/{detector}/{split}").sweep()


def _within(listed: list[Page], unit: Unit, key: Callable[[Unit], str]) -> list[Page]:
    """The valid pages inside a unit that are not superseded, in the order of their images."""
    pages = []
    for page in listed:
        part = Unit.from_name(unit.split, page.unit)
        if unit.start <= part.start and part.stop <= unit.stop and page.origin.sha256 == key(part):
            pages.append(page)
    superseded_units = {page.unit for page in superseded(pages)}
    return sorted((page for page in pages if page.unit not in superseded_units), key=lambda page: page.unit)


def _chains(pages: list[Page], is_touching: bool) -> list[tuple[Unit, list[Page]]]:
    """Groups of pages that overlap (or touch, if `is_touching`), each with the unit that they cover together."""
    chains: list[tuple[Unit, list[Page]]] = []
    for page in pages:
        unit = Unit.from_name(page.split, page.unit)
        if chains and unit.start < chains[-1][0].stop + is_touching:
            covered, before = chains[-1]
            chains[-1] = (covered._replace(stop=max(covered.stop, unit.stop)), [*before, page])
        else:
            chains.append((unit, [page]))
    return chains


def _merged_rows(store: Store, pages: list[Page]) -> Rows:
    """The rows of pages, each image once. Pages overlap if runs used different unit sizes."""
    parts = []
    covered_until = 0
    for page in pages:
        start, stop = Unit.from_name(page.split, page.unit)[1:]
        rows = [store.read_shard(page.detector, page.split, shard) for shard in page.shards]
        parts.append(_skip_images(_concatenate(rows), max(covered_until - start, 0)))
        covered_until = stop
    return _concatenate(parts)


def _skip_images(rows: Rows, first: int) -> Rows:
    """The rows from image number `first` on."""
    skipped = rows.offsets[first]
    return Rows(
        image_id=rows.image_id[first:],
        offsets=rows.offsets[first:] - skipped,
        columns={name: column[skipped:] for name, column in rows.columns.items()},
        status=rows.status[first:],
        error=rows.error[first:],
        corruption=rows.corruption[first:],
    )


def _concatenate(parts: list[Rows]) -> Rows:
    """Concatenate rows. The columns are those that all parts with a detection have, as if written at once."""
    names = dict.fromkeys(name for part in parts for name in part.columns)
    common = [name for name in names if all(name in part.columns for part in parts if part.detections)]
    before = np.cumsum([0, *(part.detections for part in parts)])
    offsets = [part.offsets[1:] + shift for part, shift in zip(parts, before, strict=False)]
    return Rows(
        image_id=np.concatenate([part.image_id for part in parts]),
        offsets=np.concatenate([[0], *offsets]).astype(np.int64),
        columns={name: np.concatenate([p.columns[name] for p in parts if name in p.columns]) for name in common},
        status=[status for part in parts for status in part.status],
        error=[error for part in parts for error in part.error],
        corruption=[corruption for part in parts for corruption in part.corruption],
    )
