"""How certain the results are: a bootstrap over images with thresholds and calibrators held fixed.

A resample draws, with replacement, as many images as there are: from id, whose corrupted copies follow their originals,
and from ood. Nothing is matched again: every figure is a function of sums over images, and a resample weighs each
image's part in them by how often it was drawn. Replicate r follows from the seed, r and the number of images alone, so
that detectors and stores of one use case share their resamples.
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
CHUNK = 64  # replicates at a time: bounds memory, and a row of their weights is a cache line or two
SOURCES = ("id", "ood")
# the metrics of a replicate, in the order of its columns
PARTS = ("id", "shift")
QUALITIES = ("idq", "laece", "lrp")
RESAMPLED = ("daq", "ood.ba", *(f"{part}.{name}" for part in PARTS for name in QUALITIES))
METRICS: tuple[Metric, ...] = built_in(*RESAMPLED)


class Bootstrap(NamedTuple):
    """How many resamples, and the seed that they follow from."""

    replicates: int
    seed: int = 0


# what each image adds ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """TPs and FPs with their image (a position) and cell (class and bin), and how often each object is judged.

    The values of a detection are 1, its score, its IoU, and whether it is a TP.
    """

    image: Array
    cell: Array
    values: Array
    objects: Array

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            image=np.concatenate([self.image, other.image]),
            cell=np.concatenate([self.cell, other.cell]),
            values=np.concatenate([self.values, other.values]),
            objects=self.objects + other.objects,
        )


def parts_of(evaluation: SplitEvaluation) -> Parts:
    """What the reducers sum, before it is summed."""
    import polars as pl

    rule, score, outcome = evaluation.bin_rule(), pl.col("calibrated"), pl.col("outcome")
    frame = (
        evaluation.frame(image=evaluation.kept.images)
        .lazy()
        .filter(outcome.is_in([TP, FP]))
        .select(
            "image",
            cell=pl.col("label").cast(pl.Int64) * (rule.count + 1) + rule.number(score).cast(pl.Int64),
            one=pl.lit(1.0),
            score=score.fill_nan(0.0),  # NaN is in no bin, and sums of scores outside of bins are never read
            iou="iou",
            is_tp=(outcome == TP).cast(pl.Float64),
        )
        .sort("cell", maintain_order=True)  # sums that are added to one after the other stay near
        .collect()
    )
    truth = evaluation.truth
    counted = truth.on(evaluation.kept.images[evaluation.counted_images()]) & ~truth.crowd
    values = np.stack([frame[name].to_numpy() for name in ("one", "score", "iou", "is_tp")], axis=1)
    return Parts(np.array(frame["image"]), np.array(frame["cell"]), values, counted.astype(np.float64))


@njit(cache=True, nogil=True)
def _weighted(row: Array, image: Array, values: Array, weights: Array, rows: int) -> Array:
    """Sums of values by row (row, value, replicate), each image weighted (image, replicate) by its draws."""
    many = weights.shape[1]
    out = np.zeros((rows, values.shape[1], many))
    for k in range(row.size):
        drawn = weights[image[k]]
        for v in range(values.shape[1]):
            value = values[k, v]
            if value != 0:
                target = out[row[k], v]
                for r in range(many):
                    target[r] += value * drawn[r]
    return out


def _statistics(parts: Parts, objects: GroundTruth, weights: Array, bins: int) -> list[Statistics]:
    """The statistics of each replicate; `weights` has one row per image."""
    shape = (objects.classes, bins + 1)
    cells = _weighted(parts.cell, parts.image, parts.values, weights, shape[0] * shape[1])
    on_image = np.repeat(np.arange(len(objects.image_ids)), np.diff(objects.start))
    judged = _weighted(objects.label.astype(np.int64), on_image, parts.objects[:, None], weights, objects.classes)
    out = []
    for each, there in zip(np.ascontiguousarray(cells.transpose(2, 1, 0)), judged[:, 0].T, strict=True):
        count, score, iou, found = (column.reshape(shape) for column in each)
        tp = found.sum(axis=1)
        unused = np.full(shape[0], np.nan)  # LaACE is not resampled
        out.append(Statistics(there, tp, count.sum(axis=1) - tp, iou.sum(axis=1), unused, count, score, iou))
    return out


# telling ID from OOD -----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _first_beyond(inside: Array, outside: Array, start: int) -> tuple[int, int, bool]:
    """How many ID and OOD images are at or below the first remaining ROC candidate from `start` on, if there is one.

    `inside` and `outside` count the images of a resample at each distinct uncertainty; those without any are no
    candidates. See `thresholds.roc` for which candidates remain.
    """
    tp, fp = inside[:start].sum(), outside[:start].sum()
    preceded, held = tp + fp > 0, -1
    for g in range(start, inside.size):
        if inside[g] + outside[g] == 0:
            continue
        if held >= 0 and (inside[g] != inside[held] or outside[g] != outside[held]):
            break  # the counts bend at the one that is held
        tp, fp, held = tp + inside[g], fp + outside[g], g
        if not preceded:
            break  # the first of all is never dropped, nor is the last
        preceded = True
    return tp, fp, held >= 0


class Separation:
    """Balanced accuracy of resamples, by whichever conventions."""

    def __init__(self, inside: Decisions, outside: Decisions, settings: ScoreSettings, threshold: float) -> None:
        self.inside, self.outside = inside, outside
        self._paper = settings.conventions == "paper"
        both = np.concatenate([inside.uncertainty, outside.uncertainty])
        values, group = np.unique(both, return_inverse=True)
        self._groups = np.split(group, [len(inside.uncertainty)])
        self._many = len(values)
        self._start = int(np.searchsorted(values, threshold, side="right"))

    def ba(self, here: Array, away: Array) -> float | None:
        """BA where each ID image was drawn `here` times and each OOD image `away` times, by position."""
        drawn = here[self.inside.images], away[self.outside.images]
        totals = [int(each.sum()) for each in drawn]
        if not all(totals):
            return None
        if self._paper:
            pairs = zip(drawn, (self.inside, self.outside), strict=True)
            tp, fp = (int(each[decided.accepted].sum()) for each, decided in pairs)
        else:
            pairs = zip(self._groups, drawn, strict=True)
            counts = [np.bincount(group, each, self._many).astype(np.int64) for group, each in pairs]
            tp, fp, found = _first_beyond(counts[0], counts[1], self._start)
            if not found:
                return 0.0
        return float(harmonic(tp / totals[0], 1 - fp / totals[1]))


# replicates --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What a detector's figures are made of, image by image. What was not seen is None."""

    settings: ScoreSettings
    objects: GroundTruth  # of id
    images: Mapping[str, int]  # of each source
    corrupted: bool
    separation: Separation | None
    parts: Mapping[str, Parts | None]  # of id and shift


def draws(bootstrap: Bootstrap, source: str, replicate: int, images: int) -> Array:
    """How often each image of a source is in a resample.

    >>> int(draws(Bootstrap(1000, seed=3), "ood", 12, images=50).sum())
    50
    """
    rng = np.random.default_rng([bootstrap.seed, SOURCES.index(source), replicate])
    return np.bincount(rng.integers(0, images, images), minlength=images) if images else np.zeros(0, np.int64)


def replicates(evidence: Evidence, bootstrap: Bootstrap, pool: Executor) -> Array:
    """A row of METRICS for every resample, NaN where undefined; the same however many workers the pool has."""
    chunks = range(0, bootstrap.replicates, CHUNK)
    return np.concatenate(list(pool.map(lambda first: _chunk(evidence, bootstrap, first), chunks)))


def _chunk(evidence: Evidence, bootstrap: Bootstrap, first: int) -> Array:
    numbers = range(first, min(first + CHUNK, bootstrap.replicates))
    inside = [draws(bootstrap, "id", number, evidence.images["id"]) for number in numbers]
    weights = np.stack(inside, axis=1, dtype=np.uint16, casting="unsafe")
    qualities = {name: _qualities(evidence, parts, weights) for name, parts in evidence.parts.items()}
    rows = []
    for k, number in enumerate(numbers):
        ba = None
        if evidence.separation is not None:
            ba = evidence.separation.ba(inside[k], draws(bootstrap, "ood", number, evidence.images["ood"]))
        here, shifted = qualities["id"][k], qualities["shift"][k]
        joined = [ba, here.idq, shifted.idq] if evidence.corrupted else [ba, here.idq]
        row = [daq(joined, evidence.settings.daq_weights), ba]
        rows.append(row + [getattr(part, name) for part in (here, shifted) for name in QUALITIES])
    return np.array(rows, np.float64)  # None becomes NaN


def _qualities(evidence: Evidence, parts: Parts | None, weights: Array) -> list[SplitQuality]:
    if parts is None:
        return [SplitQuality()] * weights.shape[1]
    sums = _statistics(parts, evidence.objects, weights, evidence.settings.bins)
    return [quality(replicate, evidence.settings) for replicate in sums]


# intervals ---------------------------------------------------------------------------------------------------------


def interval(values: Array, value: float) -> list[float] | None:
    """The percentiles of the resamples in which a metric is defined, moved so that their mean is its value.

    None where it never is defined. LaECE is a sum of absolute values, to which the noise of resampling adds: the
    percentiles themselves would lie above it.
    """
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    tail = 50 * (1 - LEVEL)
    return [float(end) for end in np.percentile(defined, [tail, 100 - tail]) - defined.mean() + value]


def bounded_interval(values: Array, value: float | None) -> list[float] | None:
    """The interval of a share: within [0, 1], and None where the share itself is undefined."""
    ends = None if value is None else interval(values, value)
    return None if ends is None else [min(max(end, 0.0), 1.0) for end in ends]


def rank_intervals(of_detectors: Mapping[str, Array]) -> dict[str, list[int] | None]:
    """Of each detector's rank by DAQ among these, resample by resample: 1 is best, equals share the better rank."""
    values = np.array([replicates[:, RESAMPLED.index("daq")] for replicates in of_detectors.values()])
    out: dict[str, list[int] | None] = {}
    for name, own in zip(of_detectors, values, strict=True):
        ranks = (1 + (values > own).sum(axis=0))[~np.isnan(own)]
        tail = 50 * (1 - LEVEL)
        ends = np.percentile(ranks, [tail, 100 - tail], method="inverted_cdf") if len(ranks) else None
        out[name] = None if ends is None else [int(end) for end in ends]
    return out


def intervals(result: DetectorResult, of_replicates: Array) -> Intervals:
    """The intervals of METRICS; a metric that is undefined has none."""
    ends = {
        metric.name: bounded_interval(values, metric.value(result))
        for metric, values in zip(METRICS, of_replicates.T, strict=True)
    }
    parts = [QualityIntervals(**{name: ends[f"{part}.{name}"] for name in QUALITIES}) for part in PARTS]
    return Intervals(daq=ends["daq"], ood=OodIntervals(ba=ends["ood.ba"]), id=parts[0], shift=parts[1])
