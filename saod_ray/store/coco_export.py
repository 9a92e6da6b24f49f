"""Export of a split's detections as a COCO result list."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from saod_ray.errors import SaodError, os_reason, os_remedy
from saod_ray.files import check_target, commit, temp_path
from saod_ray.store.ledger import Shard
from saod_ray.store.rows import UNCERTAINTIES, Rows
from saod_ray.store.store import Store, check_split

CHUNK = 20_000  # detections encoded at a time


def export_results(
    store: Store, detector: str, split: str, out: Path, progress: Callable[[int, int], None] | None = None
) -> int:
    """Write the detections atomically to a JSON file (gzipped if its name ends in .gz) and return their number.

    They are in ascending order of image ids. OOD subsets that were imported separately follow each other.
    """
    check_target(out)
    store.choose([detector])
    name, unit = check_split(split, [*store.splits, *store.val_shift], store.description.subsets)
    pages = [page for page in store.pages(detector, name) if unit == "all" or page.unit in (unit, "all")]
    if not pages:
        raise SaodError(f"{store.uri} has no detections of '{detector}' on {split}: import them first.")
    images = store.images(name, unit)
    source_id = dict(zip(images["image_id"].to_list(), images["source_id"].to_list(), strict=True))
    order = [
        shard
        for page in pages
        for shard in sorted(page.shards, key=lambda shard: _first_image(store, detector, name, shard))
    ]
    written = 0
    temporary = temp_path(out)
    try:
        opened: Any = gzip.GzipFile(temporary, "wb", mtime=0) if out.name.endswith(".gz") else temporary.open("wb")
        with opened as file:
            file.write(b"[")
            for done, shard in enumerate(order, 1):
                rows = store.read_shard(detector, name, shard)
                for count, text in _encode_chunks(rows, source_id, store.description.category_ids):
                    file.write(b",\n" * bool(written) + text[1:-1])
                    written += count
                if progress:
                    progress(done, len(order))
            file.write(b"]\n")
        commit(temporary, out)
    except OSError as error:
        raise SaodError(f"{out} cannot be written ({os_reason(error)}): {os_remedy(error)}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return written


def _first_image(store: Store, detector: str, split: str, shard: Shard) -> int:
    """The first image id of a shard, which orders the shards: each holds consecutive images."""
    image_ids = store.read_shard(detector, split, shard, []).image_id
    return int(image_ids.min()) if len(image_ids) else 0


def _encode_chunks(rows: Rows, source_id: dict[int, int], categories: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield JSON lists of at most CHUNK detections, each with its number of detections."""
    columns = rows.columns
    box = columns["box"].astype(np.float64)
    size = columns["size"] if "size" in columns else box[:, 2:] - box[:, :2]
    counts = np.diff(rows.offsets)
    selected = np.array([image in source_id for image in rows.image_id.tolist()], bool)
    image_of = np.repeat(np.array([source_id.get(image, 0) for image in rows.image_id.tolist()], np.int64), counts)
    take = np.flatnonzero(np.repeat(selected, counts))
    kinds = [name for name in UNCERTAINTIES if name in columns]
    for start in range(0, len(take), CHUNK):
        at = take[start : start + CHUNK]
        values = {
            "image_id": image_of[at].tolist(),
            "category_id": np.array(categories)[columns["label"][at]].tolist(),
            "bbox": np.concatenate([box[at, :2], size[at]], axis=1).tolist(),
            "score": columns["score"][at].astype(np.float64).tolist(),
        }
        if kinds:
            values["uncertainty"] = np.stack([columns[k][at].astype(np.float64) for k in kinds], axis=1).tolist()
        if "variance" in columns:
            values["variance"] = columns["variance"][at].astype(np.float64).tolist()
        rows_of = zip(*values.values(), strict=True)
        yield len(at), msgspec.json.encode([dict(zip(values, row, strict=True)) for row in rows_of])
