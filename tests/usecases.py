"""Write small random use cases, and return them in the form that `reference` takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from saod_ray.config import UseCase
from saod_ray.store.coco_import import import_results

SPLITS = ("val", "pseudo-ood", "id", "id-c1", "id-c3", "id-c5", "ood")


def random_use_case(folder: Path, seed: int, classes: int = 4, images: int = 14, first_id: int = 0) -> dict[str, Any]:
    """Write a use case and detections of all its splits; return them as `reference.benchmark` takes them.

    Scores and boxes are on grids, so ties are common. Some images are empty, and some classes have no object in a source.
    Category ids have gaps and are unordered in the file.
    """
    rng = np.random.default_rng(seed)
    categories = np.sort(rng.choice(np.arange(1, 40), classes, replace=False)).tolist()
    data: dict[str, Any] = {"classes": classes, "images": {}, "objects": {}, "detections": {}}
    folder.mkdir(parents=True, exist_ok=True)
    for source in ("val", "id", "ood"):
        ids = rng.choice(1000, images, replace=False).tolist()
        data["images"][source] = ids
        data["objects"][source] = [] if source == "ood" else _objects(rng, ids, classes, first_id)
        annotations = [
            {"id": o["id"], "image_id": o["image"], "category_id": categories[o["label"]], "bbox": o["bbox"]}
            | {"area": o["area"], "iscrowd": o["crowd"]}
            for o in data["objects"][source]
        ]
        listed = [{"id": c, "name": f"c{c}"} for c in rng.permutation(categories).tolist()]
        image_entries = [{"id": i, "file_name": f"{i}.jpg", "width": 100, "height": 100} for i in ids]
        value = {"images": image_entries, "annotations": annotations, "categories": listed}
        (folder / f"{source}.json").write_text(json.dumps(value))
    (folder / "use-case.toml").write_text(
        'name = "random"\n[splits.val]\nannotations = "val.json"\n[splits.id]\nannotations = "id.json"\n'
        '[[splits.ood]]\nname = "far"\nannotations = "ood.json"\n'
    )
    for split in SPLITS:
        source = {"pseudo-ood": "val", "val": "val", "ood": "ood"}.get(split, "id")
        rows = _detections(rng, data["images"][source], data["objects"][source], classes)
        data["detections"][split] = rows
        written = [
            {"image_id": d["image"], "category_id": categories[d["label"]], "bbox": d["bbox"], "score": d["score"]}
            | {"uncertainty": [d["entropy"], d["ds"]]}
            for d in rows
        ]
        (folder / f"{split}.detections.json").write_text(json.dumps(written))
    return data


def _objects(rng: np.random.Generator, ids: list[int], classes: int, first_id: int) -> list[dict[str, Any]]:
    absent = rng.integers(classes) if rng.random() < 0.5 else -1
    rows = []
    for _ in range(rng.integers(1, 3 * len(ids))):
        label = int(rng.integers(classes))
        if label == absent:
            continue
        box = [float(v) for v in (*rng.integers(0, 12, 2) * 5, *rng.integers(1, 8, 2) * 5)]
        rows.append({"image": int(rng.choice(ids)), "label": label, "bbox": box, "crowd": int(rng.random() < 0.1)})
    if not rows:
        rows.append({"image": ids[0], "label": 0, "bbox": [0.0, 0.0, 20.0, 20.0], "crowd": 0})
    return [row | {"id": first_id + k, "area": row["bbox"][2] * row["bbox"][3] * 0.5} for k, row in enumerate(rows)]


def _detections(
    rng: np.random.Generator, ids: list[int], objects: list[dict[str, Any]], classes: int
) -> list[dict[str, Any]]:
    rows = []
    for thing in objects:
        for _ in range(rng.integers(0, 4)):
            shift = rng.integers(-1, 2, 2) * 2.5
            box = [float(v) for v in (*(np.array(thing["bbox"][:2]) + shift), *thing["bbox"][2:])]
            rows.append(
                {"image": thing["image"], "label": thing["label"], "bbox": box, "score": int(rng.integers(8, 33)) / 32}
            )
    for _ in range(rng.integers(0, 3 * len(ids))):
        box = [float(v) for v in (*rng.integers(0, 12, 2) * 5, *rng.integers(0, 8, 2) * 5)]
        label = int(rng.integers(classes))
        rows.append(
            {"image": int(rng.choice(ids)), "label": label, "bbox": box, "score": int(rng.integers(0, 20)) / 32}
        )
    rng.shuffle(rows)  # type: ignore[arg-type]
    return [row | {"entropy": int(rng.integers(0, 16)) / 8, "ds": int(rng.integers(0, 9)) / 8} for row in rows]


def import_all(uri: str, folder: Path, detector: str = "d", shard_images: int = 4096) -> None:
    case = UseCase.load(folder / "use-case.toml")
    for split in SPLITS:
        import_results(uri, case, detector, split, folder / f"{split}.detections.json", shard_images=shard_images)
