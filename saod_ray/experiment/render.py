"""Outcomes of experiments as tables, sections of a report, and figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from saod_ray.experiment import NAMES
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Outcome, Value, outcome_key, read_outcome
from saod_ray.report import export
from saod_ray.report.cells import Cell, Header, Sheet, count_cell, number_cell, paper_note, percent_cell, text_cell
from saod_ray.report.charts import IS_CHOSEN, Choice
from saod_ray.report.experiments import Experiments, Section
from saod_ray.report.figures import Figure, apply_page_style, render_svg
from saod_ray.score.benchmark import Benchmark

HEIGHT = 260  # of a chart that fills its container's width, in pixels
GAP = 2  # characters between the columns of a terminal table
PAPER = "  paper"


def sheet(outcome: Outcome) -> Sheet:
    """The outcome as a table; if the rows are detectors and nothing else, the best value of each column is bold."""
    units = {column.unit for column in outcome.columns}
    caption = f"{outcome.name} ({outcome.paper}), {outcome.use_case}{', in %' if units == {'%'} else ''}"
    headers = [Header(title, is_number=False) for title in outcome.headers]
    headers += [Header(_title(column, units)) for column in outcome.columns]
    best_values = [_best(outcome, column) for column in outcome.columns]
    paper_rows = outcome.paper_values or [[None] * len(outcome.columns)] * len(outcome.rows)
    rows = []
    for row, paper_row in zip(outcome.rows, paper_rows, strict=True):
        cells = [text_cell(header, is_header=not k) for k, header in enumerate(row.headers)]
        for column, value, paper_value, best in zip(outcome.columns, row.values, paper_row, best_values, strict=True):
            cells.append(_cell(column, value, paper_value, is_best=value is not None and value == best))
        rows.append(cells)
    return Sheet(f"experiment-{outcome.name}", caption, headers, rows)


def _title(column: Column, units: set[str]) -> str:
    unit = f", {column.unit}" if column.unit and len(units) > 1 else ""
    arrow = "" if column.higher_is_better is None else " ↑" if column.higher_is_better else " ↓"
    return f"{column.title}{unit}{arrow}"


def _best(outcome: Outcome, column: Column) -> Value:
    values = [value for value in outcome.column(column.title) if value is not None]
    if outcome.headers != ["detector"] or column.higher_is_better is None or len(values) < 2:
        return None
    return max(values) if column.higher_is_better else min(values)


def _cell(column: Column, value: Value, paper_value: Value, *, is_best: bool) -> Cell:
    if column.unit == "%":
        return percent_cell(value, is_best=is_best, notes=paper_note(value, paper_value))
    cell = count_cell(value) if isinstance(value, int) else number_cell(value)
    return replace(cell, is_best=is_best, notes=() if paper_value is None else (f"paper {paper_value:g}",))


def terminal_tables(outcome: Outcome, width: int) -> list[Table]:
    """The outcome as tables for a terminal of `width` characters.

    Columns that do not fit go into further tables, which repeat the row headers. No number is broken across lines.
    """
    content, header_count = sheet(outcome), len(outcome.headers)
    header_widths = _shortened([_width(outcome, content, k) for k in range(header_count)], width * 3 // 5)
    blocks: list[list[int]] = []
    used = width
    for number in range(header_count, len(content.headers)):
        needed = _width(outcome, content, number) + GAP
        if used + needed > width:
            blocks.append([])
            used = sum(header_widths) + GAP * header_count
        blocks[-1].append(number)
        used += needed
    return [_block(outcome, content, header_widths, block, is_first=not k) for k, block in enumerate(blocks)]


def _width(outcome: Outcome, content: Sheet, number: int) -> int:
    """The width of a column's widest text, in terminal cells."""
    texts = [content.headers[number].title, *(row[number].text for row in content.rows)]
    if outcome.paper_values:
        k = number - len(outcome.headers)
        texts += [_paper_text(row[k]) for row in outcome.paper_values] if k >= 0 else [PAPER] * (number == 0)
    return max(map(cell_len, texts))


def _shortened(widths: list[int], available: int) -> list[int]:
    """The widths, with the widest ones reduced until their sum fits."""
    shortened = list(widths)
    while sum(shortened) > max(available, len(shortened)):
        shortened[shortened.index(max(shortened))] -= 1
    return shortened


def _block(outcome: Outcome, content: Sheet, header_widths: list[int], columns: list[int], *, is_first: bool) -> Table:
    """The row headers and some columns; the paper's values have a row of their own below the computed ones."""
    title = Text(content.caption, "italic") if is_first else None
    header_count = len(header_widths)
    table = Table(title=title, title_justify="left", pad_edge=False, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for header, width in zip(content.headers, header_widths, strict=False):
        table.add_column(Text(header.title), overflow="fold", max_width=width)
    for number in columns:
        table.add_column(Text(content.headers[number].title), justify="right", no_wrap=True)
    for k, row in enumerate(content.rows):
        cells = [*row[:header_count], *(row[number] for number in columns)]
        table.add_row(*(Text(cell.text, "bold" if cell.is_best else "") for cell in cells))
        paper_row = outcome.paper_values[k] if outcome.paper_values else []
        paper_values = [paper_row[number - header_count] for number in columns] if paper_row else []
        if any(value is not None for value in paper_values):
            table.add_row(PAPER, *[""] * (header_count - 1), *map(_paper_text, paper_values), style="dim")
    return table


def _paper_text(value: Value) -> str:
    return "" if value is None else f"{value:g}"


def stored_experiments(benchmark: Benchmark, choice: Choice, detectors: Iterable[str]) -> Experiments:
    """The experiments that the benchmark's store contains, for a report on `detectors`.

    `choice` has the initial selections. An experiment is stale if its detections, its settings or its detectors differ
    from those of the report.
    """
    names = sorted(detectors)
    sections, stale = [], []
    for name in NAMES:
        outcome = read_outcome(benchmark.store, name)
        if outcome is None:
            continue
        if outcome.key == outcome_key(name, benchmark.store, benchmark.settings, names, outcome.partial):
            sections.append(section(outcome, choice))
        else:
            stale.append(name)
    return Experiments(tuple(sections), tuple(stale))


def section(outcome: Outcome, choice: Choice) -> Section:
    """The outcome as a section of the report."""
    title = f"{outcome.name}: {outcome.paper}"
    return Section(outcome.name, title, outcome.shows, sheet(outcome), figures(outcome, choice), tuple(outcome.remarks))


def figures(outcome: Outcome, choice: Choice) -> dict[str, Figure]:
    """The charts of the outcome as figures by name."""
    rendered = {}
    for name, chart in outcome.charts.items():
        has_width = "facet" in chart or "width" in chart
        caption = str(chart.get("description", outcome.name))
        spec = apply_page_style(chart, choice, None if has_width else HEIGHT)
        rendered[name] = Figure(name, caption, spec, render_svg(name, spec))
    return rendered


def figure_files(outcome: Outcome, context: ExperimentContext) -> Iterator[tuple[str, bytes]]:
    """The file name and content of the outcome's charts as SVG and PDF.

    A chart of the selected detector is rendered once per detector.
    """
    has_choice = any(IS_CHOSEN in str(chart) for chart in outcome.charts.values())
    detectors = list(dict.fromkeys(row.headers[0] for row in outcome.rows))
    choices = [Choice(name, _threshold(context, name)) for name in (detectors if has_choice else detectors[:1])]
    for figure in figures(outcome, choices[0]).values():
        yield from export.chart_files(figure, choices)


def _threshold(context: ExperimentContext, detector: str) -> float | None:
    """The image threshold u, or None if the store lacks the splits to fit it on; no chart of such detectors shows u."""
    can_fit = all(context.has_split(detector, split) for split in context.benchmark.fit_splits())
    return context.self_aware(detector).image_threshold if can_fit else None
