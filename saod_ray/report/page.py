"""One HTML file: tables that can be read without a script, charts, and everything they need inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from saod_ray.data.images import OTHERS_IMAGES, ImageLimits
from saod_ray.report import export, sheets
from saod_ray.report.cells import figure_sheet
from saod_ray.report.data import Gathered
from saod_ray.report.experiments import Experiments
from saod_ray.report.figures import VEGA_LITE, figures
from saod_ray.report.pictures import Gallery, gallery
from saod_ray.report.sheets import Recorded
from saod_ray.report.table import figure
from saod_ray.store.store import Store

NONE = Experiments()
# what the bundled libraries hand to the page's own script, which may have been there before them
EXPORTED = 'window.vegaEmbed = vegaEmbed; window.dispatchEvent(new Event("vega"));'


def report(
    gathered: Gathered,
    data: str | None,
    experiments: Experiments = NONE,
    limits: ImageLimits = OTHERS_IMAGES,
) -> bytes:
    """The report of what was gathered; the same bytes for the same results, images and experiments.

    Pictures are shown where the images lie below `data`, or below a built-in use case's own root.
    """
    made_by = recorded(gathered.benchmark.store)
    return rendered(gathered, made_by, gallery(gathered, data, made_by.seed or 0, limits), experiments)


def separate_files(gathered: Gathered, experiments: Experiments = NONE) -> Iterator[tuple[str, bytes]]:
    """The report's figures as SVG and PDF, and its tables as LaTeX, by file name."""
    yield from export.figure_files(gathered, dict(experiments.figures()))
    yield from export.table_files(_sheets(gathered, list(sheets.ranked(gathered.results)), Recorded()))
    yield from export.table_files({section.title: section.sheet for section in experiments.sections})


def recorded(store: Store) -> Recorded:
    """What the last run noted of itself; nothing for an import."""
    run = store.last_run()
    return Recorded(run.settings.seed, run.commit)


def rendered(gathered: Gathered, made_by: Recorded, pictures: Gallery, experiments: Experiments = NONE) -> bytes:
    """Lay everything out. A chart of an experiment that the report has itself is not drawn twice."""
    results = gathered.results
    mine = figures(gathered)
    drawn = {**dict(experiments.figures()), **mine}
    detectors = list(sheets.ranked(results))
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters["data"] = embedded
    text = environment.get_template("page.html.j2").render(
        results=results,
        detectors=detectors,
        classes=gathered.benchmark.classes,
        figures={name: (each.name, each.caption, Markup(each.svg)) for name, each in drawn.items()},
        specs={name: each.spec for name, each in drawn.items()},
        facts=_facts(gathered, detectors),
        sheets=_sheets(gathered, detectors, made_by),
        pictures=pictures,
        experiments=experiments,
        mine=set(mine),
        is_papers=bool(sheets.paper_figures(results["use_case"])),
        style=Markup(_asset("report.css")),
        script=Markup(_asset("report.js")),
        vega=Markup(vl_convert.javascript_bundle(EXPORTED, VEGA_LITE)),
    )
    return text.encode()


def embedded(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in, nor begin a comment there."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _sheets(gathered: Gathered, detectors: list[str], made_by: Recorded) -> dict[str, Any]:
    results = gathered.results
    ordered = sheets.ranked(results)
    paper = sheets.paper_figures(results["use_case"])
    return {
        "leaderboard": sheets.leaderboard(gathered),
        "subsets": sheets.subsets(results),
        "severities": sheets.severities(gathered),
        "calibrations": sheets.calibrations(gathered),
        "components": figure_sheet("components", "LRP and its components, in %", sheets.COMPONENTS, ordered, paper),
        "accuracy": figure_sheet("accuracy", "COCO's figures of the raw detections, in %", sheets.ACCURACY, ordered),
        "after": figure_sheet("after", "Figures proposed after the paper, in %", sheets.AFTER_PAPER, ordered),
        "classes": {name: sheets.classes(gathered, name) for name in detectors},
        "provenance": sheets.provenance(results, made_by),
        "coverage": sheets.coverage(results),
        "failures": sheets.failures(gathered),
    }


def _facts(gathered: Gathered, detectors: list[str]) -> dict[str, Any]:
    """What the page's script computes with: DAQ's parts, and what each threshold decides."""
    found = gathered.results["detectors"]
    paths = {"ba": ("ood", "ba"), "idq": ("id", "idq"), "shift": ("shift", "idq")}
    has_shift = bool(gathered.benchmark.store.description.severities)
    return {
        "detectors": detectors,
        "parts": {name: {key: figure(found[name], path) for key, path in paths.items()} for name in detectors},
        "has_shift": has_shift,
        "weights": gathered.results["settings"]["daq_weights"],
        "decisions": {name: gathered.tables[name]["decisions"] for name in detectors},
    }


def _template(name: str) -> str:
    return files("saod_ray.report").joinpath("templates", name).read_text(encoding="utf-8")


def _asset(name: str) -> str:
    return files("saod_ray.report").joinpath("assets", name).read_text(encoding="utf-8")
