from __future__ import annotations

import numpy as np
import reference
from hypothesis import given
from hypothesis import strategies as st
from scenes import objects_of, scenes, split_of

from saod_ray.score.matching import DROPPED, FP, IGNORED, TP, descending_order, greedy
from saod_ray.score.order import class_order

CLASSES = 3
NAMES = {TP: "tp", FP: "fp", IGNORED: "ignored"}


@given(scenes(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9]), st.booleans())
def test_greedy_assignment(scene, tau, zero_id) -> None:
    image_ids, things, detections = scene
    objects = objects_of(image_ids, things, CLASSES)
    split = split_of(objects, detections)
    matches = greedy(split, objects, tau, zero_id)
    order, start = class_order(split.label, split.score, CLASSES)
    expected = reference.match(detections, things, CLASSES, tau, zero_id)
    counts = objects.counts(split.images)
    for label, (rows, count) in enumerate(expected):
        mine = order[start[label] : start[label + 1]]
        got = [(split.score[d], NAMES[matches.state[d]], matches.iou[d]) for d in mine]
        assert got == [(row["score"], row["kind"], row["iou"]) for row in rows]
        assert counts[label] == count


def test_at_most_a_hundred_detections_an_image_and_class() -> None:
    things = [{"id": 1, "image": 0, "label": 0, "bbox": [0, 0, 10, 10], "crowd": 0, "area": 100}]
    far, hit = [50, 50, 10, 10], [0, 0, 10, 10]
    detections = [{"image": 0, "label": 0, "bbox": far, "score": 0.9} for _ in range(100)]
    detections.append({"image": 0, "label": 0, "bbox": hit, "score": 0.5})
    detections.append({"image": 0, "label": 1, "bbox": hit, "score": 0.1})
    objects = objects_of([0], things, 2)
    matches = greedy(split_of(objects, detections), objects, 0.1, zero_id_misses=True)
    assert matches.state.tolist() == [FP] * 100 + [DROPPED, FP]


@given(st.lists(st.one_of(st.floats(0, 1, width=16), st.just(np.nan)), max_size=90), st.randoms())
def test_orders_are_stable_and_nan_comes_last(values, random) -> None:
    score = np.array(values, float)
    by_reference = sorted(range(len(values)), key=lambda k: reference.falling(values[k]))
    assert descending_order(score).tolist() == by_reference
    label = np.array([random.randrange(4) for _ in values], np.int16)
    order, start = class_order(label, score, 4)
    assert order.tolist() == sorted(range(len(values)), key=lambda k: (label[k], reference.falling(values[k])))
    assert start.tolist() == [int((label < c).sum()) for c in range(5)]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60))
def test_the_radix_sort_orders_any_float(values) -> None:
    score = np.array(values, float)
    order, _ = class_order(np.zeros(len(values), np.int16), score, 1)
    assert order.tolist() == sorted(range(len(values)), key=lambda k: reference.falling(values[k]))
