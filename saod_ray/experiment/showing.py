"""Outcomes as tables, sections of a report, figures and files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from saod_ray.experiment import NAMES
from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Outcome, Value, key_of, read
from saod_ray.report import export
from saod_ray.report.cells import Cell, Head, Sheet, beside_paper, count, number, percent, words
from saod_ray.report.charts import IS_CHOSEN
from saod_ray.report.experiments import Experiments, Section
from saod_ray.report.figures import Figure, finished, picture
from saod_ray.score.benchmark import Benchmark

HEIGHT = 260  # of a chart that takes the width of its place


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
    cell = count(value) if isinstance(value, int) else number(value)
    return replace(cell, best=is_best, notes=() if printed is None else (f"paper {printed:g}",))


def terminal(outcome: Outcome) -> Table:
    """The table as a terminal shows it, the paper's values in a row of their own below those they stand beside."""
    made = sheet(outcome)
    table = Table(title=Text(made.caption, "italic"), title_justify="left", pad_edge=False, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))  # fmt: skip
    for head in made.heads:
        table.add_column(Text(head.title), justify="right" if head.is_number else "left", no_wrap=True)
    for k, row in enumerate(made.rows):
        table.add_row(*(Text(cell.text, "bold" if cell.best else "") for cell in row))
        beside = outcome.printed[k] if outcome.printed else []
        if any(value is not None for value in beside):
            blanks = [""] * (len(outcome.heads) - 1)
            table.add_row("  paper", *blanks, *("" if v is None else f"{v:g}" for v in beside), style="dim")
    return table


def stored(benchmark: Benchmark, start: dict[str, Any]) -> Experiments:
    """What the benchmark's store holds of experiments, for its report; `start` is what is chosen when it opens."""
    fresh, stale = [], []
    for name in NAMES:
        outcome = read(benchmark.store, name)
        if outcome is None:
            continue
        key = key_of(name, benchmark.store, benchmark.settings, outcome.detectors, outcome.partial)
        if outcome.key == key:
            fresh.append(section(outcome, start))
        else:
            stale.append(name)
    return Experiments(tuple(fresh), tuple(stale))


def section(outcome: Outcome, start: dict[str, Any]) -> Section:
    """The outcome as the report shows it."""
    title = f"{outcome.name}: {outcome.paper}"
    return Section(outcome.name, title, outcome.shows, sheet(outcome), figures(outcome, start), tuple(outcome.remarks))


def figures(outcome: Outcome, start: dict[str, Any]) -> dict[str, Figure]:
    """The outcome's charts, drawn."""
    out = {}
    for name, spec in outcome.charts.items():
        fixed = "facet" in spec or "width" in spec
        caption = str(spec.get("description", outcome.name))
        whole = finished(spec, start, None if fixed else HEIGHT)
        out[name] = Figure(name, caption, whole, picture(name, whole))
    return out


def figure_files(outcome: Outcome, desk: Desk) -> Iterator[tuple[str, bytes]]:
    """The outcome's charts as SVG and PDF by file name; one of a single detector is drawn for each of them."""
    is_chosen = any(IS_CHOSEN in str(spec) for spec in outcome.charts.values())
    choices = [
        {"detector": name, "chosen": "", "figure": "lrp", "threshold": desk.aware(name).image_threshold}
        for name in (outcome.detectors if is_chosen else outcome.detectors[:1])
    ]
    for each in figures(outcome, choices[0]).values():
        yield from export.files_of(each, choices)
