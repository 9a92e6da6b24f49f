from __future__ import annotations

import contextlib
import io
from typing import Any

import msgspec
import pytest
import reference
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scenes import objects_of, scenes, split_of

from saod_ray.score.ap import accuracy

CLASSES = 3
NAMES = (
    "ap",
    "ap50",
    "ap75",
    "ap_small",
    "ap_medium",
    "ap_large",
    "ar_1",
    "ar_10",
    "ar",
    "ar_small",
    "ar_medium",
    "ar_large",
)


def by_pycocotools(image_ids: list[int], things: list[dict], detections: list[dict]) -> dict[str, float | None]:
    truth, found = COCO(), COCO()
    truth.dataset = {
        "images": [{"id": i} for i in image_ids],
        "categories": [{"id": c} for c in range(CLASSES)],
        "annotations": [
            {
                "id": o["id"],
                "image_id": o["image"],
                "category_id": o["label"],
                "bbox": o["bbox"],
                "area": o["area"],
                "iscrowd": o["crowd"],
            }
            for o in things
        ],
    }
    rows: list[dict[str, Any]] = [
        {
            "id": k + 1,
            "image_id": d["image"],
            "category_id": d["label"],
            "bbox": d["bbox"],
            "score": d["score"],
            "area": d["bbox"][2] * d["bbox"][3],
            "iscrowd": 0,
        }
        for k, d in enumerate(detections)
    ]
    found.dataset = {**truth.dataset, "annotations": rows}
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        found.createIndex()
        run = COCOeval(truth, found, "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return {name: None if value == -1 else float(value) for name, value in zip(NAMES, run.stats, strict=True)}


@hypothesis_settings(max_examples=250)
@given(scenes(images=5))
def test_ap_is_pycocotools(scene) -> None:
    image_ids, things, detections = scene
    objects = objects_of(image_ids, things, CLASSES)
    got = msgspec.structs.asdict(accuracy(split_of(objects, detections), objects, zero_id_misses=True).overall)
    for name, expected in by_pycocotools(image_ids, things, detections).items():
        assert got[name] == (None if expected is None else pytest.approx(expected, abs=1e-12)), name


@hypothesis_settings(max_examples=100)
@given(scenes())
def test_olrp_is_the_references(scene) -> None:
    image_ids, things, detections = scene
    objects = objects_of(image_ids, things, CLASSES)
    got = msgspec.structs.asdict(accuracy(split_of(objects, detections), objects, zero_id_misses=True).overall)
    expected = reference.olrp(reference.match(detections, things, CLASSES, 0.5, True))
    for name, value in expected.items():
        assert (got[name] is None) if value != value else got[name] == pytest.approx(value, abs=1e-12), name


def test_many_detections_of_a_class() -> None:
    """More than a hundred an image and class: the late ones do not count."""
    things = [
        {"id": k + 1, "image": 0, "label": 0, "bbox": [20 * k, 0, 10, 10], "crowd": 0, "area": 100} for k in range(30)
    ]
    detections = [
        {"image": 0, "label": 0, "bbox": [5 * (k % 120), 0, 10, 10], "score": round(1 - k / 300, 4)} for k in range(260)
    ]
    objects = objects_of([0], things, CLASSES)
    got = msgspec.structs.asdict(accuracy(split_of(objects, detections), objects, zero_id_misses=True).overall)
    for name, expected in by_pycocotools([0], things, detections).items():
        assert got[name] == (None if expected is None else pytest.approx(expected, abs=1e-12)), name


def test_a_crowd_and_an_object_out_of_the_area_that_overlap_alike() -> None:
    things = [
        {"id": 1, "image": 0, "label": 0, "bbox": [20, 15, 40, 100], "crowd": 1, "area": 4000},
        {"id": 2, "image": 0, "label": 0, "bbox": [20, 10, 40, 45], "crowd": 0, "area": 900},
        {"id": 3, "image": 0, "label": 0, "bbox": [100, 100, 50, 50], "crowd": 0, "area": 2500},
    ]
    boxes = [([20, 10, 40, 50], 0.9), ([12, 10, 48, 45], 0.8), ([100, 100, 50, 50], 0.5)]
    detections = [{"image": 0, "label": 0, "bbox": box, "score": score} for box, score in boxes]
    for order in (things, things[::-1]):
        objects = objects_of([0], order, CLASSES)
        got = msgspec.structs.asdict(accuracy(split_of(objects, detections), objects, zero_id_misses=True).overall)
        for name, expected in by_pycocotools([0], order, detections).items():
            assert got[name] == (None if expected is None else pytest.approx(expected, abs=1e-12)), name


def test_annotation_ids_mean_nothing_under_the_papers_conventions() -> None:
    things = [{"id": 0, "image": 0, "label": 0, "bbox": [0, 0, 50, 50], "crowd": 0, "area": 2500}]
    detections = [{"image": 0, "label": 0, "bbox": [0, 0, 50, 50], "score": 0.9}]
    objects = objects_of([0], things, CLASSES)
    split = split_of(objects, detections)
    assert accuracy(split, objects, zero_id_misses=True).ap == 0
    assert accuracy(split, objects, zero_id_misses=False).ap == pytest.approx(1)
