"""Theorem 1: detections that score below all others never lower AP, on the AP code itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import objects_of, scenes, split_of

from saod_ray.score.ap import accuracy
from saod_ray.score.objects import GroundTruth

CLASSES = 3
AP = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
AWAY = [5000.0, 5000.0, 1.0, 1.0]  # one pixel where no scene has an object


def figures(objects: GroundTruth, detections: list[dict[str, Any]], zero_id: bool = False) -> dict[str, Any]:
    found = accuracy(split_of(objects, detections), objects, zero_id_misses=zero_id)
    return {**msgspec.structs.asdict(found.overall), "class_ap": found.class_ap}


def precisions(found: dict[str, Any]) -> list[float | None]:
    """AP over classes, at single thresholds and by area, and that of every class."""
    return [found[name] for name in AP] + found["class_ap"]


@given(scenes(), st.integers(1, 20).map(lambda k: k / 20), st.booleans())
def test_lower_scores_never_lower_ap(scene, cut, zero_id) -> None:
    image_ids, things, detections = scene
    objects = objects_of(image_ids, things, CLASSES)
    before = figures(objects, [d for d in detections if d["score"] >= cut], zero_id)
    after = figures(objects, detections, zero_id)
    for low, high in zip(precisions(before), precisions(after), strict=True):
        assert (low is None and high is None) or low <= high
    # cases 2 and 3 of the proof: a newly detected object reaches another recall point (up to 100 objects)
    if before["ar"] is not None and after["ar"] > before["ar"]:
        assert after["ap"] > before["ap"]


@st.composite
def dummies(draw: st.DrawFn, image_ids: list[int]) -> list[dict[str, Any]]:
    """Detections of next to nothing, sometimes more than count of an image and class."""
    some = st.tuples(
        st.sampled_from(image_ids), st.integers(0, CLASSES - 1), st.floats(0, 0.4), st.sampled_from([1, 120])
    )
    rows = draw(st.lists(some, max_size=6))
    return [{"image": i, "label": c, "bbox": AWAY, "score": s} for i, c, s, many in rows for _ in range(many)]


@given(scenes(), st.data())
def test_low_scores_that_find_nothing_change_nothing(scene, data) -> None:
    image_ids, things, detections = scene
    objects = objects_of(image_ids, things, CLASSES)
    above = [{**d, "score": 0.5 + d["score"] / 2} for d in detections]
    assert figures(objects, above + data.draw(dummies(image_ids))) == figures(objects, above)


@pytest.mark.parametrize(("score", "ap50"), [(0.4, 1.0), (0.9, 0.5)])
def test_the_premise_matters(score, ap50) -> None:
    objects = objects_of(
        [1], [{"id": 1, "image": 1, "label": 0, "bbox": [0, 0, 50, 50], "crowd": 0, "area": 2500}], CLASSES
    )
    found = {"image": 1, "label": 0, "bbox": [0.0, 0.0, 50.0, 50.0], "score": 0.5}
    wrong = {"image": 1, "label": 0, "bbox": AWAY, "score": score}
    assert figures(objects, [found, wrong])["ap50"] == pytest.approx(ap50)
