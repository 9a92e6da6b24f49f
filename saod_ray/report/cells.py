"""Tables as data: what a template lays out, and what "copy as LaTeX" and "download CSV" read back from the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from saod_ray.report.table import Column, figure

ABSENT = "–"


@dataclass(frozen=True)
class Cell:
    """What is shown, the value behind it, and remarks below it, a line each."""

    text: str
    value: Any = None
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


def best_of(detectors: dict[str, Any], column: Column) -> float | None:
    """The best value of a column, where there are several to choose from."""
    values = [value for each in detectors.values() if (value := figure(each, column.path)) is not None]
    if len(detectors) < 2 or not values:
        return None
    return max(values) if column.rising else min(values)


def figure_sheet(
    name: str, caption: str, columns: Sequence[Column], detectors: dict[str, Any], paper: dict[str, Any] | None = None
) -> Sheet:
    """A row a detector, a column a figure of results.json, the best in bold, the paper's figure below where there is one."""
    heads = [Head("detector", is_number=False)]
    heads += [Head(f"{column.title} {'↑' if column.rising else '↓'}") for column in columns]
    best = {column.title: best_of(detectors, column) for column in columns}
    rows = []
    for detector, figures in detectors.items():
        row = [words(detector, is_head=True)]
        for column in columns:
            value = figure(figures, column.path)
            notes = beside_paper(value, figure((paper or {}).get(detector, {}), column.path))
            row.append(percent(value, value is not None and value == best[column.title], notes))
        rows.append(row)
    return Sheet(name, caption, heads, rows)


def beside_paper(value: float | None, printed: float | None) -> tuple[str, ...]:
    """The paper's figure (in percent) and how far this one is from it.

    >>> beside_paper(0.412, 41.4)
    ('paper 41.4 (-0.2)',)
    """
    if value is None or printed is None:
        return ()
    return (f"paper {printed:.1f} ({100 * value - printed:+.1f})",)
