"""A leaderboard as one self-contained HTML file that looks like a report."""

from __future__ import annotations

from dataclasses import replace

from saod_ray.errors import SaodError
from saod_ray.report.cells import Header, Sheet, metric_sheet, text_cell, with_intervals
from saod_ray.report.leaderboard import Leaderboard, provenance_facts


def leaderboard_page(leaderboard: Leaderboard) -> bytes:
    """The page; the same bytes for the same results. Raises SaodError if a package is missing."""
    try:
        from saod_ray.report.rendering import render_page
    except ModuleNotFoundError as error:
        message = f"A leaderboard page needs {error.name}: install it with `pip install 'saod-ray[report]'`."
        raise SaodError(message) from error
    return render_page(
        "leaderboard.html.j2",
        leaderboard=leaderboard,
        table=results_sheet(leaderboard),
        provenance=provenance_sheet(leaderboard),
    )


def results_sheet(leaderboard: Leaderboard) -> Sheet:
    """The metrics of every row, with their intervals."""
    metrics = leaderboard.metrics
    sheet = metric_sheet("leaderboard", leaderboard.title, metrics, leaderboard.results)
    rows = []
    for row, cells in zip(leaderboard.rows, sheet.rows, strict=True):
        name = replace(cells[0], text=row.detector, value=row.detector)
        rows.append([name, text_cell(row.source), *with_intervals(cells, metrics, row.result)[1:]])
    headers = [sheet.headers[0], Header("source", "The store or the results file.", False), *sheet.headers[1:]]
    return Sheet(sheet.name, sheet.caption, headers, rows)


def provenance_sheet(leaderboard: Leaderboard) -> Sheet:
    """How every row was computed."""
    rows = []
    for row in leaderboard.rows:
        facts = provenance_facts(row.provenance)
        rows.append([text_cell(row.detector, is_header=True), text_cell(row.source), *map(text_cell, facts.values())])
    titles = list(provenance_facts(leaderboard.rows[0].provenance)) if leaderboard.rows else []
    headers = [Header(title, is_number=False) for title in ("detector", "source", *titles)]
    return Sheet("row-provenance", "Provenance of the rows", headers, rows)
