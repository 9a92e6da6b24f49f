"""Import of COCO result lists: one pass that spills detections by shard, one that commits the shards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from saod_ray.config import UseCase, source_of, val_shift
from saod_ray.data.json_stream import JsonFile
from saod_ray.errors import SaodError
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import Array
from saod_ray.store.spill import SHARD_IMAGES, Index, Spill
from saod_ray.store.store import Store, check_name, check_split
from saod_ray.store.writing import writing

KIND = "import"  # the origin of its pages


def import_results(
    uri: str,
    case: UseCase,
    detector: str,
    split: str,
    detections: Path,
    replace: bool = False,
    shard_images: int = SHARD_IMAGES,
    progress: Callable[[int, int], None] | None = None,
) -> Page:
    """Import a COCO result list as the detections of one split (or of one OOD subset, `ood/NAME`).

    All or nothing: the ledger page is committed last, and until then nothing of the store has changed. What was imported
    from the very same file before is left as it is.
    """
    check_name(detector)
    if not detections.is_file():
        raise SaodError(f"There is no file {detections}: give the COCO result JSON with --detections.")
    known = [*case.splits_of(), *val_shift(case.splits.id.severities)]
    check_split(split, known, [subset.name for subset in case.splits.ood])
    store = Store.of_use_case(uri, case)
    name, unit = check_split(split, [*store.splits, *store.val_shift], store.description.subsets)
    with writing(store, detector, name) as folder:
        if not replace and (page := imported_page(store, detector, split, detections)):
            return page
        others = _clashing(store, detector, name, unit, replace)
        old = {shard.name for shard in store.shards(detector, name)}
        spill = Spill(folder, Index.of(store, name, unit), detections, shard_images)
        with JsonFile.from_path(detections, "a JSON list of detections", progress) as source:
            for block in source.blocks():
                spill.add(block)
        origin = Origin(KIND, detections.name, source.sha256)
        shards = []
        for rows in spill.shards():
            shard_name = _shard_name(store, detector, name, origin, rows.image_id)
            shards.append(store.write_shard(detector, name, shard_name, rows))
        page = Page(detector=detector, split=name, unit=unit, origin=origin, shards=shards)
        with store.folder.lock("use-case"):
            if Store.open(uri).description != store.description:
                raise SaodError(f"Another import has given {uri} another use case meanwhile: use another store.")
            ledger.write_page(store.folder, page)
        for other in others:
            store.folder.delete(ledger.page_name(detector, name, other))
        for gone in old.difference(shard.name for shard in store.shards(detector, name)):
            store.folder.delete(store.shard_file(detector, name, gone))
    return page


def imported_page(store: Store, detector: str, split: str, detections: Path) -> Page | None:
    """The page of an earlier import of the same bytes, if its shards are there and it is the only one of its images."""
    name, unit = check_split(split, [*store.splits, *store.val_shift], store.description.subsets)
    pages = store.pages(detector, name)
    rivals = [page for page in pages if unit in ("all", page.unit) or page.unit == "all"]
    if len(rivals) != 1 or (rivals[0].unit, rivals[0].origin.kind) != (unit, KIND):
        return None
    (page,) = rivals
    if any(store.folder.size(store.shard_file(detector, name, each.name)) != each.bytes for each in page.shards):
        return None
    with detections.open("rb") as file:
        is_same = hashlib.file_digest(file, "sha256").hexdigest() == page.origin.sha256
    return page if is_same else None


def _clashing(store: Store, detector: str, split: str, unit: str, replace: bool) -> list[str]:
    """The units that an import replaces beside its own; refuses what would lose detections."""
    known = [page.unit for page in store.pages(detector, split)]
    if unit != "all" and "all" in known:
        raise SaodError(
            f"{store.uri} has detections of '{detector}' on all of {split}: import {split} as a whole again with --replace."
        )
    clash = known if unit == "all" else [other for other in known if other == unit]
    if clash and not replace:
        what = split if unit == "all" else f"{split}/{unit}"
        raise SaodError(
            f"{store.uri} has detections of '{detector}' on {what} already: add --replace to import them again."
        )
    return [other for other in clash if other != unit]


def _shard_name(store: Store, detector: str, split: str, origin: Origin, image_ids: Array) -> str:
    """A name made of what the shard is made from: the same work has the same name everywhere."""
    state = hashlib.blake2b(digest_size=16)
    for part in (detector, split, origin.kind, origin.sha256, store.description.manifests[source_of(split)]):
        state.update(part.encode() + b"\0")
    state.update(np.ascontiguousarray(image_ids, "<i8").tobytes())
    return state.hexdigest()
