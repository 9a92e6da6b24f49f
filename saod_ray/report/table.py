"""The result table in the columns of the paper's main table, in percent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text


class Column(NamedTuple):
    """A figure, where it is in results.json, and whether more of it is better."""

    title: str
    path: tuple[str, ...]
    rising: bool


COLUMNS = (
    Column("DAQ", ("daq",), True),
    Column("BA", ("ood", "ba"), True),
    Column("IDQ", ("id", "idq"), True),
    Column("LaECE", ("id", "laece"), False),
    Column("LRP", ("id", "lrp"), False),
    Column("IDQ_T", ("shift", "idq"), True),
    Column("LaECE_T", ("shift", "laece"), False),
    Column("LRP_T", ("shift", "lrp"), False),
    Column("AP", ("accuracy", "val", "ap"), True),
)


def figure(figures: dict[str, Any], path: tuple[str, ...]) -> float | None:
    """Look a figure up; None where it is not defined.

    >>> figure({"id": {"lrp": 0.7}}, ("id", "lrp"))
    0.7
    """
    value: Any = figures
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, float) else None


def result_table(results: dict[str, Any]) -> Table:
    """One row a detector, the best of each column in bold; below a figure the ends of its interval, if it has one."""
    detectors: dict[str, Any] = results["detectors"]
    title = f"{results['use_case']}, {results['conventions']} conventions, in %"
    title += ", PARTIAL" if results.get("partial") else ""
    resampled = "bootstrap" in results
    if resampled:
        made = results["bootstrap"]
        title += f", {100 * made['level']:.0f} % intervals of {made['replicates']:,} resamples"
    table = Table(
        title=Text(title, "italic"), title_justify="left", pad_edge=False, box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("detector", overflow="fold")
    best: dict[str, float] = {}
    for column in COLUMNS:
        table.add_column(f"{column.title}{'↑' if column.rising else '↓'}", justify="right", no_wrap=True)
        values = [value for each in detectors.values() if (value := figure(each, column.path)) is not None]
        pick: Callable[[list[float]], float] = max if column.rising else min
        if len(detectors) > 1 and values:
            best[column.title] = pick(values)
    for name, each in detectors.items():
        mine = {column.title: figure(each, column.path) for column in COLUMNS}
        cells = [
            Text(percent(value), "bold" if value is not None and value == best.get(title) else "")
            for title, value in mine.items()
        ]
        table.add_row(Text(name), *cells)
        for end, word in enumerate(("from", "to") if resampled else ()):
            ends = [_end(each["intervals"], column.path, end) for column in COLUMNS]
            table.add_row(word, *("" if value is None else percent(value) for value in ends), style="dim")
    if resampled and len(detectors) > 1:
        ranks = [(name, each["intervals"]["rank"]) for name, each in detectors.items()]
        listed = ", ".join(f"{name} {'–' if rank is None else ' to '.join(map(str, rank))}" for name, rank in ranks)
        table.caption, table.caption_justify = Text(f"rank by DAQ: {listed}"), "left"
    return table


def percent(value: float | None) -> str:
    """A share as the tables show it.

    >>> percent(0.4321), percent(None)
    ('43.21', '–')
    """
    return "–" if value is None else f"{100 * value:.2f}"


def _end(intervals: dict[str, Any], path: tuple[str, ...], end: int) -> float | None:
    value: Any = intervals
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value[end] if value else None
