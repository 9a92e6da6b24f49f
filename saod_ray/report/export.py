"""The report's figures as SVG and PDF and its tables as LaTeX, for a paper of one's own."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import vl_convert

from saod_ray.report.cells import Cell, Sheet
from saod_ray.report.charts import IS_CHOSEN
from saod_ray.report.data import Gathered
from saod_ray.report.figures import Figure, figures, picture
from saod_ray.report.sheets import ranked

_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "–": "--", "₀": "$_0$",
}  # fmt: skip


def figure_files(gathered: Gathered, more: dict[str, Figure] | None = None) -> Iterator[tuple[str, bytes]]:
    """Every chart (and more, unless they are of a name that is there) by file name.

    One of a single detector is drawn for each of them.
    """
    choices = [
        {"detector": detector, "threshold": found["image_threshold"]}
        for detector, found in ranked(gathered.results).items()
    ]
    for each in {**(more or {}), **figures(gathered)}.values():
        yield from files_of(each, choices)


def files_of(each: Figure, choices: Sequence[dict[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """A chart as SVG and PDF by file name; for each of the choices where it is of the chosen detector."""
    for suffix, svg in _drawn(each, choices):
        yield f"{each.name}{suffix}.svg", svg.encode()
        yield f"{each.name}{suffix}.pdf", vl_convert.svg_to_pdf(svg)


def _drawn(each: Figure, choices: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    if IS_CHOSEN not in json.dumps(each.spec):
        yield "", each.svg
        return
    for chosen in choices:
        params = [{**param, "value": chosen.get(param["name"], param["value"])} for param in each.spec["params"]]
        yield f"-{chosen['detector']}", picture(each.name, {**each.spec, "params": params})


def table_files(sheets: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The tables of figures by file name."""
    for each in sheets.values():
        for sheet in each.values() if isinstance(each, dict) else [each]:
            if any(cell.is_number for row in sheet.rows for cell in row):
                yield f"{sheet.name}.tex", latex(sheet).encode()


def comma_separated(sheet: Sheet) -> str:
    """A CSV table, every figure at full precision and empty where it is undefined."""
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
    """A booktabs table, the best figures in bold."""
    kinds = "".join("r" if head.is_number else "l" for head in sheet.heads)
    lines = [_line(_escaped(head.title) for head in sheet.heads), r"  \midrule"]
    lines += [_line(map(_cell, row)) for row in sheet.rows]
    begin = [f"% {_escaped(sheet.caption)}", rf"\begin{{tabular}}{{{kinds}}}", r"  \toprule"]
    return "\n".join([*begin, *lines, r"  \bottomrule", r"\end{tabular}", ""])


def _line(cells: Any) -> str:
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
