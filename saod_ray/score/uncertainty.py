"""Image-level uncertainty: one value per detection, aggregated over the most certain detections of an image."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from saod_ray.errors import SaodError

Array = np.ndarray
NO_DETECTION = 1e12  # the uncertainty of an image without any detection
CACHED_SMALLEST = 10  # running sums of this many smallest values are cached
TOP = 100  # only this many detections of an image count, those with the highest scores of all classes


class Range(NamedTuple):
    """The smallest and largest classification and localisation entropy on val."""

    entropy: tuple[float, float]
    gaussian: tuple[float, float]


def required_columns(kind: str) -> tuple[str, ...]:
    """The shard columns that an uncertainty is computed from.

    >>> required_columns("max-class-entropy"), required_columns("trace")
    (('max_class_entropy',), ('variance',))
    """
    if kind == "score":
        return ("score",)
    if kind in ("determinant", "trace", "gaussian-entropy"):
        return ("variance",)
    return ("entropy", "variance") if kind.startswith("joint") else (kind.replace("-", "_"),)


def per_detection(kind: str, columns: dict[str, Array], val: Range | None = None) -> Array:
    """The uncertainty of each detection, (n,) float64.

    Args:
        kind: The setting `uncertainty`.
        columns: Columns of a shard.
        val: Ranges of val's entropies; only `joint-entropy-normalised` needs them.

    Raises:
        SaodError: The detector does not have a column that `kind` needs.
    """
    for name in required_columns(kind):
        if name not in columns:
            raise SaodError(
                f"The uncertainty '{kind}' needs the column '{name}', which this detector does not have: use another."
            )
    values = {name: columns[name].astype(np.float64) for name in required_columns(kind)}
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
    """Entropy of a 4-d Gaussian, 2 + 2 ln(2 pi) + ln(det)/2, from variances (n, 4). Sums logarithms to avoid underflow."""
    tiny = np.finfo(np.float64).tiny
    return 2 + 2 * math.log(2 * math.pi) + 0.5 * np.log(np.maximum(variance, tiny)).sum(axis=1)


def _scaled(values: Array, bounds: tuple[float, float]) -> Array:
    low, high = bounds
    return (values - low) / (high - low) if high > low else values - low


@njit(cache=True, nogil=True)
def _top(score: Array) -> Array:
    """Indices of the TOP detections of an image, in descending order of scores."""
    return np.argsort(-score, kind="mergesort")[:TOP]


@njit(cache=True, nogil=True)
def smallest_sums(offsets: Array, values: Array, score: Array) -> tuple[Array, Array]:
    """Running sums of the smallest values of each image, and how many of its detections count.

    Args:
        offsets: (images + 1,) int64: the detections of image i are offsets[i] to offsets[i + 1].
        values: (detections,) float64.
        score: (detections,) float64; only the TOP detections of an image count.

    Returns:
        (images, CACHED_SMALLEST) float64, whose column k is the sum of the k + 1 smallest values, and (images,) int32.
    """
    images = offsets.size - 1
    sums = np.zeros((images, CACHED_SMALLEST))
    count = np.empty(images, np.int32)
    smallest = np.empty(CACHED_SMALLEST)  # ascending
    for i in range(images):
        a, b = offsets[i], offsets[i + 1]
        counted = values[a:b] if b - a <= TOP else values[a:b][_top(score[a:b])]
        count[i] = counted.size
        filled = 0
        for k in range(counted.size):
            v = counted[k]
            if filled == CACHED_SMALLEST and not v < smallest[CACHED_SMALLEST - 1]:
                continue
            at = filled if filled < CACHED_SMALLEST else CACHED_SMALLEST - 1
            while at > 0 and v < smallest[at - 1]:
                smallest[at] = smallest[at - 1]
                at -= 1
            smallest[at] = v
            filled = min(filled + 1, CACHED_SMALLEST)
        total = 0.0
        for k in range(CACHED_SMALLEST):
            if k < filled:
                total += smallest[k]
            sums[i, k] = total
    return sums, count


@njit(cache=True, nogil=True)
def ascending_sums(offsets: Array, values: Array, score: Array, limit: int) -> tuple[Array, Array]:
    """The sum of the `limit` smallest values of each image, (images, 1) float64, added in ascending order.

    Other arguments and the second result are those of `smallest_sums`.
    """
    images = offsets.size - 1
    sums = np.zeros((images, 1))
    count = np.empty(images, np.int32)
    for i in range(images):
        a, b = offsets[i], offsets[i + 1]
        counted = values[a:b] if b - a <= TOP else values[a:b][_top(score[a:b])]
        count[i] = counted.size
        ordered = np.sort(counted)
        total = 0.0
        for k in range(min(limit, counted.size)):
            total += ordered[k]
        sums[i, 0] = total
    return sums, count


def smallest_count(aggregate: str) -> int:
    """How many of the smallest values an aggregation uses.

    >>> smallest_count("top-3"), smallest_count("min"), smallest_count("mean")
    (3, 1, 100)
    """
    return {"min": 1, "mean": TOP, "sum": TOP}.get(aggregate) or min(int(aggregate.removeprefix("top-")), TOP)


def aggregate_sums(aggregate: str, sums: Array, count: Array) -> Array:
    """The uncertainty of each image from the sums of its smallest values; NO_DETECTION without detections."""
    with np.errstate(divide="ignore", invalid="ignore"):
        used = np.minimum(count, smallest_count(aggregate))
        values = sums if aggregate == "sum" else sums / used
    return np.where(count == 0, NO_DETECTION, values)
