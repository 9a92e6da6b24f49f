"""Reducers in polars against loops compiled by numba, on full-size arrays: python -m benchmarks.reducers.

The package computes class sums with polars; the loop here is what they replaced. It computes image-level uncertainty with a
compiled loop; the polars expressions here are the alternative. Prints CPU-seconds of all threads, the smallest of five runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import polars as pl
from numba import njit

from saod_ray.score.matching import FP, TP, Matches
from saod_ray.score.reducers import BinRule, class_sums, match_frame
from saod_ray.score.uncertainty import smallest_sums

Array = np.ndarray
DETECTIONS, IMAGES, PER_IMAGE, CLASSES, BINS = 3_000_000, 45_391, 85, 80, 25


@njit(cache=True, nogil=True)
def loop_sums(label: Array, score: Array, state: Array, iou: Array, edges: Array, classes: int) -> tuple[Array, ...]:
    bins = edges.size - 1
    tp = np.zeros(classes, np.int64)
    error = np.zeros(classes)
    count = np.zeros((classes, bins + 1), np.int64)
    sums = np.zeros((2, classes, bins + 1))
    for d in range(label.size):
        if state[d] != TP and state[d] != FP:
            continue
        c, s = label[d], score[d]
        tp[c] += state[d] == TP
        error[c] += abs(s - iou[d])
        b = bins if np.isnan(s) else int(np.searchsorted(edges, s, side="right")) - 1
        count[c, b] += 1
        sums[0, c, b] += s
        sums[1, c, b] += iou[d]
    return tp, error, count, sums[0], sums[1]


def polars_uncertainty(offsets: Array, score: Array) -> pl.DataFrame:
    """Top-3 of 1 - score, over lists. Images with more than 100 detections would need another step."""
    lists = pl.Series("score", pl.Series(score).reshape((len(offsets) - 1, PER_IMAGE)).cast(pl.List(pl.Float64)))
    smallest = (1 - pl.element()).bottom_k(3).sort().sum()
    return lists.to_frame().select(pl.col("score").list.eval(smallest).list.first())


def grouped_uncertainty(image: Array, score: Array) -> pl.DataFrame:
    """The same, with one row per detection."""
    frame = pl.DataFrame({"image": image, "value": 1 - score})
    return frame.group_by("image").agg(pl.col("value").bottom_k(3).sort().sum())


def cost(work: Callable[[], object]) -> float:
    work()
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, CLASSES, DETECTIONS).astype(np.int16)
    score = rng.random(DETECTIONS)
    iou = np.where(rng.random(DETECTIONS) < 0.3, rng.random(DETECTIONS), 0.0)
    state = (iou > 0).astype(np.int8)
    matches = Matches(state, iou, np.full(DETECTIONS, -1, np.int32))
    edges, nothing = np.arange(BINS + 1) / BINS, np.zeros(CLASSES, np.int64)
    print(f"class sums, {DETECTIONS:,} detections")
    polars = cost(lambda: class_sums(match_frame(label, score, matches), nothing, BinRule(BINS)).statistics())
    loop = cost(lambda: loop_sums(label, score, state, iou, edges, CLASSES))
    print(f"  polars, exact {polars:6.3f} CPU-s   compiled loop {loop:6.3f}   {polars / loop:5.2f} times the loop")
    offsets = np.arange(IMAGES + 1) * PER_IMAGE
    value = rng.random(IMAGES * PER_IMAGE)
    image = np.repeat(np.arange(IMAGES), PER_IMAGE)
    print(f"image-level uncertainty (top-3), {len(value):,} detections on {IMAGES:,} images")
    loop = cost(lambda: smallest_sums(offsets, 1 - value, value))
    for name, work in (
        ("lists", lambda: polars_uncertainty(offsets, value)),
        ("rows", lambda: grouped_uncertainty(image, value)),
    ):
        polars = cost(work)
        print(
            f"  polars, {name:6} {polars:6.3f} CPU-s   compiled loop {loop:6.3f}   {polars / loop:5.2f} times the loop"
        )


if __name__ == "__main__":
    main()
