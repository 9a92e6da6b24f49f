"""Image-level uncertainty: a value a detection, aggregated over the most certain ones of an image."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from saod_ray.errors import SaodError

Array = np.ndarray
NO_DETECTION = 1e12  # the uncertainty of an image without any detection
KEPT = 10  # how many smallest values have their running sums cached
TOP = 100  # raw detections of all classes that take part


class Range(NamedTuple):
    """The smallest and largest classification and localisation entropy on val."""

    entropy: tuple[float, float]
    gaussian: tuple[float, float]


def columns_of(kind: str) -> tuple[str, ...]:
    """The shard columns that an uncertainty is made from.

    >>> columns_of("max-class-entropy"), columns_of("trace")
    (('max_class_entropy',), ('variance',))
    """
    if kind == "score":
        return ("score",)
    if kind in ("determinant", "trace", "gaussian-entropy"):
        return ("variance",)
    return ("entropy", "variance") if kind.startswith("joint") else (kind.replace("-", "_"),)


def per_detection(kind: str, columns: dict[str, Array], val: Range | None = None) -> Array:
    """The uncertainty of each detection; `val` is needed by the normalised combination alone."""
    for name in columns_of(kind):
        if name not in columns:
            raise SaodError(f"The uncertainty '{kind}' needs the column '{name}', which this detector does not have.")
    values = {name: columns[name].astype(np.float64) for name in columns_of(kind)}
    if kind == "score":
        return 1 - values["score"]
    if kind == "determinant":
        return values["variance"].prod(axis=1)
    if kind == "trace":
        return values["variance"].sum(axis=1)
    if kind == "gaussian-entropy":
        return gaussian_entropy(values["variance"])
    if not kind.startswith("joint"):
        return values[kind.replace("-", "_")]
    entropy, gaussian = values["entropy"], gaussian_entropy(values["variance"])
    if kind == "joint-entropy":
        return entropy + gaussian
    if kind == "joint-entropy-balanced":  # App. C: four variables against one
        return 4 * entropy + gaussian
    assert val is not None
    return _scaled(entropy, val.entropy) + _scaled(gaussian, val.gaussian)


def gaussian_entropy(variance: Array) -> Array:
    """H = 2 + 2 ln(2 pi) + ln(det)/2, with the logarithm taken before the product can underflow."""
    tiny = np.finfo(np.float64).tiny
    return 2 + 2 * math.log(2 * math.pi) + 0.5 * np.log(np.maximum(variance, tiny)).sum(axis=1)


def _scaled(values: Array, bounds: tuple[float, float]) -> Array:
    low, high = bounds
    return (values - low) / (high - low) if high > low else values - low


@njit(cache=True, nogil=True)
def _top(score: Array) -> Array:
    """The TOP detections of an image by falling score, as indices."""
    return np.argsort(-score, kind="mergesort")[:TOP]


@njit(cache=True, nogil=True)
def smallest_sums(offsets: Array, values: Array, score: Array) -> tuple[Array, Array]:
    """Per image: running sums of its KEPT smallest values, ascending, and how many detections take part."""
    images = offsets.size - 1
    sums = np.zeros((images, KEPT))
    count = np.empty(images, np.int32)
    held = np.empty(KEPT)
    for i in range(images):
        a, b = offsets[i], offsets[i + 1]
        some = values[a:b] if b - a <= TOP else values[a:b][_top(score[a:b])]
        count[i] = some.size
        filled = 0
        for k in range(some.size):
            v = some[k]
            if filled == KEPT and not v < held[KEPT - 1]:
                continue
            at = filled if filled < KEPT else KEPT - 1
            while at > 0 and v < held[at - 1]:
                held[at] = held[at - 1]
                at -= 1
            held[at] = v
            filled = min(filled + 1, KEPT)
        total = 0.0
        for k in range(KEPT):
            if k < filled:
                total += held[k]
            sums[i, k] = total
    return sums, count


@njit(cache=True, nogil=True)
def ascending_sums(offsets: Array, values: Array, score: Array, most: int) -> tuple[Array, Array]:
    """Per image: the sum of its `most` smallest values, ascending, and how many detections take part."""
    images = offsets.size - 1
    sums = np.zeros((images, 1))
    count = np.empty(images, np.int32)
    for i in range(images):
        a, b = offsets[i], offsets[i + 1]
        some = values[a:b] if b - a <= TOP else values[a:b][_top(score[a:b])]
        count[i] = some.size
        ordered = np.sort(some)
        total = 0.0
        for k in range(min(most, some.size)):
            total += ordered[k]
        sums[i, 0] = total
    return sums, count


def used_of(aggregate: str) -> int:
    """How many of the smallest values an aggregation uses.

    >>> used_of("top-3"), used_of("min"), used_of("mean")
    (3, 1, 100)
    """
    return {"min": 1, "mean": TOP, "sum": TOP}.get(aggregate) or min(int(aggregate.removeprefix("top-")), TOP)


def aggregated(aggregate: str, sums: Array, count: Array) -> Array:
    """From sums of the smallest values to the image's uncertainty."""
    with np.errstate(divide="ignore", invalid="ignore"):
        used = np.minimum(count, used_of(aggregate))
        values = sums if aggregate == "sum" else sums / used
    return np.where(count == 0, NO_DETECTION, values)
