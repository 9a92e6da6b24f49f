"""Confidence intervals: a bootstrap over images with fixed thresholds and calibrators.

A resample draws, with replacement, as many images as there are, from id and from ood. Corrupted copies follow their
originals. Nothing is matched again: every metric is a function of sums over images, and a resample weights the contribution
of each image by how often it was drawn. Replicate r depends on the seed, r and the number of images only, so that detectors
and stores of one use case share their resamples.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from saod_ray.config import ScoreSettings
from saod_ray.score.daq import daq, quality
from saod_ray.score.evaluation import Decisions, SplitEvaluation
from saod_ray.score.matching import FP, TP
from saod_ray.score.metrics import Metric, built_in
from saod_ray.score.objects import GroundTruth
from saod_ray.score.results import DetectorResult, Intervals, OodIntervals, QualityIntervals, SplitQuality
from saod_ray.score.statistics import Statistics
from saod_ray.score.thresholds import harmonic

Array = np.ndarray
FORMAT = 1  # of cached replicates: raise it when resamples or metrics change
LEVEL = 0.95
CHUNK = 64  # replicates at a time: bounds memory, and a row of weights fits into two cache lines
SOURCES = ("id", "ood")
# the metrics of a replicate, in the order of its columns
PARTS = ("id", "shift")
QUALITIES = ("idq", "laece", "lrp")
RESAMPLED = ("daq", "ood.ba", *(f"{part}.{name}" for part in PARTS for name in QUALITIES))
METRICS: tuple[Metric, ...] = built_in(*RESAMPLED)


class Bootstrap(NamedTuple):
    """The number of resamples, and their random seed."""

    replicates: int
    seed: int = 0


# contributions of images ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contributions:
    """The contributions of all images to the sums: of each TP and FP, and of each object."""

    image: Array  # (n,) position of the image of each TP and FP
    cell: Array  # (n,) class and bin as one number
    values: Array  # (n, 4) float64: 1, calibrated score, IoU, whether it is a TP
    objects: Array  # (objects,) float64: how often each object counts

    def __add__(self, other: Contributions) -> Contributions:
        return Contributions(
            image=np.concatenate([self.image, other.image]),
            cell=np.concatenate([self.cell, other.cell]),
            values=np.concatenate([self.values, other.values]),
            objects=self.objects + other.objects,
        )


def contributions(evaluation: SplitEvaluation) -> Contributions:
    """The terms of the sums that the reducers compute."""
    import polars as pl

    rule, score, outcome = evaluation.bin_rule(), pl.col("calibrated"), pl.col("outcome")
    frame = (
        evaluation.frame(image=evaluation.detections.images)
        .lazy()
        .filter(outcome.is_in([TP, FP]))
        .select(
            "image",
            cell=pl.col("label").cast(pl.Int64) * (rule.count + 1) + rule.number(score).cast(pl.Int64),
            one=pl.lit(1.0),
            score=score.fill_nan(0.0),  # NaN is in no bin, and sums of scores are used inside bins only
            iou="iou",
            is_tp=(outcome == TP).cast(pl.Float64),
        )
        .sort("cell", maintain_order=True)  # consecutive terms go into the same sum, which stays in the CPU cache
        .collect()
    )
    truth = evaluation.truth
    counted = truth.on(evaluation.detections.images[evaluation.counted_images()]) & ~truth.crowd
    values = np.stack([frame[name].to_numpy() for name in ("one", "score", "iou", "is_tp")], axis=1)
    return Contributions(np.array(frame["image"]), np.array(frame["cell"]), values, counted.astype(np.float64))


@njit(cache=True, nogil=True)
def _weighted(row: Array, image: Array, values: Array, weights: Array, rows: int) -> Array:
    """Weighted sums of values by row.

    Args:
        row: (n,) the row that each term is added to.
        image: (n,) the image that each term belongs to.
        values: (n, values) float64.
        weights: (images, replicates) how often each image was drawn.
        rows: The number of rows.

    Returns:
        (rows, values, replicates) float64.
    """
    replicate_count = weights.shape[1]
    out = np.zeros((rows, values.shape[1], replicate_count))
    for k in range(row.size):
        image_weights = weights[image[k]]
        for v in range(values.shape[1]):
            value = values[k, v]
            if value != 0:
                target = out[row[k], v]
                for r in range(replicate_count):
                    target[r] += value * image_weights[r]
    return out


def _statistics(terms: Contributions, objects: GroundTruth, weights: Array, bins: int) -> list[Statistics]:
    """The statistics of each replicate; `weights` has one row per image."""
    shape = (objects.classes, bins + 1)
    cells = _weighted(terms.cell, terms.image, terms.values, weights, shape[0] * shape[1])
    on_image = np.repeat(np.arange(len(objects.image_ids)), np.diff(objects.start))
    object_counts = _weighted(
        objects.label.astype(np.int64), on_image, terms.objects[:, None], weights, objects.classes
    )
    by_replicate = zip(np.ascontiguousarray(cells.transpose(2, 1, 0)), object_counts[:, 0].T, strict=True)
    statistics = []
    for columns, counted_objects in by_replicate:
        count, score, iou, is_tp = (column.reshape(shape) for column in columns)
        tp = is_tp.sum(axis=1)
        statistics.append(
            Statistics(
                objects=counted_objects,
                tp=tp,
                fp=count.sum(axis=1) - tp,
                iou=iou.sum(axis=1),
                error=np.full(shape[0], np.nan),  # LaACE is not resampled
                bin_count=count,
                bin_score=score,
                bin_iou=iou,
            )
        )
    return statistics


# separation of ID and OOD images -----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _first_beyond(inside: Array, outside: Array, start: int) -> tuple[int, int, bool]:
    """The numbers of ID and OOD images at or below the first ROC point from `start` on, and whether there is one.

    `inside` and `outside` count the images of a resample at each distinct uncertainty. Uncertainties without images are not
    candidates, and points inside straight segments are skipped, as in `thresholds.roc`.
    """
    tp, fp = inside[:start].sum(), outside[:start].sum()
    has_predecessor, candidate = tp + fp > 0, -1
    for g in range(start, inside.size):
        if inside[g] + outside[g] == 0:
            continue
        if candidate >= 0 and (inside[g] != inside[candidate] or outside[g] != outside[candidate]):
            break  # the curve bends at the candidate
        tp, fp, candidate = tp + inside[g], fp + outside[g], g
        if not has_predecessor:
            break  # the first and the last point of the curve are never dropped
        has_predecessor = True
    return tp, fp, candidate >= 0


class OodSeparation:
    """Balanced accuracy of resamples, by the conventions of the settings."""

    def __init__(self, inside: Decisions, outside: Decisions, settings: ScoreSettings, threshold: float) -> None:
        self.inside, self.outside = inside, outside
        self._paper = settings.conventions == "paper"
        uncertainties = np.concatenate([inside.uncertainty, outside.uncertainty])
        values, group = np.unique(uncertainties, return_inverse=True)
        self._groups = np.split(group, [len(inside.uncertainty)])
        self._distinct_values = len(values)
        self._start = int(np.searchsorted(values, threshold, side="right"))

    def ba(self, id_draws: Array, ood_draws: Array) -> float | None:
        """BA of a resample; the arguments say how often each ID and each OOD image was drawn, by position."""
        draw_counts = id_draws[self.inside.images], ood_draws[self.outside.images]
        totals = [int(counts.sum()) for counts in draw_counts]
        if not all(totals):
            return None
        if self._paper:
            pairs = zip(draw_counts, (self.inside, self.outside), strict=True)
            tp, fp = (int(counts[decisions.accepted].sum()) for counts, decisions in pairs)
        else:
            inside, outside = (
                np.bincount(group, counts, self._distinct_values).astype(np.int64)
                for group, counts in zip(self._groups, draw_counts, strict=True)
            )
            tp, fp, has_point = _first_beyond(inside, outside, self._start)
            if not has_point:
                return 0.0
        return float(harmonic(tp / totals[0], 1 - fp / totals[1]))


# replicates --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BootstrapInput:
    """What the metrics of a detector are computed from, image by image; None where there are no detections."""

    settings: ScoreSettings
    objects: GroundTruth  # of id
    images: Mapping[str, int]  # number of images of each source
    has_shift: bool  # whether the use case has corrupted splits
    separation: OodSeparation | None
    contributions: Mapping[str, Contributions | None]  # of id and shift


def draws(bootstrap: Bootstrap, source: str, replicate: int, images: int) -> Array:
    """How often each image of a source is drawn in a resample, (images,).

    >>> int(draws(Bootstrap(1000, seed=3), "ood", 12, images=50).sum())
    50
    """
    rng = np.random.default_rng([bootstrap.seed, SOURCES.index(source), replicate])
    return np.bincount(rng.integers(0, images, images), minlength=images) if images else np.zeros(0, np.int64)


def replicates(data: BootstrapInput, bootstrap: Bootstrap, pool: Executor) -> Array:
    """METRICS of every resample, (replicates, metrics) float64, NaN where undefined.

    The values do not depend on the number of workers of the pool.
    """
    chunks = range(0, bootstrap.replicates, CHUNK)
    return np.concatenate(list(pool.map(lambda first: _chunk(data, bootstrap, first), chunks)))


def _chunk(data: BootstrapInput, bootstrap: Bootstrap, first: int) -> Array:
    """The metrics of at most CHUNK resamples from number `first` on."""
    numbers = range(first, min(first + CHUNK, bootstrap.replicates))
    inside = [draws(bootstrap, "id", number, data.images["id"]) for number in numbers]
    weights = np.stack(inside, axis=1, dtype=np.uint16, casting="unsafe")
    qualities = {part: _qualities(data, terms, weights) for part, terms in data.contributions.items()}
    rows = []
    for k, number in enumerate(numbers):
        ba = None
        if data.separation is not None:
            ba = data.separation.ba(inside[k], draws(bootstrap, "ood", number, data.images["ood"]))
        on_id, shifted = qualities["id"][k], qualities["shift"][k]
        parts = [ba, on_id.idq, shifted.idq] if data.has_shift else [ba, on_id.idq]
        row = [daq(parts, data.settings.daq_weights), ba]
        rows.append(row + [getattr(part, name) for part in (on_id, shifted) for name in QUALITIES])
    return np.array(rows, np.float64)  # None becomes NaN


def _qualities(data: BootstrapInput, terms: Contributions | None, weights: Array) -> list[SplitQuality]:
    if terms is None:
        return [SplitQuality()] * weights.shape[1]
    sums = _statistics(terms, data.objects, weights, data.settings.bins)
    return [quality(replicate, data.settings) for replicate in sums]


# intervals ---------------------------------------------------------------------------------------------------------


def interval(values: Array, value: float) -> list[float] | None:
    """The percentiles of a metric over resamples, shifted so that their mean is its value; None if it is never defined.

    LaECE is a sum of absolute values, which the noise of resampling increases: without the shift, the percentiles would be
    above the value.
    """
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    tail = 50 * (1 - LEVEL)
    return [float(end) for end in np.percentile(defined, [tail, 100 - tail]) - defined.mean() + value]


def bounded_interval(values: Array, value: float | None) -> list[float] | None:
    """The interval of a fraction, clipped to [0, 1]; None if the fraction is undefined."""
    ends = None if value is None else interval(values, value)
    return None if ends is None else [min(max(end, 0.0), 1.0) for end in ends]


def rank_intervals(by_detector: Mapping[str, Array]) -> dict[str, list[int] | None]:
    """The interval of each detector's rank by DAQ over resamples. Rank 1 is best, and equals share the better rank."""
    values = np.array([replicates[:, RESAMPLED.index("daq")] for replicates in by_detector.values()])
    out: dict[str, list[int] | None] = {}
    for name, own in zip(by_detector, values, strict=True):
        ranks = (1 + (values > own).sum(axis=0))[~np.isnan(own)]
        tail = 50 * (1 - LEVEL)
        ends = np.percentile(ranks, [tail, 100 - tail], method="inverted_cdf") if len(ranks) else None
        out[name] = None if ends is None else [int(end) for end in ends]
    return out


def intervals(result: DetectorResult, replicate_values: Array) -> Intervals:
    """The intervals of METRICS; None for undefined metrics. The array is that of `replicates`."""
    ends = {
        metric.name: bounded_interval(values, metric.value(result))
        for metric, values in zip(METRICS, replicate_values.T, strict=True)
    }
    parts = [QualityIntervals(**{name: ends[f"{part}.{name}"] for name in QUALITIES}) for part in PARTS]
    return Intervals(daq=ends["daq"], ood=OodIntervals(ba=ends["ood.ba"]), id=parts[0], shift=parts[1])
