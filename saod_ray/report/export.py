"""The report's figures as SVG and PDF files and its tables as LaTeX and CSV, for use in a publication."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence

import vl_convert

from saod_ray.report.cells import Cell, Sheet
from saod_ray.report.charts import IS_CHOSEN, Choice
from saod_ray.report.data import ReportData
from saod_ray.report.figures import Figure, figures, render_svg

_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "–": "--", "₀": "$_0$",
}  # fmt: skip


def figure_files(report_data: ReportData, extra: dict[str, Figure] | None = None) -> Iterator[tuple[str, bytes]]:
    """The file name and content of every chart of the report, and of the `extra` ones with other names.

    A chart of the selected detector is rendered once per detector.
    """
    choices = [Choice(name, result.image_threshold) for name, result in report_data.results.ranked().items()]
    for figure in {**(extra or {}), **figures(report_data)}.values():
        yield from chart_files(figure, choices)


def chart_files(figure: Figure, choices: Sequence[Choice]) -> Iterator[tuple[str, bytes]]:
    """The file name and content of a chart as SVG and PDF; once per choice if it shows the selected detector."""
    for suffix, svg in _svgs(figure, choices):
        yield f"{figure.name}{suffix}.svg", svg.encode()
        yield f"{figure.name}{suffix}.pdf", vl_convert.svg_to_pdf(svg)


def _svgs(figure: Figure, choices: Sequence[Choice]) -> Iterator[tuple[str, str]]:
    if IS_CHOSEN not in json.dumps(figure.spec):
        yield "", figure.svg
        return
    for choice in choices:
        values = {"detector": choice.detector, "threshold": choice.threshold}
        params = [{**param, "value": values.get(param["name"], param["value"])} for param in figure.spec["params"]]
        yield f"-{choice.detector}", render_svg(figure.name, {**figure.spec, "params": params})


def table_files(sheets: Iterable[Sheet]) -> Iterator[tuple[str, bytes]]:
    """The file name and LaTeX source of every table that has numbers."""
    for sheet in sheets:
        if any(cell.is_number for row in sheet.rows for cell in row):
            yield f"{sheet.name}.tex", latex(sheet).encode()


def comma_separated(sheet: Sheet) -> str:
    """A CSV table. Numbers have full precision; undefined values are empty."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(_plain(header.title.removesuffix(" ↑").removesuffix(" ↓")) for header in sheet.headers)
    writer.writerows([_plain(cell.value) for cell in row] for row in sheet.rows)
    return sink.getvalue()


def _plain(value: object) -> object:
    """A value that no spreadsheet interprets as a formula.

    >>> _plain("=1+1"), _plain("-x"), _plain(-0.5), _plain(None)
    ("'=1+1", "'-x", -0.5, '')
    """
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def latex(sheet: Sheet) -> str:
    """A booktabs table, the best values in bold."""
    alignment = "".join("r" if header.is_number else "l" for header in sheet.headers)
    lines = [_line(_escape(header.title) for header in sheet.headers), r"  \midrule"]
    lines += [_line(map(_cell, row)) for row in sheet.rows]
    begin = [f"% {_escape(sheet.caption)}", rf"\begin{{tabular}}{{{alignment}}}", r"  \toprule"]
    return "\n".join([*begin, *lines, r"  \bottomrule", r"\end{tabular}", ""])


def _line(cells: Iterable[str]) -> str:
    return f"  {' & '.join(cells)} \\\\"


def _cell(cell: Cell) -> str:
    text = _escape(cell.text)
    return rf"\textbf{{{text}}}" if cell.is_best else text


def _escape(text: str) -> str:
    r"""Text with LaTeX's special characters escaped.

    >>> print(_escape("IDQ_T ↑ 5 %"))
    IDQ\_T $\uparrow$ 5 \%
    """
    return re.sub("[" + re.escape("".join(_TEX)) + "]", lambda mark: _TEX[mark[0]], " ".join(text.split()))
