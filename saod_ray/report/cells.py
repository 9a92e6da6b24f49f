"""Tables as data: what a template lays out, and what "copy as LaTeX" and "download CSV" read back from the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from saod_ray.score.metrics import Metric
from saod_ray.score.results import DetectorResult

ABSENT = "–"


@dataclass(frozen=True)
class Cell:
    """What is shown, the value behind it, and remarks below it, a line each."""

    text: str
    value: float | str | None = None
    best: bool = False
    notes: tuple[str, ...] = ()
    is_head: bool = False
    is_number: bool = False


@dataclass(frozen=True)
class Head:
    """A column's title and a sentence that explains it."""

    title: str
    about: str = ""
    is_number: bool = True


@dataclass(frozen=True)
class Sheet:
    """A table of the page; `name` is unique in it."""

    name: str
    caption: str
    heads: list[Head]
    rows: list[list[Cell]] = field(default_factory=list)


def words(text: object, is_head: bool = False) -> Cell:
    """A cell of text."""
    return Cell(str(text), str(text), is_head=is_head)


def count(value: int | None) -> Cell:
    """A whole number."""
    return Cell(ABSENT if value is None else f"{value:,}", value, is_number=True)


def percent(value: float | None, best: bool = False, notes: tuple[str, ...] = ()) -> Cell:
    """A fraction shown in percent; the value keeps its full precision.

    >>> percent(0.12345).text, percent(None).text
    ('12.35', '–')
    """
    return Cell(ABSENT if value is None else f"{100 * value:.2f}", value, best, notes, is_number=True)


def number(value: float | None, digits: int = 4) -> Cell:
    """A number that is no share."""
    return Cell(ABSENT if value is None else f"{value:.{digits}g}", value, is_number=True)


def metric_cell(metric: Metric, value: float | None) -> Cell:
    """A metric's value in its unit."""
    return percent(value) if metric.unit == "%" else number(value)


def metric_sheet(
    name: str,
    caption: str,
    metrics: Sequence[Metric],
    detectors: Mapping[str, DetectorResult],
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> Sheet:
    """One row per detector, one column per metric, the best in bold, the paper's value below where there is one.

    `paper` has the paper's values in percent, by detector and name of the metric.
    """
    heads = [Head("detector", is_number=False)]
    heads += [Head(f"{metric.title} {metric.arrow}") for metric in metrics]
    best = {metric.name: metric.best(list(detectors.values())) for metric in metrics}
    rows = []
    for detector, result in detectors.items():
        row = [words(detector, is_head=True)]
        for metric in metrics:
            value = metric.value(result)
            notes = beside_paper(value, (paper or {}).get(detector, {}).get(metric.name))
            is_best = value is not None and value == best[metric.name]
            row.append(replace(metric_cell(metric, value), best=is_best, notes=notes))
        rows.append(row)
    return Sheet(name, caption, heads, rows)


def beside_paper(value: float | None, printed: float | None) -> tuple[str, ...]:
    """The paper's value (in percent) and how far this one is from it.

    >>> beside_paper(0.412, 41.4)
    ('paper 41.4 (-0.2)',)
    """
    if value is None or printed is None:
        return ()
    return (f"paper {printed:.1f} ({100 * value - printed:+.1f})",)
