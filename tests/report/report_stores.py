"""ScoredDetector stores for the report's tests, with names that would break a careless page."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
from conftest import saod_ray
from usecases import import_all, random_use_case

from saod_ray.config import UseCase
from saod_ray.corrupt import draw
from saod_ray.splits import SplitName
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import Rows
from saod_ray.store.store import Store

NASTY = [
    "<script>window.broken = 1</script>",
    "\"quoted\" & 'quoted' </script><!--",
    "😀 \\u003c ${7*7} {{ 7*7 }}",
    "شجرة עץ",
]
ERROR = '<img src=x onerror="window.broken = 1"> cannot be read 😀'
FILE = "<b>'{}' שלום.png"


def nasty_store(folder: Path, detectors: tuple[str, ...] = ("atss", "f-rcnn"), with_images: bool = True) -> Path:
    """A scored store of a random use case whose class and file names are nasty; the images are in `folder`."""
    random_use_case(folder, 3)
    for name in ("val", "id", "ood"):
        path = folder / f"{name}.json"
        value = json.loads(path.read_text())
        for category, text in zip(sorted(value["categories"], key=lambda category: category["id"]), NASTY, strict=True):
            category["name"] = text
        for image in value["images"]:
            image["file_name"] = FILE.format(image["id"])
            if with_images:
                pixels = np.full((100, 100, 3), image["id"] % 255, np.uint8)
                (folder / image["file_name"]).write_bytes(cv2.imencode(".png", pixels)[1].tobytes())
        path.write_text(json.dumps(value))
    store = folder / "store"
    for k, detector in enumerate(detectors):
        if k:  # another detector sees other scores
            for path in folder.glob("*.detections.json"):
                rows = json.loads(path.read_text())
                path.write_text(json.dumps([row | {"score": row["score"] * 0.9} for row in rows]))
        import_all(str(store), folder, detector)
    run_like(Store.open(str(store)), detectors[0])
    result = saod_ray("score", store)
    assert result.returncode == 0, result.stderr
    return store


def run_like(store: Store, detector: str) -> None:
    """Rewrite a detector's ID splits as a run writes them: with corruptions, and with one failed image."""
    for split in [split for split in store.splits if SplitName(split).source == "id"]:
        old = store.pages(detector, split)[0]
        rows = store.read_shard(detector, split, old.shards[0])
        severity = SplitName(split).severity
        corruption = [draw(0, int(image), severity) if severity else None for image in rows.image_id]
        empty = np.flatnonzero(np.diff(rows.offsets) == 0)[:1].tolist() if split == "id-c3" else []
        status = ["failed" if k in empty else "ok" for k in range(len(rows.image_id))]
        error = [ERROR if k in empty else None for k in range(len(rows.image_id))]
        changed = Rows(rows.image_id, rows.offsets, rows.columns, status, error, corruption)
        shard = store.write_shard(detector, split, "0" * 32, changed)
        page = Page(detector=detector, split=split, unit="all", origin=Origin("import", "x", "0"), shards=[shard])
        ledger.write_page(store.folder, page)


def use_case_of(folder: Path) -> UseCase:
    """The use case in a folder."""
    return UseCase.load(folder / "use-case.toml")
