"""Hypothesis strategies for random ground truth and detections, and their conversion to the package's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from saod_ray.data.manifest import IMAGES, OBJECTS, Manifest
from saod_ray.score.objects import GroundTruth
from saod_ray.score.split import SplitDetections

Row = dict[str, Any]

# coarse grids, so that ties of scores and IoUs, exact thresholds and boxes on area borders occur
COORDINATES = st.integers(0, 24).map(lambda k: k * 4.0)
SIDES = st.sampled_from([0.0, 4.0, 8.0, 12.0, 16.0, 32.0, 48.0, 96.0, 100.0, 128.0])
SCORES = st.one_of(st.integers(0, 20).map(lambda k: k / 20), st.floats(0, 1, width=32).map(lambda v: v + 0.0))


def boxes(sides: st.SearchStrategy[float] = SIDES) -> st.SearchStrategy[list[float]]:
    return st.tuples(COORDINATES, COORDINATES, sides, sides).map(list)


@st.composite
def scenes(
    draw: st.DrawFn, classes: int = 3, images: int = 6, max_objects: int = 14
) -> tuple[list[int], list[Row], list[Row]]:
    """(image ids, objects, detections). Some images and classes stay empty; crowds and annotation id 0 occur."""
    image_ids = draw(st.lists(st.integers(0, 40), min_size=1, max_size=images, unique=True))
    images_of, labels = st.sampled_from(image_ids), st.integers(0, classes - 1)
    things = draw(
        st.lists(st.tuples(images_of, labels, boxes(), st.integers(0, 5), st.floats(0, 12000)), max_size=max_objects)
    )
    first = draw(st.integers(0, 1))
    objects = [
        {"id": first + k, "image": i, "label": c, "bbox": b, "crowd": int(crowd == 0), "area": area}
        for k, (i, c, b, crowd, area) in enumerate(things)
    ]
    detections = []
    for i, c, b, score in draw(st.lists(st.tuples(images_of, labels, boxes(), SCORES), max_size=2 * max_objects)):
        detections.append({"image": i, "label": c, "bbox": b, "score": score})
    for which, shift, crowd in draw(
        st.lists(st.tuples(st.integers(0, 99), st.sampled_from([-4.0, 4.0]), st.booleans()), max_size=4)
    ):
        if objects:  # an object that overlaps a detection exactly as much as another object
            twin = objects[which % len(objects)]
            x, y, w, h = twin["bbox"]
            moved = {"id": first + len(objects), "bbox": [x, y + shift, w, h], "crowd": int(crowd), "area": w * h / 2}
            objects.append(twin | moved)
    near = draw(
        st.lists(st.tuples(st.integers(0, 99), st.sampled_from([-4.0, 0.0, 4.0]), SCORES), max_size=2 * max_objects)
    )
    for which, shift, score in near:
        if objects:
            thing = objects[which % len(objects)]
            x, y, w, h = thing["bbox"]
            detections.append(
                {"image": thing["image"], "label": thing["label"], "bbox": [x + shift, y, w, h], "score": score}
            )
    order = draw(st.permutations(range(len(detections))))
    return image_ids, objects, [detections[k] for k in order]


def objects_of(image_ids: list[int], objects: list[Row], classes: int) -> GroundTruth:
    images = {
        "image_id": image_ids,
        "source_id": image_ids,
        "file_name": [f"{i}.jpg" for i in image_ids],
        "width": [640] * len(image_ids),
        "height": [480] * len(image_ids),
        "subset": [""] * len(image_ids),
    }
    table = {
        "object_id": [o["id"] for o in objects],
        "image_id": [o["image"] for o in objects],
        "label": [o["label"] for o in objects],
        **{axis: [float(o["bbox"][k]) for o in objects] for k, axis in enumerate("xywh")},
        "area": [float(o["area"]) for o in objects],
        "crowd": [bool(o["crowd"]) for o in objects],
    }
    return GroundTruth.from_manifest(
        Manifest(pl.DataFrame(images, schema=IMAGES), pl.DataFrame(table, schema=OBJECTS)), classes
    )


def split_of(objects: GroundTruth, detections: list[Row]) -> SplitDetections:
    """The detections as a split, in this order; every image has a row."""
    ids = objects.image_ids.tolist()
    rows = sorted(detections, key=lambda d: ids.index(d["image"]))
    offsets = np.searchsorted([ids.index(d["image"]) for d in rows], np.arange(len(ids) + 1))
    bbox = np.array([d["bbox"] for d in rows], float).reshape(-1, 4)
    box = np.concatenate([bbox[:, :2], bbox[:, :2] + bbox[:, 2:]], axis=1)
    label = np.array([d["label"] for d in rows], np.int16)
    size = np.ascontiguousarray(bbox[:, 2:])
    score = np.array([d["score"] for d in rows], float)
    return SplitDetections.from_boxes(np.arange(len(ids)), offsets, label, score, box, size, objects)
