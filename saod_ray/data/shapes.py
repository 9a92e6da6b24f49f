"""The files of the built-in use case `shapes`: generated scenes as JPEG and PNG, with COCO JSON annotations."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import cv2

from saod_ray.data.scenes import CLASSES, SPLITS, Thing, scene
from saod_ray.data.source_files import Progress
from saod_ray.files import Folder

VERSION = 1  # of the scenes: raise it when the same seed gives other images
SIZES = {"train": 4000, "val": 300, "id": 400, "ood-kinds": 200, "ood-scenes": 200, "ood-digits": 200}
JPEG = (".jpg", [cv2.IMWRITE_JPEG_QUALITY, 92])
PNG = (".png", [cv2.IMWRITE_PNG_COMPRESSION, 3])
FIRST_ID = {split: 1 + 1_000_000 * k for k, split in enumerate(SPLITS)}  # ids are unique across splits
EVALUATED = tuple(split for split in SPLITS if split != "train")
CHUNK = 25  # scenes per task of a worker


@dataclass(frozen=True)
class Recipe:
    """Everything that the files depend on; `scale` multiplies the number of scenes."""

    seed: int
    scale: float
    version: int = VERSION

    def count(self, split: str) -> int:
        """The number of scenes of a split."""
        return max(1, round(SIZES[split] * self.scale))


@dataclass(frozen=True)
class SceneFile:
    """A scene on disk."""

    file_name: str
    width: int
    height: int
    things: tuple[Thing, ...]


def is_missing(root: str, *, with_train: bool = False) -> bool:
    """Whether no complete set of scenes is below `root`."""
    folder = Folder(root).below("shapes")
    return not folder.exists("made.json") or (with_train and not folder.exists("train.json"))


def existing_recipe(root: str) -> Recipe:
    """The recipe of the scenes below `root`; the default one if there are none."""
    return _marked_recipe(Folder(root).below("shapes")) or Recipe(0, 1.0)


def make(root: str, recipe: Recipe, progress: Progress, workers: int | None = None, *, with_train: bool = True) -> bool:
    """Write the scenes below ROOT/shapes; False if they are complete already. Only training needs those of train.

    `made.json` is deleted first and written last, so that an interrupted run is noticed and repeated.
    """
    folder = Folder(root).below("shapes")
    splits = SPLITS if with_train else EVALUATED
    if not _missing_splits(folder, recipe, splits):
        return False
    with folder.lock("made"):
        missing = _missing_splits(folder, recipe, splits)
        if not missing:  # another build may have been faster
            return False
        folder.sweep()
        outdated = missing if _marked_recipe(folder) == recipe else SPLITS
        folder.delete("made.json")
        for split in outdated:
            folder.delete(f"{split}.json")
        scenes = _draw(folder.uri, recipe, missing, progress, workers or os.cpu_count() or 1)
        expected = {f"{split}/{file.file_name}" for split in missing for file in scenes[split]}
        for split in missing:
            folder.put(f"{split}.json", _coco(split, scenes[split], recipe))
        for name in folder.walk(""):
            if name.partition("/")[0] in outdated and name not in expected:  # left from another recipe
                folder.delete(name)
        folder.put("made.json", _encode_json(asdict(recipe)))
    return True


def _marked_recipe(folder: Folder) -> Recipe | None:
    """The recipe of the existing scenes; None if there are none, or if drawing them was interrupted."""
    try:
        return Recipe(**json.loads(folder.read("made.json")))
    except (FileNotFoundError, TypeError, ValueError):
        return None


def _missing_splits(folder: Folder, recipe: Recipe, splits: Sequence[str]) -> list[str]:
    """The splits of which files are missing, or that were drawn with another recipe."""
    if _marked_recipe(folder) != recipe:
        return list(splits)
    files = set(folder.walk(""))
    return [split for split in splits if not _files(split, recipe) <= files]


def _files(split: str, recipe: Recipe) -> set[str]:
    return {f"{split}.json"} | {f"{split}/{_file_name(split, k)}" for k in range(recipe.count(split))}


def _draw(
    uri: str, recipe: Recipe, splits: Sequence[str], progress: Progress, workers: int
) -> dict[str, list[SceneFile]]:
    chunks = [
        (split, range(start, min(start + CHUNK, recipe.count(split))))
        for split in splits
        for start in range(0, recipe.count(split), CHUNK)
    ]
    scenes: dict[str, list[SceneFile]] = {split: [] for split in splits}
    total, done = sum(recipe.count(split) for split in splits), 0
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker) as pool:
        for (split, _), files in zip(chunks, pool.map(partial(_write, uri, recipe.seed), chunks), strict=True):
            scenes[split] += files
            done += len(files)
            progress(done, total)
    return scenes


def _start_worker() -> None:
    """Initialise a worker: it uses one thread, and exits as soon as its parent process ends, even if killed."""
    cv2.setNumThreads(1)
    parent = multiprocessing.parent_process()

    def exit_with_parent() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def _write(uri: str, seed: int, chunk: tuple[str, range]) -> list[SceneFile]:
    """Draw and write the scenes of a chunk (split and indices); runs in a worker."""
    folder = Folder(uri)
    split, numbers = chunk
    files = []
    for number in numbers:
        drawing = scene(seed, split, number)
        ending, options = _encoding(split)
        _, data = cv2.imencode(ending, cv2.cvtColor(drawing.image, cv2.COLOR_RGB2BGR), options)
        name = _file_name(split, number)
        folder.put(f"{split}/{name}", data.tobytes(), durable=False)
        height, width = drawing.image.shape[:2]
        files.append(SceneFile(name, width, height, drawing.things))
    return files


def _encoding(split: str) -> tuple[str, list[int]]:
    return PNG if split == "ood-digits" else JPEG


def _file_name(split: str, number: int) -> str:
    return f"{number:06d}{_encoding(split)[0]}"


def _coco(split: str, scenes: list[SceneFile], recipe: Recipe) -> bytes:
    first = FIRST_ID[split]
    images = [
        {"id": first + k, "file_name": file.file_name, "width": file.width, "height": file.height}
        for k, file in enumerate(scenes)
    ]
    placed = [(first + k, thing) for k, file in enumerate(scenes) for thing in file.things]
    annotations = [
        {"id": number, "image_id": image, "category_id": 1 + thing.label, "bbox": [thing.x, thing.y, thing.w, thing.h]}
        | {"area": thing.area, "iscrowd": 0}
        for number, (image, thing) in enumerate(placed, 1)
    ]
    categories = [{"id": k, "name": name} for k, name in enumerate(CLASSES, 1)]
    info = {"description": f"shapes, {split}", **asdict(recipe)}
    return _encode_json({"info": info, "images": images, "annotations": annotations, "categories": categories})


def _encode_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
