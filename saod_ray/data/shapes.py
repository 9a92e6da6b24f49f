"""The embedded use case `shapes` as files: scenes drawn from a seed, as JPEG and PNG with COCO JSON beside them."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import cv2

from saod_ray.data.raw import Progress
from saod_ray.data.scenes import CLASSES, SPLITS, Thing, scene
from saod_ray.files import Folder

VERSION = 1  # of the scenes: rises whenever the same seed draws something else
SIZES = {"train": 4000, "val": 300, "id": 400, "ood-kinds": 200, "ood-scenes": 200, "ood-digits": 200}
JPEG = (".jpg", [cv2.IMWRITE_JPEG_QUALITY, 92])
PNG = (".png", [cv2.IMWRITE_PNG_COMPRESSION, 3])
FIRST_ID = {split: 1 + 1_000_000 * k for k, split in enumerate(SPLITS)}  # ids are unique across splits
CHUNK = 25  # scenes a worker draws at a time


@dataclass(frozen=True)
class Recipe:
    """All that the files depend on."""

    seed: int
    scale: float
    version: int = VERSION

    def count(self, split: str) -> int:
        """How many scenes a split has."""
        return max(1, round(SIZES[split] * self.scale))


@dataclass(frozen=True)
class Drawn:
    """A scene that lies on disk."""

    file_name: str
    width: int
    height: int
    things: tuple[Thing, ...]


def is_missing(root: str) -> bool:
    """Whether the scenes have not been drawn below `root`."""
    return not Folder(root).exists("shapes/made.json")


def make(root: str, recipe: Recipe, progress: Progress, workers: int | None = None) -> bool:
    """Write the scenes below ROOT/shapes; False when they are there already.

    The note of what was made goes first and comes back last, so that a killed run is noticed and done again.
    """
    folder = Folder(root).below("shapes")
    if _is_there(folder, recipe):
        return False
    with folder.lock("made"):
        if _is_there(folder, recipe):  # another build may have been faster
            return False
        folder.sweep()
        folder.delete("made.json")
        for split in SPLITS:
            folder.delete(f"{split}.json")
        drawn = _draw(folder.uri, recipe, progress, workers or os.cpu_count() or 1)
        wanted = {f"{split}/{each.file_name}" for split in SPLITS for each in drawn[split]}
        for split in SPLITS:
            folder.put(f"{split}.json", _coco(split, drawn[split], recipe))
        for name in folder.walk(""):
            if "/" in name and name not in wanted:  # of a larger scale
                folder.delete(name)
        folder.put("made.json", _encoded(asdict(recipe)))
    return True


def _is_there(folder: Folder, recipe: Recipe) -> bool:
    try:
        if folder.read("made.json") != _encoded(asdict(recipe)):
            return False
    except FileNotFoundError:
        return False
    wanted = {f"{split}/{_file_name(split, k)}" for split in SPLITS for k in range(recipe.count(split))}
    wanted |= {f"{split}.json" for split in SPLITS}
    return wanted <= set(folder.walk(""))


def _draw(uri: str, recipe: Recipe, progress: Progress, workers: int) -> dict[str, list[Drawn]]:
    chunks = [
        (split, range(start, min(start + CHUNK, recipe.count(split))))
        for split in SPLITS
        for start in range(0, recipe.count(split), CHUNK)
    ]
    drawn: dict[str, list[Drawn]] = {split: [] for split in SPLITS}
    total, done = sum(recipe.count(split) for split in SPLITS), 0
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin) as pool:
        for (split, _), found in zip(chunks, pool.map(partial(_write, uri, recipe.seed), chunks), strict=True):
            drawn[split] += found
            done += len(found)
            progress(done, total)
    return drawn


def _begin() -> None:
    """A worker begins: it draws in one thread, and ends with the process that began it, however that ends."""
    cv2.setNumThreads(1)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _write(uri: str, seed: int, chunk: tuple[str, range]) -> list[Drawn]:
    """Draw some scenes and write them; runs in a worker."""
    folder = Folder(uri)
    split, numbers = chunk
    found = []
    for number in numbers:
        drawn = scene(seed, split, number)
        ending, options = _encoding(split)
        _, data = cv2.imencode(ending, cv2.cvtColor(drawn.image, cv2.COLOR_RGB2BGR), options)
        name = _file_name(split, number)
        folder.put(f"{split}/{name}", data.tobytes(), durable=False)
        height, width = drawn.image.shape[:2]
        found.append(Drawn(name, width, height, drawn.things))
    return found


def _encoding(split: str) -> tuple[str, list[int]]:
    return PNG if split == "ood-digits" else JPEG


def _file_name(split: str, number: int) -> str:
    return f"{number:06d}{_encoding(split)[0]}"


def _coco(split: str, drawn: list[Drawn], recipe: Recipe) -> bytes:
    first = FIRST_ID[split]
    images = [
        {"id": first + k, "file_name": each.file_name, "width": each.width, "height": each.height}
        for k, each in enumerate(drawn)
    ]
    placed = [(first + k, thing) for k, each in enumerate(drawn) for thing in each.things]
    annotations = [
        {"id": number, "image_id": image, "category_id": 1 + thing.label, "bbox": [thing.x, thing.y, thing.w, thing.h]}
        | {"area": thing.area, "iscrowd": 0}
        for number, (image, thing) in enumerate(placed, 1)
    ]
    categories = [{"id": k, "name": name} for k, name in enumerate(CLASSES, 1)]
    info = {"description": f"shapes, {split}", **asdict(recipe)}
    return _encoded({"info": info, "images": images, "annotations": annotations, "categories": categories})


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
