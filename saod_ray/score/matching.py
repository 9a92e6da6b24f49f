"""Overlaps of detections with objects, and the greedy matching of detections to objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from saod_ray.score.objects import GroundTruth
from saod_ray.splits import shifted

if TYPE_CHECKING:
    from saod_ray.score.split import SplitDetections

Array = np.ndarray
TOP = 100  # detections per image and class that are matched; the others are DROPPED

# outcomes of a detection; IGNORED is matched to a crowd
TP, FP, IGNORED, DROPPED = 1, 0, -1, -2


class Matches(NamedTuple):
    """The outcome of each detection."""

    state: Array  # (detections,) int8: TP, FP, IGNORED or DROPPED
    iou: Array  # (detections,) float64: 0 unless TP
    object: Array  # (detections,) int32: index of the matched object, or -1


@njit(cache=True, nogil=True)
def overlaps(
    images: Array,
    offsets: Array,
    label: Array,
    box: Array,
    size: Array,
    start: Array,
    object_label: Array,
    object_box: Array,
    object_size: Array,
    crowd: Array,
) -> tuple[Array, Array, Array]:
    """All overlapping pairs of a detection and an object of its class, ordered by detection, then by object.

    Returns indices of detections, indices of objects and IoUs. The IoU with a crowd is intersection over detection area.
    """
    capacity = max(1024, label.size)
    pair_detection = np.empty(capacity, np.int32)
    pair_object = np.empty(capacity, np.int32)
    pair_iou = np.empty(capacity, np.float64)
    count = 0
    for i in range(images.size):
        first, last = start[images[i]], start[images[i] + 1]
        if count + (offsets[i + 1] - offsets[i]) * (last - first) > capacity:
            capacity = 2 * capacity + (offsets[i + 1] - offsets[i]) * (last - first)
            pair_detection = _longer(pair_detection, count, capacity)
            pair_object = _longer(pair_object, count, capacity)
            pair_iou = _longer(pair_iou, count, capacity)
        for d in range(offsets[i], offsets[i + 1]):
            for o in range(first, last):
                if object_label[o] != label[d]:
                    continue
                w = min(box[d, 2], object_box[o, 2]) - max(box[d, 0], object_box[o, 0])
                if w <= 0:
                    continue
                h = min(box[d, 3], object_box[o, 3]) - max(box[d, 1], object_box[o, 1])
                if h <= 0:
                    continue
                inter = w * h
                union = size[d, 0] * size[d, 1]
                if not crowd[o]:
                    union = union + object_size[o, 0] * object_size[o, 1] - inter
                pair_detection[count] = d
                pair_object[count] = o
                pair_iou[count] = inter / union
                count += 1
    return pair_detection[:count], pair_object[:count], pair_iou[:count]


@njit(cache=True, nogil=True)
def _longer(values: Array, count: int, capacity: int) -> Array:
    out = np.empty(capacity, values.dtype)
    out[:count] = values[:count]
    return out


@njit(cache=True, nogil=True)
def descending_order(score: Array) -> Array:
    """The order of an image's detections by descending score: stable, NaN last."""
    for k in range(1, score.size):
        if not score[k - 1] >= score[k]:
            break
    else:
        return np.arange(score.size)
    key = np.empty(score.size, np.float64)
    for k in range(score.size):
        key[k] = np.inf if np.isnan(score[k]) else -score[k]
    return np.argsort(key, kind="mergesort")


@njit(cache=True, nogil=True)
def _greedy(
    offsets: Array,
    label: Array,
    score: Array,
    pair_start: Array,
    pair_object: Array,
    pair_iou: Array,
    crowd: Array,
    missed: Array,
    classes: int,
    tau: float,
) -> tuple[Array, Array, Array]:
    state = np.zeros(label.size, np.int8)
    iou = np.zeros(label.size, np.float64)
    hits = np.full(label.size, -1, np.int32)
    used = np.zeros(crowd.size, np.bool_)
    taken = np.zeros(classes, np.int64)
    for i in range(offsets.size - 1):
        a, b = offsets[i], offsets[i + 1]
        if a == b:
            continue
        is_crowded = b - a > TOP
        if is_crowded:
            taken[:] = 0
        order = descending_order(score[a:b])
        for k in range(b - a):
            d = a + order[k]
            if is_crowded:
                taken[label[d]] += 1
                if taken[label[d]] > TOP:
                    state[d] = DROPPED
                    continue
            best, hit = min(tau, 1 - 1e-10), -1
            for p in range(pair_start[d], pair_start[d + 1]):
                o = pair_object[p]
                if used[o] and not crowd[o]:
                    continue
                if hit >= 0 and not crowd[hit] and crowd[o]:
                    break
                if pair_iou[p] >= best:
                    best, hit = pair_iou[p], o
            if hit < 0:
                continue
            used[hit] = True
            hits[d] = hit
            if crowd[hit]:
                state[d] = IGNORED
            elif not missed[hit]:
                state[d] = TP
                iou[d] = best
    return state, iou, hits


def greedy(split: SplitDetections, objects: GroundTruth, tau: float, zero_id_misses: bool) -> Matches:
    """Match the detections of each image and class to objects in descending order of scores, at IoU >= tau.

    With tau = 0, any overlap is a match. With `zero_id_misses`, a detection that is matched to an object with annotation
    id 0 is a false positive, as in the published evaluation.
    """
    pairs = (split.pair_start, split.pair_object, split.pair_iou)
    missed = objects.zero_id & zero_id_misses
    columns = (split.offsets, split.label, split.score)
    return Matches(*_greedy(*columns, *pairs, objects.crowd, missed, objects.classes, tau))


def zero_id_rule(conventions: str, split: str = "val", severities: Sequence[int] = ()) -> bool:
    """Whether an object with annotation id 0 counts as missed even if a detection is matched to it.

    The published evaluation takes a matched id of 0 for "not matched". Its pooled evaluation of corrupted images
    renumbers the objects of every copy except the first, so the rule applies to val, id and the first severity only.

    >>> [zero_id_rule("official", split, [1, 3, 5]) for split in ("val", "id", "id-c1", "id-c3")]
    [True, True, True, False]
    """
    first_copy = [shifted(severity) for severity in severities[:1]]
    return conventions == "official" and split in ("val", "id", *first_copy)
