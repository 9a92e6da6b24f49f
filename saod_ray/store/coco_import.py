"""Import of COCO result lists: the first pass sorts detections into spill files, the second writes the shards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from saod_ray.config import UseCase
from saod_ray.data.json_stream import JsonFile
from saod_ray.errors import SaodError
from saod_ray.splits import SplitName, val_shift
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import Array
from saod_ray.store.spill import SHARD_IMAGES, Spill, SpillIndex
from saod_ray.store.store import Store, check_name, check_split
from saod_ray.store.write_lock import lock_for_writing

KIND = "import"  # the kind of origin of its pages
DESCRIPTION = "a JSON list of detections"  # the file, in messages


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
    """Import a COCO result list as the detections of one split.

    The import is atomic: the ledger page is written last, and until then the store is unchanged. If the same file was
    imported before, nothing happens.

    Args:
        uri: Folder or URI of the store; it is created if it does not exist.
        case: The use case.
        detector: Name of the detector.
        split: A split, or one OOD subset as `ood/NAME`.
        detections: The JSON file.
        replace: Replace detections that exist already.
        shard_images: The largest number of images per shard.
        progress: Called with (bytes read, bytes in all).

    Raises:
        SaodError: The file is not valid, or detections exist already.
    """
    check_name(detector)
    if not detections.is_file():
        raise SaodError(f"There is no file {detections}: give the COCO result JSON with --detections.")
    splits = [*case.split_names(), *val_shift(case.splits.id.severities)]
    check_split(split, splits, [subset.name for subset in case.splits.ood])
    with JsonFile.from_path(detections, DESCRIPTION) as source:
        next(source.blocks(), None)  # a file of another kind is refused before a store is created
    store = Store.open_or_create(uri, case)
    name, unit = check_split(split, [*store.splits, *store.val_shift], store.description.subsets)
    with lock_for_writing(store, detector, name) as folder:
        if not replace and (page := imported_page(store, detector, split, detections)):
            return page
        replaced_units = _units_to_replace(store, detector, name, unit, replace)
        old_shards = {shard.name for shard in store.shards(detector, name)}
        spill = Spill(folder, SpillIndex.from_store(store, name, unit), detections, shard_images)
        with JsonFile.from_path(detections, DESCRIPTION, progress) as source:
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
                raise SaodError(f"Another import has changed the use case of {uri} meanwhile: use another store.")
            ledger.write_page(store.folder, page)
        for replaced in replaced_units:
            store.folder.delete(ledger.page_name(detector, name, replaced))
        for unused in old_shards.difference(shard.name for shard in store.shards(detector, name)):
            store.folder.delete(store.shard_file(detector, name, unused))
    return page


def imported_page(store: Store, detector: str, split: str, detections: Path) -> Page | None:
    """The page of an earlier import of the same file; None if its shards are incomplete or other pages share its images."""
    name, unit = check_split(split, [*store.splits, *store.val_shift], store.description.subsets)
    pages = store.pages(detector, name)
    rivals = [page for page in pages if unit in ("all", page.unit) or page.unit == "all"]
    if len(rivals) != 1 or (rivals[0].unit, rivals[0].origin.kind) != (unit, KIND):
        return None
    (page,) = rivals
    if any(store.folder.size(store.shard_file(detector, name, shard.name)) != shard.bytes for shard in page.shards):
        return None
    with detections.open("rb") as file:
        is_same = hashlib.file_digest(file, "sha256").hexdigest() == page.origin.sha256
    return page if is_same else None


def _units_to_replace(store: Store, detector: str, split: str, unit: str, replace: bool) -> list[str]:
    """The other units that an import replaces; SaodError if detections would be lost without `replace`."""
    existing = [page.unit for page in store.pages(detector, split)]
    if unit != "all" and "all" in existing:
        raise SaodError(
            f"{store.uri} has detections of '{detector}' on all of {split}: import {split} as a whole again with --replace."
        )
    clash = existing if unit == "all" else [name for name in existing if name == unit]
    if clash and not replace:
        what = split if unit == "all" else f"{split}/{unit}"
        raise SaodError(
            f"{store.uri} has detections of '{detector}' on {what} already: add --replace to import them again."
        )
    return [name for name in clash if name != unit]


def _shard_name(store: Store, detector: str, split: str, origin: Origin, image_ids: Array) -> str:
    """A digest of the shard's inputs: the same import gives the same names everywhere."""
    state = hashlib.blake2b(digest_size=16)
    for part in (detector, split, origin.kind, origin.sha256, store.description.manifests[SplitName(split).source]):
        state.update(part.encode() + b"\0")
    state.update(np.ascontiguousarray(image_ids, "<i8").tobytes())
    return state.hexdigest()
