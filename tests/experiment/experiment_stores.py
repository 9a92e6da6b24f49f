"""Small stores for the experiments' tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from usecases import SPLITS, import_all, random_use_case

from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import Rows
from saod_ray.store.store import Store

EXTRA = ("avg_entropy", "max_class_entropy", "variance")


def with_columns(store: Store, detector: str, names: tuple[str, ...], seed: int = 0) -> None:
    """Give a detector's detections more columns, as a run of a probabilistic or sigmoid-based one has them."""
    rng = np.random.default_rng(seed)
    for split in SPLITS:
        rows = store.read_shard(detector, split, store.pages(detector, split)[0].shards[0])
        more = {
            name: rng.integers(1, 9, (rows.detections, 4) if name == "variance" else rows.detections) / 8
            for name in names
        }
        columns = rows.columns | {name: values.astype(np.float32) for name, values in more.items()}
        changed = Rows(rows.image_id, rows.offsets, columns, rows.status, rows.error, rows.corruption)
        shard = store.write_shard(detector, split, "0" * 32, changed)
        listed = Page(detector=detector, split=split, unit="all", origin=Origin("import", "x", "0"), shards=[shard])
        ledger.write_page(store.folder, listed)


def two_detectors(place: Path) -> Path:
    """A use case, and below it a store with a plain detector `atss` and one `nll-rcnn` that has every column."""
    random_use_case(place, 4)
    for detector in ("atss", "nll-rcnn"):
        import_all(str(place / "store"), place, detector)
    with_columns(Store.open(str(place / "store")), "nll-rcnn", EXTRA)
    return place
