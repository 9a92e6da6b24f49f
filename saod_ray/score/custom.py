"""Custom metrics of a detector: computed on ID and on corrupted images, and resampled if they are per image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import polars as pl

from saod_ray.errors import SaodError, join_truncated
from saod_ray.score import bootstrap
from saod_ray.score.benchmark import Benchmark, ScoredDetector
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.metrics import CustomMetric, finite
from saod_ray.score.results import Intervals, MetricResult, Number, OodIntervals, QualityIntervals
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.tables import MatchFrames
from saod_ray.splits import SplitName

Array = np.ndarray
PARTS = ("id", "shift")


@dataclass(frozen=True)
class MetricFrames:
    """The arguments of a metric: the detections that the self-aware detector keeps, and the objects that count."""

    matches: pl.DataFrame
    objects: pl.DataFrame


def with_metrics(
    benchmark: Benchmark, scored: dict[str, ScoredDetector], metrics: Sequence[CustomMetric]
) -> dict[str, ScoredDetector]:
    """Add custom metrics to results. They are never cached, because a function has no digest."""
    names = [metric.name for metric in metrics]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SaodError(f"Two metrics are called {join_truncated(map(repr, repeated))}: give each its own name.")
    if not metrics:
        return scored
    return {name: _with_metrics(benchmark, name, entry, metrics) for name, entry in scored.items()}


def _with_metrics(
    benchmark: Benchmark, detector: str, scored: ScoredDetector, metrics: Sequence[CustomMetric]
) -> ScoredDetector:
    frames = {part: _frames(benchmark, detector, scored, part) for part in PARTS}
    results, intervals = {}, {}
    for metric in metrics:
        values = {part: _value(metric, frame) for part, frame in frames.items()}
        results[metric.name] = MetricResult(
            better=metric.better,
            unit=metric.unit,
            id=values["id"][0],
            shift=values["shift"][0],
            per_class=msgspec.UNSET if values["id"][1] is None else values["id"][1],
        )
        if metric.per_image and benchmark.resamples is not None:
            ends = {part: _interval(benchmark, metric, frame, values[part][0]) for part, frame in frames.items()}
            intervals[metric.name] = ends
    result = msgspec.structs.replace(scored.result, metrics=results)
    if intervals:
        empty = Intervals(daq=None, ood=OodIntervals(), id=QualityIntervals(), shift=QualityIntervals())
        result = msgspec.structs.replace(result, intervals=msgspec.structs.replace(empty, metrics=intervals))
    return ScoredDetector(result, scored.selfaware, scored.replicates)


def _frames(benchmark: Benchmark, detector: str, scored: ScoredDetector, part: str) -> MetricFrames | None:
    """The frames of ID, or of all severities as one evaluation; None without detections."""
    store, self_aware = benchmark.store, SelfAware.from_json(scored.selfaware)
    splits = ["id"] if part == "id" else [split for split in store.splits if SplitName(split).is_shifted]
    present = [split for split in splits if store.shards(detector, split)]
    if not present:
        return None
    matches, objects = [], []
    for split in present:
        frames = MatchFrames(benchmark, detector, split, self_aware)
        counted = frames.lazy().filter(pl.col("outcome") != "dropped")
        matches.append(counted.with_columns(split=pl.lit(split)).collect())
        objects.append(frames.counted_objects().with_columns(split=pl.lit(split)))
    # the order of rows must not depend on the names of shards
    order = ("split", "image_id", "label", "score", "x1", "y1", "x2", "y2")
    return MetricFrames(pl.concat(matches, how="diagonal").sort(*order), pl.concat(objects))


def _value(metric: CustomMetric, frames: MetricFrames | None) -> tuple[Number, dict[str, Number] | None]:
    """The value of a metric, and its values per class if it has them."""
    if frames is None:
        return None, None
    value = metric(frames.matches, frames.objects)
    if not isinstance(value, pl.DataFrame):
        if metric.per_image:
            raise SaodError(
                f"The metric '{metric.name}' is declared per image: return a frame with image_id and value."
            )
        return finite(value, metric.name), None
    if metric.per_image:
        sums = _checked(metric, value, ("image_id", "value"))
        return _ratio(float(sums["value"].sum()), float(sums["weight"].sum())), None
    _checked(metric, value, ("class", "value"))
    by_class = {str(name): finite(number, metric.name) for name, number in value.select("class", "value").iter_rows()}
    defined = [number for number in by_class.values() if number is not None]
    return (sum(defined) / len(defined) if defined else None), by_class


def _checked(metric: CustomMetric, frame: pl.DataFrame, columns: tuple[str, ...]) -> pl.DataFrame:
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise SaodError(
            f"The frame of the metric '{metric.name}' lacks the column {join_truncated(missing)}: it has {join_truncated(frame.columns)}."
        )
    return frame if "weight" in frame.columns else frame.with_columns(weight=pl.lit(1.0))


def _ratio(total: float, weight: float) -> Number:
    return total / weight if weight else None


def _interval(
    benchmark: Benchmark, metric: CustomMetric, frames: MetricFrames | None, value: Number
) -> list[float] | None:
    """The interval over resamples of the ID images; corrupted copies follow their originals."""
    resamples = benchmark.resamples
    if frames is None or value is None or resamples is None:
        return None
    frame = metric(frames.matches, frames.objects)
    assert isinstance(frame, pl.DataFrame)
    sums = _checked(metric, frame, ("image_id", "value")).group_by("image_id").agg(pl.col("value", "weight").sum())
    ids = benchmark.objects["id"].image_ids
    columns = np.zeros((2, len(ids)))
    columns[:, np.searchsorted(ids, sums["image_id"].to_numpy())] = sums.select("value", "weight").to_numpy().T
    return bootstrap.interval(_replicates(resamples, columns), value)


def _replicates(resamples: Bootstrap, columns: Array) -> Array:
    """The metric of every resample; NaN if its weights add up to 0. `columns` is (2, images): values, weights."""
    draw_counts = (bootstrap.draws(resamples, "id", number, columns.shape[1]) for number in range(resamples.replicates))
    sums = np.array([columns @ counts for counts in draw_counts])
    return np.divide(sums[:, 0], sums[:, 1], out=np.full(len(sums), np.nan), where=sums[:, 1] != 0)
