"""The report's figures as SVG and PDF and its tables as LaTeX, for a paper of one's own."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import vl_convert

from saod_ray.report.cells import Cell, Sheet
from saod_ray.report.charts import IS_CHOSEN, Choice
from saod_ray.report.data import ReportData
from saod_ray.report.figures import Figure, figures, picture

_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "–": "--", "₀": "$_0$",
}  # fmt: skip


def figure_files(gathered: ReportData, more: dict[str, Figure] | None = None) -> Iterator[tuple[str, bytes]]:
    """Every chart (and more, unless they are of a name that is there) by file name.

    One of a single detector is drawn for each of them.
    """
    choices = [Choice(name, result.image_threshold) for name, result in gathered.results.ranked().items()]
    for figure in {**(more or {}), **figures(gathered)}.values():
        yield from files_of(figure, choices)


def files_of(figure: Figure, choices: Sequence[Choice]) -> Iterator[tuple[str, bytes]]:
    """A chart as SVG and PDF by file name; one per choice where it shows the chosen detector."""
    for suffix, svg in _drawn(figure, choices):
        yield f"{figure.name}{suffix}.svg", svg.encode()
        yield f"{figure.name}{suffix}.pdf", vl_convert.svg_to_pdf(svg)


def _drawn(figure: Figure, choices: Sequence[Choice]) -> Iterator[tuple[str, str]]:
    if IS_CHOSEN not in json.dumps(figure.spec):
        yield "", figure.svg
        return
    for choice in choices:
        values = {"detector": choice.detector, "threshold": choice.threshold}
        params = [{**param, "value": values.get(param["name"], param["value"])} for param in figure.spec["params"]]
        yield f"-{choice.detector}", picture(figure.name, {**figure.spec, "params": params})


def table_files(sheets: Iterable[Sheet]) -> Iterator[tuple[str, bytes]]:
    """The tables of numbers by file name."""
    for sheet in sheets:
        if any(cell.is_number for row in sheet.rows for cell in row):
            yield f"{sheet.name}.tex", latex(sheet).encode()


def comma_separated(sheet: Sheet) -> str:
    """A CSV table, every number at full precision and empty where it is undefined."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(_plain(head.title.removesuffix(" ↑").removesuffix(" ↓")) for head in sheet.heads)
    writer.writerows([_plain(cell.value) for cell in row] for row in sheet.rows)
    return sink.getvalue()


def _plain(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula.

    >>> _plain("=1+1"), _plain("-x"), _plain(-0.5), _plain(None)
    ("'=1+1", "'-x", -0.5, '')
    """
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def latex(sheet: Sheet) -> str:
    """A booktabs table, the best values in bold."""
    kinds = "".join("r" if head.is_number else "l" for head in sheet.heads)
    lines = [_line(_escaped(head.title) for head in sheet.heads), r"  \midrule"]
    lines += [_line(map(_cell, row)) for row in sheet.rows]
    begin = [f"% {_escaped(sheet.caption)}", rf"\begin{{tabular}}{{{kinds}}}", r"  \toprule"]
    return "\n".join([*begin, *lines, r"  \bottomrule", r"\end{tabular}", ""])


def _line(cells: Iterable[str]) -> str:
    return f"  {' & '.join(cells)} \\\\"


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    return rf"\textbf{{{text}}}" if cell.best else text


def _escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> print(_escaped("IDQ_T ↑ 5 %"))
    IDQ\_T $\uparrow$ 5 \%
    """
    return re.sub("[" + re.escape("".join(_TEX)) + "]", lambda mark: _TEX[mark[0]], " ".join(text.split()))
