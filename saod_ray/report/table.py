"""The result table in the columns of the paper's main table, in percent."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from saod_ray.score.metrics import MAIN, Metric, custom_columns
from saod_ray.score.results import BenchmarkResult, DetectorResult, Intervals


def columns(results: BenchmarkResult) -> tuple[Metric, ...]:
    """The main table's metrics, then the custom ones."""
    custom = {name: metric for result in results.detectors.values() for name, metric in result.custom.items()}
    return (*MAIN, *custom_columns(custom))


def result_table(results: BenchmarkResult) -> Table:
    """One row per detector, the best of each column in bold; below a value both ends of its interval, if it has one."""
    table = Table(
        title=Text(_title(results), "italic"),
        title_justify="left",
        pad_edge=False,
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("detector", overflow="fold")
    metrics, detectors = columns(results), results.detectors
    best = {metric.name: metric.best(list(detectors.values())) for metric in metrics}
    for metric in metrics:
        table.add_column(f"{metric.title}{metric.arrow}", justify="right", no_wrap=True)
    is_resampled = results.resampling is not None
    for name, result in detectors.items():
        cells = []
        for metric in metrics:
            value = metric.value(result)
            is_best = value is not None and value == best[metric.name]
            cells.append(Text(shown(metric, value), "bold" if is_best else ""))
        table.add_row(Text(name), *cells)
        for end, word in enumerate(("from", "to") if is_resampled else ()):
            ends = [metric.interval(result) for metric in metrics]
            pairs = zip(metrics, ends, strict=True)
            table.add_row(word, *(shown(metric, both[end]) if both else "" for metric, both in pairs), style="dim")
    if is_resampled and len(detectors) > 1:
        listed = ", ".join(f"{name} {rank(result)}" for name, result in detectors.items())
        table.caption, table.caption_justify = Text(f"rank by DAQ: {listed}"), "left"
    return table


def _title(results: BenchmarkResult) -> str:
    title = f"{results.use_case}, {results.conventions} conventions, in %{', PARTIAL' if results.is_partial else ''}"
    resampling = results.resampling
    if resampling is None:
        return title
    return f"{title}, {100 * resampling.level:.0f} % intervals of {resampling.replicates:,} resamples"


def rank(result: DetectorResult) -> str:
    """The interval of a detector's rank by DAQ."""
    ends = result.intervals.rank if isinstance(result.intervals, Intervals) else None
    return "–" if ends is None else " to ".join(map(str, ends))


def shown(metric: Metric, value: float | None) -> str:
    """A metric's value in its unit."""
    return percent(value) if metric.unit == "%" else "–" if value is None else f"{value:.4g}"


def percent(value: float | None) -> str:
    """A share as the tables show it.

    >>> percent(0.4321), percent(None)
    ('43.21', '–')
    """
    return "–" if value is None else f"{100 * value:.2f}"
