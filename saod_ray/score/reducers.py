"""Sums over matched detections, in polars, for LRP, LaECE and reliability diagrams.

A frame of matches has one row per detection: `image` (a position), `label`, `score`, `calibrated`, `outcome`, `iou` and
`object`. Reducing it gives a small frame with one row per class and bin. Such partial results merge by concatenating
and summing, whether they come from one split, from its shards or from a cache.

Scores and IoUs are summed as integers, in units of 2^-52. Integer addition is associative: neither the order of rows, nor
the cut into shards, nor the number of threads changes a single bit. The sums have 128 bits and cannot overflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from saod_ray.score.matching import FP, TP, Matches
from saod_ray.score.statistics import Statistics
from saod_ray.store.frames import frame_over

Array = np.ndarray
UNIT = 2.0**52  # units per 1.0
KEYS = ("label", "bin")
SUMS = ("detections", "tp", "score", "iou", "error")


@dataclass(frozen=True)
class BinRule:
    """Assigns scores to `count` equal bins of [0, 1].

    Bins are [k/count, (k+1)/count); `last_closed` adds 1.0 to the last one. With `lower_open` they are (k/count,
    (k+1)/count], and 0 is in the first. A score in no bin (NaN, or 1.0 if the last bin is open) gets the number `count`.
    """

    count: int
    last_closed: bool = False
    lower_open: bool = False

    def number(self, score: pl.Expr) -> pl.Expr:
        """The bin of each score as an expression; edges are compared exactly, as k/count in float64."""
        floor = (score * self.count).floor()
        low, high = floor / self.count, (floor + 1) / self.count
        if self.lower_open:
            number = floor - (score <= low).cast(pl.Float64) + (score > high).cast(pl.Float64)
            number = number.clip(lower_bound=0)
        else:
            number = floor - (score < low).cast(pl.Float64) + (score >= high).cast(pl.Float64)
        if self.last_closed:
            number = pl.when(score == 1.0).then(self.count - 1).otherwise(number)
        outside = score.is_nan() | (number < 0) | (number > self.count)
        return pl.when(outside).then(self.count).otherwise(number).cast(pl.Int16)


@dataclass(frozen=True)
class ClassSums:
    """A partial result: sums per class and bin, and the number of non-crowd objects per class."""

    frame: pl.DataFrame
    objects: Array
    rule: BinRule

    def __add__(self, other: ClassSums) -> ClassSums:
        return merge_sums([self, other])

    def statistics(self) -> Statistics:
        """The sums as float64 arrays by class, and by class and bin."""
        shape = (len(self.objects), self.rule.count + 1)
        at = self.frame["label"].to_numpy(), self.frame["bin"].to_numpy()
        dense = {}
        for name in SUMS:
            column = self.frame[name]
            is_count = column.dtype == pl.Int64
            values = column.to_numpy() if is_count else column.cast(pl.Float64).to_numpy() / UNIT
            dense[name] = np.zeros(shape, np.int64 if is_count else np.float64)
            dense[name][at] = values
        tp = dense["tp"].sum(axis=1)
        per_class = {name: self._per_class(name) for name in ("iou", "error")}
        return Statistics(
            objects=self.objects,
            tp=tp,
            fp=dense["detections"].sum(axis=1) - tp,
            iou=per_class["iou"],
            error=per_class["error"],
            bin_count=dense["detections"],
            bin_score=dense["score"],
            bin_iou=dense["iou"],
        )

    def _per_class(self, name: str) -> Array:
        """Sums over the bins of a class, added as integers before they are rounded to float64."""
        sums = self.frame.group_by("label").agg(pl.col(name).sum().cast(pl.Float64))
        values = np.zeros(len(self.objects))
        values[sums["label"].to_numpy()] = sums[name].to_numpy() / UNIT
        return values


def merge_sums(partials: Sequence[ClassSums]) -> ClassSums:
    """Concatenate partial results and sum them; their order does not matter."""
    frame = pl.concat([partial.frame for partial in partials]).group_by(*KEYS).agg(pl.col(*SUMS).sum())
    objects = np.sum([partial.objects for partial in partials], axis=0)
    return ClassSums(frame, objects, partials[0].rule)


def match_frame(label: Array, calibrated: Array, matches: Matches, **extra_columns: Array) -> pl.DataFrame:
    """A frame with one row per detection over these arrays, without a copy."""
    columns = {"label": label, "calibrated": calibrated, "outcome": matches.state, "iou": matches.iou}
    return frame_over({**columns, "object": matches.object, **extra_columns})


def class_sums(matches: pl.DataFrame, objects: Array, rule: BinRule) -> ClassSums:
    """Reduce a frame of matches; `objects` is the number of non-crowd objects per class."""
    return ClassSums(_reduce(matches.lazy(), rule, KEYS), objects, rule)


def class_sums_by(matches: pl.DataFrame, group: str, objects: Sequence[Array], rule: BinRule) -> list[ClassSums]:
    """One partial result per group; the column `group` has its number, and rows with a negative number are ignored.

    `objects` has the number of non-crowd objects per class of each group.
    """
    frame = _reduce(matches.lazy().filter(pl.col(group) >= 0), rule, (group, *KEYS))
    parts = frame.partition_by(group, as_dict=True, include_key=False)
    empty = frame.clear().drop(group)
    return [ClassSums(parts.get((k,), empty), counts, rule) for k, counts in enumerate(objects)]


def _reduce(matches: pl.LazyFrame, rule: BinRule, keys: Sequence[str]) -> pl.DataFrame:
    """Sum over the TPs and FPs of each group. NaN scores count as 0 in sums of scores, which are used inside bins only."""
    score, is_tp = pl.col("calibrated"), pl.col("outcome") == TP
    columns = [pl.col(key) for key in keys if key != "bin"]
    return (
        matches.filter(is_tp | (pl.col("outcome") == FP))
        .select(
            *columns,
            bin=rule.number(score),
            tp=is_tp.cast(pl.Int64),
            score=_units(score),
            iou=_units(pl.col("iou")),
            error=_units((score - pl.col("iou")).abs()),
        )
        .group_by(*keys)
        .agg(
            pl.len().cast(pl.Int64).alias("detections"),
            pl.col("tp").sum(),
            pl.col("score", "iou", "error").cast(pl.Int128).sum(),
        )
        .collect()
    )


def _units(value: pl.Expr) -> pl.Expr:
    return (value * UNIT).round().fill_nan(0.0).cast(pl.Int64)
