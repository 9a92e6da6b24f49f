"""Generate stores and COCO files of any size, up to that of the benchmark: python -m benchmarks.generate OUT [--scale full].

Objects have a long-tailed class distribution. Most objects get a few detections around them. The remaining detections of an
image (about 83 on average in total, at most 100) are background. Everything follows from the seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from saod_ray.config import UseCase
from saod_ray.splits import SplitName
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import Rows
from saod_ray.store.store import Store

Array = np.ndarray
SIZES = {"small": (200, 300, 400), "medium": (5_000, 10_000, 20_000), "full": (5_000, 45_391, 110_428)}
SHARD = 4096
WIDTH, HEIGHT = 640.0, 480.0
# how much the detections of a split degrade: scores shrink and boxes drift
DRIFT = {"val": 0.0, "id": 0.1, "id-c1": 0.2, "id-c3": 0.35, "id-c5": 0.55, "pseudo-ood": 0.9, "ood": 0.85}


@dataclass(frozen=True)
class Scene:
    """The objects of a source. `image` is sorted; `bbox` is (n, 4), x y w h in pixels."""

    images: int
    image: Array
    label: Array
    bbox: Array


def scene(rng: np.random.Generator, images: int, classes: int) -> Scene:
    """Objects on images: about seven per image, and some images without any."""
    counts = rng.poisson(7.0, images) * (rng.random(images) > 0.01)
    n = int(counts.sum())
    weight = 1.0 / np.arange(1, classes + 1)
    label = rng.choice(classes, n, p=weight / weight.sum()).astype(np.int16)
    size = np.exp(rng.normal([4.2, 4.2], 0.9, (n, 2))).clip(4, [WIDTH * 0.9, HEIGHT * 0.9])
    corner = rng.random((n, 2)) * ([WIDTH, HEIGHT] - size)
    return Scene(images, np.repeat(np.arange(images), counts), label, np.round(np.concatenate([corner, size], 1), 2))


def detections(
    rng: np.random.Generator, world: Scene, first: int, last: int, classes: int, drift: float, per_image: int = 88
) -> Rows:
    """Detections on images `first` up to `last`, about `per_image` each, by falling score."""
    start, end = np.searchsorted(world.image, [first, last])
    limits = np.clip(rng.normal(per_image, per_image / 5, last - first), 0, 100).astype(np.int64)
    limits[rng.random(last - first) < 0.003] = 0
    copies = rng.poisson(5.0, end - start) * (rng.random(end - start) > drift * 0.7)
    thing = np.repeat(np.arange(start, end), copies)
    spread = rng.gamma(1.2, 0.08 + 0.12 * drift, len(thing))
    size = world.bbox[thing, 2:]
    corner = world.bbox[thing, :2] + rng.normal(0, 1, (len(thing), 2)) * size * spread[:, None]
    size = size * np.exp(rng.normal(0, 1, (len(thing), 2)) * spread[:, None])
    near = rng.beta(2.2, 1.6 + 4 * spread) * (1 - 0.6 * drift)
    background = np.repeat(np.arange(first, last), limits)
    far_size = np.exp(rng.normal(4.0, 1.0, (len(background), 2))).clip(4, [WIDTH, HEIGHT])
    far_corner = rng.random((len(background), 2)) * ([WIDTH, HEIGHT] - far_size).clip(0)
    image = np.concatenate([world.image[thing], background])
    wrong = rng.random(len(thing)) < 0.1 + 0.2 * drift
    label = np.where(wrong, rng.integers(0, classes, len(thing)), world.label[thing])
    label = np.concatenate([label, rng.integers(0, classes, len(background))]).astype(np.int16)
    box = np.concatenate(
        [np.concatenate([corner, corner + size], 1), np.concatenate([far_corner, far_corner + far_size], 1)]
    )
    score = np.concatenate([near, 0.05 + 0.95 * rng.beta(0.5, 9.0, len(background))]).astype(np.float32)
    order = np.lexsort((-score, image))
    at = np.searchsorted(image[order], np.arange(first, last))
    rank = np.arange(len(order)) - np.repeat(at, np.diff([*at, len(order)]))
    order = order[rank < limits[image[order] - first]]
    counts = np.bincount(image[order] - first, minlength=last - first)
    box = box[order].astype(np.float32)
    entropy = (-np.log(score[order]) * 0.7 + rng.random(len(order)) * 0.3).astype(np.float32)
    columns = {"label": label[order], "box": box, "score": score[order], "entropy": entropy}
    columns["ds"] = (1 - score[order] * rng.random(len(order), dtype=np.float32)).astype(np.float32)
    return Rows(np.arange(first, last), np.concatenate([[0], np.cumsum(counts)]), columns)


def coco(world: Scene, classes: int) -> dict[str, Any]:
    """The COCO annotations of a source. One object in eighty is a crowd."""
    objects = [
        {
            "id": k + 1,
            "image_id": int(i),
            "category_id": int(c) + 1,
            "bbox": b,
            "area": b[2] * b[3] * 0.7,
            "iscrowd": int(k % 80 == 7),
        }
        for k, (i, c, b) in enumerate(zip(world.image.tolist(), world.label.tolist(), world.bbox.tolist(), strict=True))
    ]
    images = [
        {"id": i, "width": int(WIDTH), "height": int(HEIGHT), "file_name": f"{i}.jpg"} for i in range(world.images)
    ]
    return {
        "images": images,
        "annotations": objects,
        "categories": [{"id": c + 1, "name": f"class{c + 1}"} for c in range(classes)],
    }


def make_use_case(out: Path, sizes: tuple[int, int, int], classes: int, seed: int) -> tuple[UseCase, dict[str, Scene]]:
    """Write annotations and a use case file."""
    out.mkdir(parents=True, exist_ok=True)
    worlds = {}
    for number, (source, images) in enumerate(zip(("val", "id", "ood"), sizes, strict=True)):
        worlds[source] = scene(np.random.default_rng([seed, number]), images, classes)
        value = coco(worlds[source], classes)
        if source == "ood":
            value["annotations"] = []
        (out / f"{source}.json").write_text(json.dumps(value))
    lines = ['name = "generated"', "version = 1"]
    lines += [f'[splits.{s}]\nannotations = "{s}.json"\nimages = "{s}"' for s in ("val", "id")]
    lines += ["severities = [1, 3, 5]", '[[splits.ood]]\nname = "far"\nannotations = "ood.json"\nimages = "ood"']
    (out / "use-case.toml").write_text("\n".join(lines) + "\n")
    return UseCase.load(out / "use-case.toml"), worlds


def make_store(out: Path, sizes: tuple[int, int, int], names: list[str], classes: int = 80, seed: int = 0) -> Store:
    """Generate a store with all splits of the named detectors in OUT/store."""
    case, worlds = make_use_case(out, sizes, classes, seed)
    store = Store.open_or_create(str(out / "store"), case)
    for skill, detector in enumerate(names):
        for number, split in enumerate(store.splits):
            write_split(store, detector, split, worlds[SplitName(split).source], classes, [seed, skill, number])
    return store


def write_split(store: Store, detector: str, split: str, world: Scene, classes: int, seed: list[int]) -> None:
    """Commit the shards of a split and the ledger page that lists them."""
    shards = []
    for first in range(0, world.images, SHARD):
        rng = np.random.default_rng([*seed, first])
        rows = detections(rng, world, first, min(first + SHARD, world.images), classes, DRIFT[split])
        name = hashlib.blake2b(f"{detector} {split} {seed} {first}".encode(), digest_size=16).hexdigest()
        shards.append(store.write_shard(detector, split, name, rows))
    origin = Origin(
        "generated", "benchmarks.generate", hashlib.sha256(str([detector, split, *seed]).encode()).hexdigest()
    )
    ledger.write_page(store.folder, Page(detector=detector, split=split, unit="all", origin=origin, shards=shards))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scale", choices=list(SIZES), default="full")
    parser.add_argument("--detectors", default="a", help="names, separated by commas")
    options = parser.parse_args()
    began = time.monotonic()
    store = make_store(options.out, SIZES[options.scale], options.detectors.split(","))
    count = sum(s.detections for d in store.detectors() for split in store.splits for s in store.shards(d, split))
    print(f"{count:,} detections in {options.out}/store after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
