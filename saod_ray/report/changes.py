"""What changed between two scorings of a store, as one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.errors import join_truncated
from saod_ray.report.settings import setting_texts
from saod_ray.report.table import format_percent, main_metrics
from saod_ray.score.results import BenchmarkResult

MOST_METRICS = 3  # named in the sentence


def describe_changes(previous: BenchmarkResult, current: BenchmarkResult, place: str) -> str:
    """A sentence about settings, resamples, detectors and the metrics that changed most since the results at `place`."""
    changes = [
        *_setting_changes(previous, current),
        *_resample_change(previous, current),
        *_detector_changes(previous, current),
        *_metric_changes(previous, current),
    ]
    if not changes:
        return f"Nothing changed since the last results in {place}."
    return f"Changed since the last results in {place}: {'; '.join(changes)}."


def _setting_changes(previous: BenchmarkResult, current: BenchmarkResult) -> Iterator[str]:
    before, after = setting_texts(previous), setting_texts(current)
    for name, value in after.items():
        if before[name] != value:
            yield f"{name.replace('_', ' ')} {before[name]} → {value}"
    if previous.is_partial != current.is_partial:
        yield "now PARTIAL" if current.is_partial else "now complete"


def _resample_change(previous: BenchmarkResult, current: BenchmarkResult) -> Iterator[str]:
    before, after = previous.resampling, current.resampling
    counts = [0 if record is None else record.replicates for record in (before, after)]
    if counts[0] != counts[1]:
        yield f"{counts[0]:,} → {counts[1]:,} resamples"
    if before is not None and after is not None and before.seed != after.seed:
        yield f"seed of the resamples {before.seed} → {after.seed}"


def _detector_changes(previous: BenchmarkResult, current: BenchmarkResult) -> Iterator[str]:
    added = sorted(set(current.detectors) - set(previous.detectors))
    dropped = sorted(set(previous.detectors) - set(current.detectors))
    for word, names in (("added", added), ("dropped", dropped)):
        if names:
            yield f"{word} {join_truncated(names)}"


def _metric_changes(previous: BenchmarkResult, current: BenchmarkResult) -> Iterator[str]:
    """The metrics in percent that changed most; a value that became defined or undefined comes first."""
    shared = [name for name in current.ranked() if name in previous.detectors]
    differing: list[tuple[float, str]] = []
    for metric in main_metrics(current.detectors):
        for name in shared if metric.unit == "%" else ():
            before, after = metric.value(previous[name]), metric.value(current[name])
            if before != after:
                size = float("inf") if before is None or after is None else abs(after - before)
                text = f"{metric.title} of {name} {format_percent(before)} → {format_percent(after)}"
                differing.append((size, text))
    differing.sort(key=lambda change: -change[0])
    if differing:
        more = len(differing) - MOST_METRICS
        texts = ", ".join(text for _, text in differing[:MOST_METRICS])
        yield f"values: {texts}" + (f" and {more} smaller changes" if more > 0 else "")
