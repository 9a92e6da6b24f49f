"""Result tables for the terminal, with the columns of the paper's main table, in percent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from saod_ray.report.settings import unusual_settings
from saod_ray.score.metrics import MAIN, Metric, custom_columns
from saod_ray.score.results import BenchmarkResult, DetectorResult, Intervals

IntervalPlace = Literal["beside", "below", "stacked"]
GAP = 1  # characters between columns
EDGES = 1  # characters left and right of the table
SHORT_NAME = 16  # characters; longer names are folded before anything is left out
# what a narrow terminal leaves out first: DAQ does not use AP, and IDQ combines LRP and LaECE
DISPENSABLE = ("accuracy.val.ap", "shift.lrp", "shift.laece", "id.lrp", "id.laece")


def main_metrics(detectors: Mapping[str, DetectorResult]) -> tuple[Metric, ...]:
    """The metrics of the main table, followed by the custom ones of any of the detectors."""
    custom = {name: metric for result in detectors.values() for name, metric in result.custom.items()}
    return (*MAIN, *custom_columns(custom))


def result_table(results: BenchmarkResult) -> ResultTable:
    """One row per detector, best DAQ first; it adapts to the width of the console that prints it."""
    detectors = results.ranked()
    ranks = ", ".join(f"{name} {rank_interval(result)}" for name, result in detectors.items())
    has_ranks = results.resampling is not None and len(detectors) > 1
    return ResultTable(_title(results), detectors, (f"rank by DAQ: {ranks}",) if has_ranks else ())


@dataclass(frozen=True)
class Layout:
    """What a table shows in a terminal: its metrics, where intervals are, and the width of the column of names."""

    metrics: tuple[Metric, ...]
    intervals: IntervalPlace
    name_width: int


@dataclass(frozen=True)
class ResultTable:
    """Detectors by their labels, in the order of the rows. The best value of each column is bold.

    Intervals are beside the values, or below them in a narrower terminal. Names are folded, never cut.
    """

    title: str
    detectors: Mapping[str, DetectorResult]
    captions: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        layout = self.layout(options.max_width)
        yield Text(self.title, "italic")
        yield self._table(layout)
        names = {metric.name for metric in layout.metrics}
        left_out = [metric.title for metric in main_metrics(self.detectors) if metric.name not in names]
        notes = [f"not shown in {options.max_width} columns: {', '.join(left_out)}"] if left_out else []
        for caption in (*notes, *self.captions):
            yield Text(caption, "dim")

    def layout(self, width: int) -> Layout:
        """The layout that shows most in `width` characters."""
        metrics = main_metrics(self.detectors)
        longest = max(map(cell_len, ("detector", *self.detectors)))
        choices: list[tuple[tuple[Metric, ...], IntervalPlace]] = [(metrics, "beside"), (metrics, "below")]
        choices += [(selected, "stacked") for selected in _ever_fewer(metrics)]
        for selected, place in choices:
            space = width - 2 * EDGES - sum(self._column_width(metric, place) + GAP for metric in selected)
            if space >= min(longest, SHORT_NAME):
                break
        return Layout(selected, place, max(min(longest, space), 1))

    def _column_width(self, metric: Metric, place: IntervalPlace) -> int:
        return max(map(cell_len, self._column(metric, place)[0]))

    def _column(self, metric: Metric, place: IntervalPlace) -> list[list[str]]:
        """The header and the cells of a metric as lines of equal width, in which the values are aligned."""
        cells = [_lines(metric, result, place) for result in self.detectors.values()]
        if place == "beside":
            width = max(cell_len("".join(ends)) for _, *ends in cells)
            cells = [[f"{value} {''.join(ends):<{width}}" if width else value] for value, *ends in cells]
        lines = [[f"{metric.title}{metric.arrow}"], *cells]
        width = max(cell_len(line) for cell in lines for line in cell)
        return [[f"{line:>{width}}" for line in cell] for cell in lines]

    def _table(self, layout: Layout) -> Table:
        table = Table(pad_edge=False, box=SIMPLE_HEAD, padding=0)
        table.add_column("detector", no_wrap=True, width=layout.name_width)
        columns = []
        for metric in layout.metrics:
            (header,), *cells = self._column(metric, layout.intervals)
            table.add_column(Text(header), no_wrap=True, width=cell_len(header))
            best = metric.best(list(self.detectors.values()))
            values = map(metric.value, self.detectors.values())
            is_best = [value is not None and value == best for value in values]
            columns.append([_text(lines, is_best=flag) for lines, flag in zip(cells, is_best, strict=True)])
        for name, *texts in zip(self.detectors, *columns, strict=True):
            table.add_row(Text("\n".join(fold_name(name, layout.name_width))), *texts)
        return table


def _text(lines: list[str], *, is_best: bool) -> Text:
    """A cell: the value, which may be bold, and its interval, which is dim."""
    text = Text("\n".join(lines), "dim")
    end = re.match(r" *\S+", text.plain)
    text.stylize("not dim bold" if is_best else "not dim", 0, end.end() if end else 0)
    return text


def _ever_fewer(metrics: tuple[Metric, ...]) -> Iterator[tuple[Metric, ...]]:
    """All metrics, then without the most dispensable one, and so on; the first one always remains."""
    yield metrics
    rest = [metric for metric in reversed(metrics[1:]) if metric.name not in DISPENSABLE]
    order = [*(name for name in DISPENSABLE), *(metric.name for metric in rest)]
    for count in range(1, len(order) + 1):
        yield tuple(metric for metric in metrics if metric.name not in order[:count])


def _lines(metric: Metric, result: DetectorResult, place: IntervalPlace) -> list[str]:
    """The lines of a cell: the value, and its interval if it has one."""
    value, ends = format_value(metric, metric.value(result)), metric.interval(result)
    if ends is None:
        return [value]
    low, high = (f"{100 * end:.1f}" if metric.unit == "%" else f"{end:.3g}" for end in ends)
    if place == "stacked":
        return [value, f"{low}–", high]
    return [value, f"[{low}, {high}]" if place == "beside" else f"{low}–{high}"]


def fold_name(name: str, width: int) -> list[str]:
    """The lines of a name. It is folded after punctuation, and inside a word only if the word is too long for a line.

    >>> fold_name("cascade-mask-rcnn", 13), fold_name("cascade", 4)
    (['cascade-mask-', 'rcnn'], ['casc', 'ade'])
    """
    lines = [""]
    for word in re.findall(r"[^-_.+/@ ]*[-_.+/@ ]*", name):
        if cell_len(lines[-1] + word.rstrip()) <= width:
            lines[-1] += word
        else:
            lines += chop_cells(word, width)
    return [line.rstrip() for line in lines if line.strip()]


def _title(results: BenchmarkResult) -> str:
    title = f"{results.use_case}, {results.conventions} conventions"
    settings, resampling = unusual_settings(results), results.resampling
    title += f", {settings}" * bool(settings) + ", in %" + ", PARTIAL" * results.is_partial
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
