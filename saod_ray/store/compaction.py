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

IMAGES = 4096  # of a large shard


def compact(store: Store, detector: str, split: str, images: int, fingerprint: str, key: Callable[[Unit], str]) -> int:
    """Put a split's shards together, wherever all images of a large one are there; returns how many were written."""
    written = 0
    for start in range(0, images, IMAGES):
        unit = Unit(split, start, min(start + IMAGES, images))
        pages = _within(store, detector, unit)
        if [page.unit for page in pages] == [unit.name] or not _covers(pages, unit):
            continue
        try:
            rows = _joined([store.read_shard(detector, split, shard) for page in pages for shard in page.shards])
        except SaodError:
            if _covers(_within(store, detector, unit), unit):  # another run put them together meanwhile
                continue
            raise
        shard = store.write_shard(detector, split, key(unit), rows)
        origin = Origin(RUN, fingerprint, key(unit))
        ledger.write_page(
            store.folder, Page(detector=detector, split=split, unit=unit.name, origin=origin, shards=[shard])
        )
        written += 1
    clean(store, detector, split)
    return written


def clean(store: Store, detector: str, split: str) -> None:
    """Remove what larger shards supersede: first the pages, then the files that no page lists any more."""
    for page in superseded(ledger.pages(store.folder, detector, split)):
        store.folder.delete(ledger.page_name(detector, split, page.unit))
        kept = {shard.name for other in ledger.pages(store.folder, detector, split) for shard in other.shards}
        for shard in page.shards:
            if shard.name not in kept:
                store.folder.delete(store.shard_file(detector, split, shard.name))


def _within(store: Store, detector: str, unit: Unit) -> list[Page]:
    """The pages that count and lie within a unit, in the order of their images."""
    pages = [(Unit.named(unit.split, page.unit), page) for page in store.pages(detector, unit.split)]
    inside = [(each.start, page) for each, page in pages if unit.start <= each.start and each.stop <= unit.stop]
    return [page for _, page in sorted(inside, key=lambda each: each[0])]


def _covers(pages: list[Page], unit: Unit) -> bool:
    at = unit.start
    for page in pages:
        part = Unit.named(unit.split, page.unit)
        if part.start != at:
            return False
        at = part.stop
    return at == unit.stop


def _joined(parts: list[Rows]) -> Rows:
    names = list(dict.fromkeys(name for part in parts for name in part.columns))
    offsets = [0]
    for part in parts:
        offsets += (part.offsets[1:] + offsets[-1]).tolist()
    columns = {}
    for name in names:
        # a part without detections has none of a column that others have
        filled = [part.columns[name] for part in parts if name in part.columns]
        columns[name] = np.concatenate(filled)
    return Rows(
        image_id=np.concatenate([part.image_id for part in parts]),
        offsets=np.array(offsets, np.int64),
        columns=columns,
        status=[each for part in parts for each in part.status],
        error=[each for part in parts for each in part.error],
        corruption=[each for part in parts for each in part.corruption],
    )
