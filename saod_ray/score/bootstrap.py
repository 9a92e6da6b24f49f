"""How sure the figures are: a bootstrap over images with thresholds and calibrators held fixed.

A resample draws, with replacement, as many images as there are: from id, whose corrupted copies follow their originals,
and from ood. Nothing is matched again: every figure is a function of sums over images, and a resample weighs each
image's part in them by how often it was drawn. Replicate r follows from the seed, r and the number of images alone, so
that detectors and stores of one use case share their resamples.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from saod_ray.config import ScoreSettings
from saod_ray.score.daq import daq, quality
from saod_ray.score.matching import FP, TP, Matches
from saod_ray.score.objects import Objects
from saod_ray.score.split import Split
from saod_ray.score.statistics import Statistics, bins_of
from saod_ray.score.thresholds import harmonic

Array = np.ndarray
FORMAT = 1  # of replicates that are cached: raise it when resamples or figures change
LEVEL = 0.95
CHUNK = 64  # replicates at a time: bounds memory, and a row of their weights is a cache line or two
SOURCES = ("id", "ood")
# the figures of a replicate, where they are in results.json
FIGURES = (
    ("daq",),
    ("ood", "ba"),
    *((part, name) for part in ("id", "shift") for name in ("idq", "laece", "lrp")),
)


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


def parts_of(split: Split, matches: Matches, objects: Objects, images: Array, bins: int, last_closed: bool) -> Parts:
    """What `statistics` sums, before it is summed; `images` are the positions whose objects are judged."""
    judged = np.flatnonzero((matches.state == TP) | (matches.state == FP))
    score = split.score[judged]
    cell = split.label[judged].astype(np.int64) * (bins + 1) + bins_of(score, bins, last_closed)
    order = np.argsort(cell, kind="stable")  # sums that are added to one after the other stay near
    judged, cell, score = judged[order], cell[order], score[order]
    # NaN is in no bin, and the sum of scores outside of bins is never read
    values = [np.ones(len(judged)), np.nan_to_num(score), matches.iou[judged], matches.state[judged] == TP]
    image = np.repeat(split.images, np.diff(split.offsets))[judged]
    return Parts(image, cell, np.stack(values, axis=1), (objects.on(images) & ~objects.crowd).astype(np.float64))


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


def _statistics(parts: Parts, objects: Objects, weights: Array, bins: int) -> list[Statistics]:
    """The statistics of each replicate; `weights` has a row an image."""
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


class Decided(NamedTuple):
    """A split's images (positions), their uncertainties, and which are accepted."""

    images: Array
    uncertainty: Array
    accepted: Array


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

    def __init__(self, inside: Decided, outside: Decided, settings: ScoreSettings, threshold: float) -> None:
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
    objects: Objects  # of id
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
    """A row of FIGURES for every resample, NaN where undefined; the same however many workers the pool has."""
    chunks = range(0, bootstrap.replicates, CHUNK)
    return np.concatenate(list(pool.map(lambda first: _chunk(evidence, bootstrap, first), chunks)))


def _chunk(evidence: Evidence, bootstrap: Bootstrap, first: int) -> Array:
    numbers = range(first, min(first + CHUNK, bootstrap.replicates))
    inside = [draws(bootstrap, "id", number, evidence.images["id"]) for number in numbers]
    weights = np.stack(inside, axis=1, dtype=np.uint16, casting="unsafe")
    qualities = {name: _qualities(evidence, each, weights) for name, each in evidence.parts.items()}
    rows = []
    for k, number in enumerate(numbers):
        ba = None
        if evidence.separation is not None:
            ba = evidence.separation.ba(inside[k], draws(bootstrap, "ood", number, evidence.images["ood"]))
        figures: dict[str, Any] = {name: each[k] for name, each in qualities.items()} | {"ood": {"ba": ba}}
        parts = [ba, figures["id"]["idq"], figures["shift"]["idq"]]
        figures["daq"] = daq(parts if evidence.corrupted else parts[:2], evidence.settings.daq_weights)
        rows.append([_at(figures, path) for path in FIGURES])
    return np.array(rows, np.float64)  # None becomes NaN


def _qualities(evidence: Evidence, parts: Parts | None, weights: Array) -> list[dict[str, float | None]]:
    if parts is None:
        return [dict.fromkeys(("idq", "laece", "lrp"))] * weights.shape[1]
    sums = _statistics(parts, evidence.objects, weights, evidence.settings.bins)
    return [quality(each, evidence.settings) for each in sums]


def _at(figures: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = figures
    for key in path:
        value = value[key]
    return value


# intervals ---------------------------------------------------------------------------------------------------------


def interval(values: Array, figure: float) -> list[float] | None:
    """The percentiles of the resamples in which a figure is defined, moved so that their mean is the figure.

    None where it never is defined. LaECE is a sum of absolute values, to which the noise of resampling adds: the
    percentiles themselves would lie above it.
    """
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    tail = 50 * (1 - LEVEL)
    return [float(each) for each in np.percentile(defined, [tail, 100 - tail]) - defined.mean() + figure]


def rank_intervals(of_detectors: Mapping[str, Array]) -> dict[str, list[int] | None]:
    """Of each detector's rank by DAQ among these, resample by resample: 1 is best, equals share the better rank."""
    values = np.array([each[:, FIGURES.index(("daq",))] for each in of_detectors.values()])
    out: dict[str, list[int] | None] = {}
    for name, mine in zip(of_detectors, values, strict=True):
        ranks = (1 + (values > mine).sum(axis=0))[~np.isnan(mine)]
        tail = 50 * (1 - LEVEL)
        ends = np.percentile(ranks, [tail, 100 - tail], method="inverted_cdf") if len(ranks) else None
        out[name] = None if ends is None else [int(each) for each in ends]
    return out


def intervals(figures: Mapping[str, Any], of_replicates: Array) -> dict[str, Any]:
    """The intervals of FIGURES, nested as the figures are; a figure that is undefined has none."""
    out: dict[str, Any] = {}
    for path, values in zip(FIGURES, of_replicates.T, strict=True):
        place = out
        for key in path[:-1]:
            place = place.setdefault(key, {})
        figure = _at(figures, path)
        ends = None if figure is None else interval(values, figure)
        place[path[-1]] = None if ends is None else [min(max(each, 0.0), 1.0) for each in ends]  # all are shares
    return out
