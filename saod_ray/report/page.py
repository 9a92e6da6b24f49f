"""The report as one self-contained HTML file; its tables and charts are also readable without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import vl_convert
from markupsafe import Markup

from saod_ray.data.images import OTHERS_IMAGES, ImageLimits
from saod_ray.report import export, sheets
from saod_ray.report.cells import Sheet, metric_sheet
from saod_ray.report.data import ReportData
from saod_ray.report.experiments import Experiments
from saod_ray.report.figures import VEGA_LITE, figures
from saod_ray.report.pictures import Gallery, gallery
from saod_ray.report.records import DecisionTable
from saod_ray.report.rendering import asset, render_page
from saod_ray.report.sheets import RunRecord
from saod_ray.score import metrics
from saod_ray.store.store import Store

NO_EXPERIMENTS = Experiments()
# makes the bundled libraries available to the page's own script, which may run before them
EXPORTED = 'window.vegaEmbed = vegaEmbed; window.dispatchEvent(new Event("vega"));'


def report(
    report_data: ReportData,
    image_folder: str | None,
    experiments: Experiments = NO_EXPERIMENTS,
    limits: ImageLimits = OTHERS_IMAGES,
) -> bytes:
    """The report as HTML; the same bytes for the same results, images and experiments.

    Pictures need the images: `image_folder` defaults to the root of a built-in use case.
    """
    run = run_record(report_data.benchmark.store)
    return render(report_data, run, gallery(report_data, image_folder, run.seed or 0, limits), experiments)


def separate_files(report_data: ReportData, experiments: Experiments = NO_EXPERIMENTS) -> Iterator[tuple[str, bytes]]:
    """The file name and content of the report's figures (SVG and PDF) and tables (LaTeX)."""
    yield from export.figure_files(report_data, dict(experiments.figures()))
    yield from export.table_files(_sheets(report_data, RunRecord()).values())
    yield from export.table_files(_class_sheets(report_data).values())
    yield from export.table_files(section.sheet for section in experiments.sections)


def run_record(store: Store) -> RunRecord:
    """The seed and commit of the last run; empty for a store that was imported."""
    run = store.last_run()
    return RunRecord(run.settings.seed, run.commit)


def render(
    report_data: ReportData, run: RunRecord, pictures: Gallery, experiments: Experiments = NO_EXPERIMENTS
) -> bytes:
    """Fill the page template. A chart that both the report and an experiment have appears once."""
    results = report_data.results
    report_figures = figures(report_data)
    all_figures = {**dict(experiments.figures()), **report_figures}
    detectors = list(results.ranked())
    return render_page(
        "page.html.j2",
        results=results,
        detectors=detectors,
        classes=report_data.benchmark.classes,
        figures={name: (figure.name, figure.caption, Markup(figure.svg)) for name, figure in all_figures.items()},
        specs={name: figure.spec for name, figure in all_figures.items()},
        facts=_facts(report_data, detectors),
        sheets={**_sheets(report_data, run), "classes": _class_sheets(report_data)},
        pictures=pictures,
        experiments=experiments,
        report_figures=set(report_figures),
        has_paper_values=bool(sheets.paper_values(results.use_case)),
        script=asset("report.js"),
        vega=Markup(vl_convert.javascript_bundle(EXPORTED, VEGA_LITE)),
    )


def _sheets(report_data: ReportData, run: RunRecord) -> dict[str, Sheet]:
    results, ranked = report_data.results, report_data.results.ranked()
    paper = sheets.paper_values(results.use_case)
    components, accuracy, after = sheets.COMPONENTS, metrics.ACCURACY, metrics.AFTER_PAPER
    return {
        "leaderboard": sheets.leaderboard(report_data),
        "subsets": sheets.subsets(results),
        "severities": sheets.severities(report_data),
        "calibrations": sheets.calibrations(report_data),
        "components": metric_sheet("components", "LRP and its components, in %", components, ranked, paper),
        "accuracy": metric_sheet("accuracy", "COCO's metrics of the raw detections, in %", accuracy, ranked),
        "after": metric_sheet("after", "Metrics proposed after the paper, in %", after, ranked),
        "provenance": sheets.provenance(results, run),
        "coverage": sheets.coverage(results),
        "failures": sheets.failures(report_data),
    }


def _class_sheets(report_data: ReportData) -> dict[str, Sheet]:
    return {name: sheets.classes(report_data, name) for name in report_data.results.ranked()}


class _DaqParts(NamedTuple):
    """The parts of DAQ, which the page's script weighs."""

    ba: float | None
    idq: float | None
    shift: float | None


class _ScriptData(NamedTuple):
    """The data of the page's script."""

    detectors: list[str]
    parts: dict[str, _DaqParts]
    has_shift: bool
    weights: list[float]
    decisions: dict[str, DecisionTable]


def _facts(report_data: ReportData, detectors: list[str]) -> object:
    """The data of the page's script as a JSON value."""
    results = report_data.results
    facts = _ScriptData(
        detectors,
        {name: _DaqParts(results[name].ood.ba, results[name].id.idq, results[name].shift.idq) for name in detectors},
        bool(report_data.benchmark.store.description.severities),
        results.settings.daq_weights,
        {name: report_data.tables[name].decisions for name in detectors},
    )
    return msgspec.to_builtins(
        {**facts._asdict(), "parts": {name: parts._asdict() for name, parts in facts.parts.items()}}
    )
