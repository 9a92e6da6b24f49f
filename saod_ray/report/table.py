"""The result table for the terminal, with the columns of the paper's main table, in percent."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from saod_ray.score.metrics import MAIN, Metric, custom_columns
from saod_ray.score.results import BenchmarkResult, DetectorResult, Intervals


def table_metrics(results: BenchmarkResult) -> tuple[Metric, ...]:
    """The metrics of the main table, followed by the custom ones."""
    custom = {name: metric for result in results.detectors.values() for name, metric in result.custom.items()}
    return (*MAIN, *custom_columns(custom))


def result_table(results: BenchmarkResult) -> Table:
    """One row per detector, with the best value of each column in bold and the ends of intervals below the values."""
    table = Table(
        title=Text(_title(results), "italic"),
        title_justify="left",
        pad_edge=False,
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("detector", overflow="fold")
    metrics, detectors = table_metrics(results), results.detectors
    best = {metric.name: metric.best(list(detectors.values())) for metric in metrics}
    for metric in metrics:
        table.add_column(f"{metric.title}{metric.arrow}", justify="right", no_wrap=True)
    is_resampled = results.resampling is not None
    for name, result in detectors.items():
        cells = []
        for metric in metrics:
            value = metric.value(result)
            is_best = value is not None and value == best[metric.name]
            cells.append(Text(format_value(metric, value), "bold" if is_best else ""))
        table.add_row(Text(name), *cells)
        for end, word in enumerate(("from", "to") if is_resampled else ()):
            intervals = [(metric, metric.interval(result)) for metric in metrics]
            ends = [format_value(metric, interval[end]) if interval else "" for metric, interval in intervals]
            table.add_row(word, *ends, style="dim")
    if is_resampled and len(detectors) > 1:
        ranks = ", ".join(f"{name} {rank_interval(result)}" for name, result in detectors.items())
        table.caption, table.caption_justify = Text(f"rank by DAQ: {ranks}"), "left"
    return table


def _title(results: BenchmarkResult) -> str:
    title = f"{results.use_case}, {results.conventions} conventions, in %{', PARTIAL' if results.is_partial else ''}"
    resampling = results.resampling
    if resampling is None:
        return title
    return f"{title}, {100 * resampling.level:.0f} % intervals of {resampling.replicates:,} resamples"


def rank_interval(result: DetectorResult) -> str:
    """The interval of a detector's rank by DAQ as text."""
    ends = result.intervals.rank if isinstance(result.intervals, Intervals) else None
    return "–" if ends is None else " to ".join(map(str, ends))


def format_value(metric: Metric, value: float | None) -> str:
    """The value of a metric in its unit."""
    return format_percent(value) if metric.unit == "%" else "–" if value is None else f"{value:.4g}"


def format_percent(value: float | None) -> str:
    """A fraction in percent, with two decimals.

    >>> format_percent(0.4321), format_percent(None)
    ('43.21', '–')
    """
    return "–" if value is None else f"{100 * value:.2f}"
