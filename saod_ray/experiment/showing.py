"""Outcomes as tables, sections of a report, figures and files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from saod_ray.experiment import NAMES
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Outcome, Value, key_of, read
from saod_ray.report import export
from saod_ray.report.cells import Cell, Head, Sheet, beside_paper, count, percent, words
from saod_ray.report.cells import number as plain
from saod_ray.report.charts import IS_CHOSEN, Choice
from saod_ray.report.experiments import Experiments, Section
from saod_ray.report.figures import Figure, finished, picture
from saod_ray.report.results import read_results
from saod_ray.score.benchmark import Benchmark

HEIGHT = 260  # of a chart that takes the width of its place
GAP = 2  # characters that a column of a terminal's table takes beside its text
PAPER = "  paper"


def sheet(outcome: Outcome) -> Sheet:
    """The outcome as a table; where rows are detectors and nothing else, the best of each column is in bold."""
    units = {column.unit for column in outcome.columns}
    caption = f"{outcome.name} ({outcome.paper}), {outcome.use_case}{', in %' if units == {'%'} else ''}"
    heads = [Head(title, is_number=False) for title in outcome.heads]
    heads += [Head(_title(column, units)) for column in outcome.columns]
    best = [_best(outcome, column) for column in outcome.columns]
    printed = outcome.printed or [[None] * len(outcome.columns)] * len(outcome.rows)
    rows = []
    for row, beside in zip(outcome.rows, printed, strict=True):
        cells = [words(head, is_head=not k) for k, head in enumerate(row.heads)]
        for column, value, theirs, first in zip(outcome.columns, row.values, beside, best, strict=True):
            cells.append(_cell(column, value, theirs, value is not None and value == first))
        rows.append(cells)
    return Sheet(f"experiment-{outcome.name}", caption, heads, rows)


def _title(column: Column, units: set[str]) -> str:
    unit = f", {column.unit}" if column.unit and len(units) > 1 else ""
    arrow = "" if column.rising is None else " ↑" if column.rising else " ↓"
    return f"{column.title}{unit}{arrow}"


def _best(outcome: Outcome, column: Column) -> Value:
    values = [value for value in outcome.column(column.title) if value is not None]
    if outcome.heads != ["detector"] or column.rising is None or len(values) < 2:
        return None
    return max(values) if column.rising else min(values)


def _cell(column: Column, value: Value, printed: Value, is_best: bool) -> Cell:
    if column.unit == "%":
        return percent(value, is_best, beside_paper(value, printed))
    cell = count(value) if isinstance(value, int) else plain(value)
    return replace(cell, best=is_best, notes=() if printed is None else (f"paper {printed:g}",))


def blocks(outcome: Outcome, width: int) -> list[Table]:
    """The table as a terminal of so many characters shows it: columns go side by side as far as they fit, the others
    into further tables, which repeat the heads of the rows. No number is broken over lines."""
    made, many = sheet(outcome), len(outcome.heads)
    heads = _shortened([_width(outcome, made, k) for k in range(many)], width * 3 // 5)
    parts: list[list[int]] = []
    taken = width
    for number in range(many, len(made.heads)):
        wanted = _width(outcome, made, number) + GAP
        if taken + wanted > width:
            parts.append([])
            taken = sum(heads) + GAP * many
        parts[-1].append(number)
        taken += wanted
    return [_block(outcome, made, heads, part, is_first=not k) for k, part in enumerate(parts)]


def _width(outcome: Outcome, made: Sheet, number: int) -> int:
    texts = [made.heads[number].title, *(row[number].text for row in made.rows)]
    if outcome.printed:
        k = number - len(outcome.heads)
        texts += [_printed(row[k]) for row in outcome.printed] if k >= 0 else [PAPER] * (number == 0)
    return max(map(cell_len, texts))


def _shortened(widths: list[int], room: int) -> list[int]:
    """The widths if there is room for them, else with less and less of the widest."""
    out = list(widths)
    while sum(out) > max(room, len(out)):
        out[out.index(max(out))] -= 1
    return out


def _block(outcome: Outcome, made: Sheet, heads: list[int], columns: list[int], is_first: bool) -> Table:
    """Some columns; the paper's values have a row of their own below those they stand beside."""
    title = Text(made.caption, "italic") if is_first else None
    table = Table(title=title, title_justify="left", pad_edge=False, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head, limit in zip(made.heads, heads, strict=False):
        table.add_column(Text(head.title), overflow="fold", max_width=limit)
    for number in columns:
        table.add_column(Text(made.heads[number].title), justify="right", no_wrap=True)
    for k, row in enumerate(made.rows):
        cells = [*row[: len(heads)], *(row[number] for number in columns)]
        table.add_row(*(Text(cell.text, "bold" if cell.best else "") for cell in cells))
        beside = [outcome.printed[k][number - len(heads)] for number in columns] if outcome.printed else []
        if any(value is not None for value in beside):
            table.add_row(PAPER, *[""] * (len(heads) - 1), *map(_printed, beside), style="dim")
    return table


def _printed(value: Value) -> str:
    return "" if value is None else f"{value:g}"


def stored(benchmark: Benchmark, start: Choice) -> Experiments:
    """What the benchmark's store holds of experiments, for its report; `start` is what is chosen when it opens.

    One of other detectors than those of results.json is as stale as one of other detections.
    """
    detectors = sorted(read_results(benchmark.store).detectors)
    fresh, stale = [], []
    for name in NAMES:
        outcome = read(benchmark.store, name)
        if outcome is None:
            continue
        if outcome.key == key_of(name, benchmark.store, benchmark.settings, detectors, outcome.partial):
            fresh.append(section(outcome, start))
        else:
            stale.append(name)
    return Experiments(tuple(fresh), tuple(stale))


def section(outcome: Outcome, start: Choice) -> Section:
    """The outcome as the report shows it."""
    title = f"{outcome.name}: {outcome.paper}"
    return Section(outcome.name, title, outcome.shows, sheet(outcome), figures(outcome, start), tuple(outcome.remarks))


def figures(outcome: Outcome, start: Choice) -> dict[str, Figure]:
    """The outcome's charts, drawn."""
    out = {}
    for name, spec in outcome.charts.items():
        fixed = "facet" in spec or "width" in spec
        caption = str(spec.get("description", outcome.name))
        whole = finished(spec, start, None if fixed else HEIGHT)
        out[name] = Figure(name, caption, whole, picture(name, whole))
    return out


def figure_files(outcome: Outcome, context: ExperimentContext) -> Iterator[tuple[str, bytes]]:
    """The outcome's charts as SVG and PDF by file name; one of a single detector is drawn for each of them."""
    is_chosen = any(IS_CHOSEN in str(spec) for spec in outcome.charts.values())
    detectors = list(dict.fromkeys(row.heads[0] for row in outcome.rows))
    choices = [Choice(name, _threshold(context, name)) for name in (detectors if is_chosen else detectors[:1])]
    for each in figures(outcome, choices[0]).values():
        yield from export.files_of(each, choices)


def _threshold(context: ExperimentContext, detector: str) -> float | None:
    """u, where it can be fitted: a chart that shows it is of such detectors alone."""
    is_fit = all(context.has(detector, split) for split in context.benchmark.fit_splits())
    return context.aware(detector).image_threshold if is_fit else None
