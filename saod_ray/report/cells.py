"""Tables as data. The page template, the LaTeX export and the CSV export all read these types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from saod_ray.score.metrics import Metric
from saod_ray.score.results import DetectorResult

ABSENT = "–"


@dataclass(frozen=True)
class Cell:
    """The displayed text, the value at full precision, and notes that are shown below the text, one per line."""

    text: str
    value: float | str | None = None
    is_best: bool = False
    notes: tuple[str, ...] = ()
    is_header: bool = False
    is_number: bool = False


@dataclass(frozen=True)
class Header:
    """A column's title, and a sentence that explains it."""

    title: str
    description: str = ""
    is_number: bool = True


@dataclass(frozen=True)
class Sheet:
    """A table of the report; `name` is unique within the page."""

    name: str
    caption: str
    headers: list[Header]
    rows: list[list[Cell]] = field(default_factory=list)


def text_cell(text: object, *, is_header: bool = False) -> Cell:
    """A cell of text; `is_header` makes it the header of its row."""
    return Cell(str(text), str(text), is_header=is_header)


def count_cell(value: int | None) -> Cell:
    """An integer with thousands separators."""
    return Cell(ABSENT if value is None else f"{value:,}", value, is_number=True)


def percent_cell(value: float | None, *, is_best: bool = False, notes: tuple[str, ...] = ()) -> Cell:
    """A fraction displayed in percent; the value keeps its full precision.

    >>> percent_cell(0.12345).text, percent_cell(None).text
    ('12.35', '–')
    """
    return Cell(ABSENT if value is None else f"{100 * value:.2f}", value, is_best, notes, is_number=True)


def number_cell(value: float | None, digits: int = 4) -> Cell:
    """A number displayed as it is, with `digits` significant digits."""
    return Cell(ABSENT if value is None else f"{value:.{digits}g}", value, is_number=True)


def metric_cell(metric: Metric, value: float | None) -> Cell:
    """The value of a metric, displayed in the metric's unit."""
    return percent_cell(value) if metric.unit == "%" else number_cell(value)


def metric_sheet(
    name: str,
    caption: str,
    metrics: Sequence[Metric],
    detectors: Mapping[str, DetectorResult],
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> Sheet:
    """One row per detector and one column per metric; the best value of a column is bold.

    `paper` has the paper's values in percent, by detector and metric name; they are shown below the computed ones.
    """
    headers = [Header("detector", is_number=False)]
    headers += [Header(f"{metric.title} {metric.arrow}") for metric in metrics]
    best = {metric.name: metric.best(list(detectors.values())) for metric in metrics}
    rows = []
    for detector, result in detectors.items():
        row = [text_cell(detector, is_header=True)]
        for metric in metrics:
            value = metric.value(result)
            notes = paper_note(value, (paper or {}).get(detector, {}).get(metric.name))
            is_best = value is not None and value == best[metric.name]
            row.append(replace(metric_cell(metric, value), is_best=is_best, notes=notes))
        rows.append(row)
    return Sheet(name, caption, headers, rows)


def with_intervals(row: list[Cell], metrics: Sequence[Metric], result: DetectorResult) -> list[Cell]:
    """The cells of a `metric_sheet` row with the ends of their intervals as notes."""
    cells = row[:1]
    for cell, metric in zip(row[1:], metrics, strict=True):
        ends = metric.interval(result)
        scale, digits = (100, ".2f") if metric.unit == "%" else (1, ".4g")
        note = (f"[{scale * ends[0]:{digits}}, {scale * ends[1]:{digits}}]",) if ends else ()
        cells.append(replace(cell, notes=note + cell.notes))
    return cells


def paper_note(value: float | None, paper_value: float | None) -> tuple[str, ...]:
    """A note with the paper's value (in percent) and the difference of `value` (a fraction) from it.

    >>> paper_note(0.412, 41.4)
    ('paper 41.4 (-0.2)',)
    """
    if value is None or paper_value is None:
        return ()
    return (f"paper {paper_value:.1f} ({100 * value - paper_value:+.1f})",)
