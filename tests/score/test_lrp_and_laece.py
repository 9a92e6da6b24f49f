from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from scenes import objects_of, scenes, split_of

from saod_ray.config import ScoreSettings
from saod_ray.score.daq import after_paper, per_class, quality
from saod_ray.score.laece import laece, reliability
from saod_ray.score.lrp import optimal_thresholds
from saod_ray.score.matching import greedy
from saod_ray.score.reducers import BinRule, ClassSums, class_sums, match_frame
from saod_ray.score.statistics import Statistics

CLASSES = 3
conventions = st.sampled_from(["official", "paper"])


def matched(scene, tau, zero_id=True, nan_scores=False):
    image_ids, things, detections = scene
    if nan_scores:
        detections = [d | {"score": math.nan} if k % 5 == 0 else d for k, d in enumerate(detections)]
    objects = objects_of(image_ids, things, CLASSES)
    split = split_of(objects, detections)
    matches = greedy(split, objects, tau, zero_id)
    return split, matches, objects.counts(split.images), reference.match(detections, things, CLASSES, tau, zero_id)


def reduced(split, matches, counts, rule) -> ClassSums:
    return class_sums(match_frame(split.label, split.score, matches), counts, rule)


def equal(got: float | None, expected: float) -> bool:
    return math.isnan(expected) if got is None else got == pytest.approx(expected, abs=1e-12)


@given(scenes(), st.sampled_from([0.1, 0.5]))
def test_optimal_thresholds(scene, tau) -> None:
    split, matches, counts, rows = matched(scene, tau)
    got = optimal_thresholds(split.label, split.score, matches, counts, tau)
    expected = [reference.lrp_threshold(r, g, tau) for r, g in rows]
    assert got.tolist() == pytest.approx(expected, nan_ok=True, abs=0)


@given(scenes(), st.sampled_from([0.1, 0.3]), conventions, st.sampled_from([1, 10, 25]), st.booleans())
def test_quality(scene, tau, kind, bins, nan_scores) -> None:
    split, matches, counts, rows = matched(scene, tau, kind == "official", nan_scores)
    settings = ScoreSettings(tau=tau, bins=bins, conventions=kind)
    sums = reduced(split, matches, counts, BinRule(bins, last_closed=kind == "paper")).statistics()
    figures = msgspec.structs.asdict(quality(sums, settings))
    expected, _ = reference.lrp(rows, tau, kind)
    for key, value in expected.items():
        assert equal(figures[key], value), key
    expected_laece, each = reference.laece(rows, bins, kind)
    assert equal(figures["laece"], expected_laece)
    table = per_class(sums, settings, [None] * CLASSES)
    for got, value in zip(table, each, strict=True):
        assert equal(got.laece, value)


@given(scenes())
def test_after_the_paper(scene) -> None:
    split, matches, counts, rows = matched(scene, 0.0, zero_id=False)
    sums = reduced(split, matches, counts, BinRule(25, lower_open=True)).statistics()
    for key, value in reference.after_paper(rows).items():
        assert equal(after_paper(sums)[key], value), key


def one_class(scores: list[float], ious: list[float]) -> Statistics:
    from saod_ray.score.matching import FP, TP, Matches

    state = np.array([TP if iou else FP for iou in ious], np.int8)
    label = np.zeros(len(scores), np.int16)
    matches = Matches(state, np.array(ious), np.full(len(scores), -1, np.int32))
    frame = match_frame(label, np.array(scores), matches)
    return class_sums(frame, np.array([len(scores)]), BinRule(25)).statistics()


def test_bins_are_closed_below_and_the_score_one_is_in_none() -> None:
    sums = one_class([0.04, 0.12, 1.0], [0.5, 0.5, 0.5])
    assert np.flatnonzero(sums.bin_count[0]).tolist() == [1, 3, 25]
    assert laece(sums)[0] == pytest.approx((abs(0.5 - 0.04) + abs(0.5 - 0.12)) / 3)


def test_reliability_has_the_bins_that_have_detections() -> None:
    table = reliability(one_class([0.5, 0.51, 0.9], [0.7, 0.0, 0.8]), ["a"])["a"]
    assert table.bin == [12, 22]
    assert table.detections == [2, 1]
    assert table.score == pytest.approx([0.505, 0.9])
    assert table.iou == pytest.approx([0.35, 0.8])
