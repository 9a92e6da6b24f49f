"""COCO's AP and AR as in pycocotools, and oLRP, computed from overlaps.

All forty combinations of ten IoU thresholds and four area ranges are matched in one pass: bit 10 a + t of a mask stands for
threshold t in area range a. A detection that overlaps no object by at least 0.5 is a false positive in every combination,
so that only the few others are processed forty times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from saod_ray.score import lrp
from saod_ray.score.matching import DROPPED, FP, IGNORED, TOP, TP, descending_order
from saod_ray.score.objects import GroundTruth
from saod_ray.score.order import class_order
from saod_ray.score.results import AccuracyResult
from saod_ray.score.split import SplitDetections

Array = np.ndarray
THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0.0, 1.0, 101)
T, A = 10, 4  # numbers of IoU thresholds and area ranges
MATCHED, LATE = 16, 32  # bits above those of the area ranges: matched in any combination; not among the first TOP
AREAS = ("", "_small", "_medium", "_large")


@njit(cache=True, nogil=True)
def _match_all(
    offsets: Array,
    label: Array,
    score: Array,
    pair_start: Array,
    pair_object: Array,
    pair_iou: Array,
    in_area: Array,
    crowd: Array,
    missed: Array,
    ignored: Array,
    rank_of: Array,
    classes: int,
    thresholds: Array,
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Match detections in all combinations of IoU threshold and area range.

    `ignored` has a bit for each area range in which an object does not count. Returns per detection: masks of the
    combinations in which it is a TP and in which it is matched to an ignored object, its rank within image and class, its
    state and IoU at 0.5 over all areas, and its flags (bits of area ranges, MATCHED and LATE).

    Arrays are separate arguments: gathered in named tuples, they make the innermost loop four times slower.
    """
    n = label.size
    tp, ig = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    rank = np.zeros(n, np.uint8)
    state, iou = np.zeros(n, np.int8), np.zeros(n)
    flags = in_area.copy()
    used = np.zeros(crowd.size, np.uint64)
    taken = np.zeros(classes, np.int32)
    one = np.uint64(1)
    for i in range(offsets.size - 1):
        a, b = offsets[i], offsets[i + 1]
        order = descending_order(score[a:b])
        for k in range(b - a):
            d = a + order[k]
            rank[d] = min(taken[label[d]], TOP)
            taken[label[d]] += 1
            if rank[d] == TOP:
                state[d] = DROPPED
                flags[d] |= LATE
                continue
            first, last = pair_start[d], pair_start[d + 1]
            largest = 0.0
            for p in range(first, last):
                largest = max(largest, pair_iou[p])
            for t in range(T):
                if largest < thresholds[t]:
                    break
                for area in range(A):
                    bit = one << np.uint64(T * area + t)
                    best, hit, hit_ignored = thresholds[t], -1, False
                    for is_ignored in (False, True):  # objects that count come first
                        if hit >= 0:
                            break
                        for p in range(first, last):
                            o = pair_object[p]
                            if ((ignored[o] >> area) & 1 == 1) != is_ignored or pair_iou[p] < best:
                                continue
                            if used[o] & bit and not crowd[o]:
                                continue
                            # of equal IoUs the later in the file wins; here crowds come last, there they do not
                            if hit >= 0 and pair_iou[p] == best and rank_of[o] < rank_of[hit]:
                                continue
                            best, hit, hit_ignored = pair_iou[p], o, is_ignored
                    if hit < 0:
                        continue
                    used[hit] |= bit
                    if hit_ignored:
                        ig[d] |= bit
                    elif not missed[hit]:
                        tp[d] |= bit
                    if hit_ignored or not missed[hit]:
                        flags[d] |= MATCHED
                    if bit == one:
                        state[d] = IGNORED if hit_ignored else (FP if missed[hit] else TP)
                        iou[d] = best if state[d] == TP else 0.0
        for d in range(a, b):
            taken[label[d]] = 0
    return tp, ig, rank, state, iou, flags


@njit(cache=True, nogil=True)
def _accumulate(
    order: Array, start: Array, tp: Array, ig: Array, rank: Array, flags: Array, objects: Array, recalls: Array
) -> tuple[Array, Array, Array]:
    """Mean interpolated precision and recall, (classes, A, T), and recall within the first 1 and 10, (classes, 2, T).

    Detections are visited in the order of scores, where every array access is a cache miss: `flags` avoids most of them.
    """
    classes = objects.shape[0]
    precision = np.full((classes, A, T), np.nan)
    recall = np.full((classes, A, T), np.nan)
    early = np.full((classes, 2, T), np.nan)
    one, nothing = np.uint64(1), np.uint64(0)
    number = np.zeros(67, np.int64)  # of a bit, by its value modulo 67, which differs for all powers of 2 below 2^66
    for j in range(A * T):
        number[(one << np.uint64(j)) % np.uint64(67)] = j
    for c in range(classes):
        # The number of counted detections up to each TP: those inside the area range, corrected for TPs outside of it
        # (which count) and for matches to ignored objects (which do not).
        position = np.empty((A * T, objects[c].max()), np.int64)
        tp_count = np.zeros(A * T, np.int64)
        inside = np.zeros(A, np.int64)
        correction = np.zeros(A * T, np.int64)
        hits = np.zeros((2, T), np.int64)
        for k in range(start[c], start[c + 1]):
            d = order[k]
            flag = flags[d]
            if flag & LATE:
                continue
            for area in range(A):
                inside[area] += (flag >> area) & 1
            left = tp[d] | ig[d] if flag & MATCHED else nothing
            while left:
                lowest = left & (~left + one)
                left ^= lowest
                j = number[lowest % np.uint64(67)]
                area = j // T
                here = (flag >> area) & 1
                if ig[d] & lowest:
                    correction[j] -= here
                    continue
                correction[j] += 1 - here
                position[j, tp_count[j]] = inside[area] + correction[j]
                tp_count[j] += 1
                if area == 0:
                    hits[0, j] += rank[d] < 1
                    hits[1, j] += rank[d] < 10
        for area in range(A):
            total = objects[c, area]
            if total == 0:
                continue
            for t in range(T):
                j = T * area + t
                precision[c, area, t] = _interpolated(position[j, : tp_count[j]], total, recalls)
                recall[c, area, t] = tp_count[j] / total
                if area == 0:
                    early[c, 0, t] = hits[0, t] / total
                    early[c, 1, t] = hits[1, t] / total
    return precision, recall, early


@njit(cache=True, nogil=True)
def _interpolated(position: Array, total: int, recalls: Array) -> float:
    """The mean over the recall points of the largest precision at that recall or above."""
    envelope = np.empty(position.size)
    largest = 0.0
    for k in range(position.size - 1, -1, -1):
        largest = max(largest, (k + 1) / (position[k] + np.spacing(1.0)))
        envelope[k] = largest
    k, area = 0, 0.0
    for r in range(recalls.size):
        while k < position.size and (k + 1) / total < recalls[r]:
            k += 1
        if k < position.size:
            area += envelope[k]
    return area / recalls.size


class Accuracy(NamedTuple):
    """Mean AP, AR and oLRP over classes, and AP of each class by label; None where undefined."""

    overall: AccuracyResult
    class_ap: list[float | None]

    @property
    def ap(self) -> float | None:
        """COCO's main metric."""
        return self.overall.ap


def accuracy(split: SplitDetections, objects: GroundTruth, zero_id_misses: bool) -> Accuracy:
    """AP, AR and oLRP of detections, by their raw scores.

    With `zero_id_misses`, objects with annotation id 0 count as missed, as in the published evaluation.
    """
    outside = (~objects.area) & 0b1111
    ignored = np.where(objects.crowd, 0b1111, outside).astype(np.uint8)
    missed = objects.zero_id & zero_id_misses
    tp, ig, rank, state, iou, flags = _match_all(
        split.offsets,
        split.label,
        split.score,
        split.pair_start,
        split.pair_object,
        split.pair_iou,
        split.area,
        objects.crowd,
        missed,
        ignored,
        objects.rank,
        objects.classes,
        THRESHOLDS,
    )
    here = objects.on(split.images)
    counts = [np.bincount(objects.label[here & (ignored >> a & 1 == 0)], minlength=objects.classes) for a in range(A)]
    order, start = class_order(split.label, split.score, objects.classes)
    precision, recall, early = _accumulate(order, start, tp, ig, rank, flags, np.stack(counts, 1), RECALLS)
    means: dict[str, float | None] = {}
    for a, area in enumerate(AREAS):
        means["ap" + area] = lrp.mean_of_defined(precision[:, a])
        means["ar" + area] = lrp.mean_of_defined(recall[:, a])
    means["ap50"] = lrp.mean_of_defined(precision[:, 0, 0])
    means["ap75"] = lrp.mean_of_defined(precision[:, 0, 5])
    means["ar_1"] = lrp.mean_of_defined(early[:, 0])
    means["ar_10"] = lrp.mean_of_defined(early[:, 1])
    best = lrp.best_prefix(order, start, state, iou, counts[0], 0.5)
    overall = AccuracyResult(**means, **lrp.olrp(best, counts[0]))
    return Accuracy(overall, [lrp.mean_of_defined(values) for values in precision[:, 0]])
