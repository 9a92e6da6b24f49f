"""Many small shards of a run become few large ones, whose bytes do not depend on how the work was cut up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from saod_ray.errors import SaodError
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import Rows
from saod_ray.store.store import Store
from saod_ray.store.units import RUN, Unit, superseded

IMAGES = 4096  # of a large shard; no unit of a run reaches over the end of one


def compact(store: Store, detector: str, split: str, images: int, fingerprint: str, key: Callable[[Unit], str]) -> int:
    """Put a split's shards together, wherever all images of a large one are there; returns how many were written.

    Elsewhere shards that overlap are put together, so that no image is there twice.
    """
    written, is_whole = 0, True
    listed = ledger.pages(store.folder, detector, split)
    for start in range(0, images, IMAGES):
        large = Unit(split, start, min(start + IMAGES, images))
        pages = _within(listed, large, key)
        is_all = [unit for unit, _ in _chains(pages, is_touching=True)] == [large]
        is_whole &= is_all
        for unit, parts in _chains(pages, is_touching=is_all):
            if len(parts) > 1:
                _put_together(store, unit, parts, fingerprint, key)
                written += 1
    clean(store, detector, split, is_whole)
    return written


def _put_together(store: Store, unit: Unit, pages: list[Page], fingerprint: str, key: Callable[[Unit], str]) -> None:
    detector, split = pages[0].detector, unit.split
    try:
        rows = _joined(store, pages)
    except SaodError:
        now = _within(ledger.pages(store.folder, detector, split), unit, key)
        if [page.unit for page in now] == [unit.name]:  # another run put them together meanwhile
            return
        raise
    shard = store.write_shard(detector, split, key(unit), rows)
    origin = Origin(RUN, fingerprint, key(unit))
    ledger.write_page(store.folder, Page(detector=detector, split=split, unit=unit.name, origin=origin, shards=[shard]))


def clean(store: Store, detector: str, split: str, is_whole: bool) -> None:
    """Remove what larger shards supersede, first the pages, then the files, and what killed writers left.

    Where a split is whole, a shard that no page lists is of no use even to another run that is about to list it.
    """
    gone = superseded(ledger.pages(store.folder, detector, split))
    for page in gone:
        store.folder.delete(ledger.page_name(detector, split, page.unit))
    for shard in [shard for page in gone for shard in page.shards]:
        store.folder.delete(store.shard_file(detector, split, shard.name))
    if is_whole:
        store.remove_unlisted(detector, split)
    for place in ("detections", "ledger"):
        store.folder.below(f"{place}/{detector}/{split}").sweep()


def _within(listed: list[Page], unit: Unit, key: Callable[[Unit], str]) -> list[Page]:
    """The valid pages that lie within a unit and are not superseded, in the order of their images."""
    found = []
    for page in listed:
        part = Unit.from_name(unit.split, page.unit)
        if unit.start <= part.start and part.stop <= unit.stop and page.origin.sha256 == key(part):
            found.append(page)
    gone = {page.unit for page in superseded(found)}
    return sorted((page for page in found if page.unit not in gone), key=lambda page: page.unit)


def _chains(pages: list[Page], is_touching: bool) -> list[tuple[Unit, list[Page]]]:
    """Pages that overlap, or touch where that counts, and the images from their first to their last."""
    chains: list[tuple[Unit, list[Page]]] = []
    for page in pages:
        unit = Unit.from_name(page.split, page.unit)
        if chains and unit.start < chains[-1][0].stop + is_touching:
            whole, before = chains[-1]
            chains[-1] = (whole._replace(stop=max(whole.stop, unit.stop)), [*before, page])
        else:
            chains.append((unit, [page]))
    return chains


def _joined(store: Store, pages: list[Page]) -> Rows:
    """The rows of pages, each image once: runs that cut the work differently may have made some of it twice."""
    parts = []
    at = 0
    for page in pages:
        start, stop = Unit.from_name(page.split, page.unit)[1:]
        rows = [store.read_shard(page.detector, page.split, shard) for shard in page.shards]
        parts.append(_from(_concatenated(rows), max(at - start, 0)))
        at = stop
    return _concatenated(parts)


def _from(rows: Rows, first: int) -> Rows:
    """The rows without those before an image."""
    skipped = rows.offsets[first]
    return Rows(
        image_id=rows.image_id[first:],
        offsets=rows.offsets[first:] - skipped,
        columns={name: column[skipped:] for name, column in rows.columns.items()},
        status=rows.status[first:],
        error=rows.error[first:],
        corruption=rows.corruption[first:],
    )


def _concatenated(parts: list[Rows]) -> Rows:
    """One below the other. A column counts that all parts with a detection have, as in a shard that is made at once."""
    names = dict.fromkeys(name for part in parts for name in part.columns)
    common = [name for name in names if all(name in part.columns for part in parts if part.detections)]
    before = np.cumsum([0, *(part.detections for part in parts)])
    offsets = [part.offsets[1:] + shift for part, shift in zip(parts, before, strict=False)]
    return Rows(
        image_id=np.concatenate([part.image_id for part in parts]),
        offsets=np.concatenate([[0], *offsets]).astype(np.int64),
        columns={name: np.concatenate([p.columns[name] for p in parts if name in p.columns]) for name in common},
        status=[each for part in parts for each in part.status],
        error=[each for part in parts for each in part.error],
        corruption=[each for part in parts for each in part.corruption],
    )
