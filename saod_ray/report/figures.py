"""The report's figures: a Vega-Lite specification for the page, and an SVG of it for readers without scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import altair as alt
import msgspec
import vl_convert

from saod_ray.report import charts
from saod_ray.report.charts import Spec
from saod_ray.report.data import ReportData
from saod_ray.report.records import ShiftResult
from saod_ray.score.metrics import built_in
from saod_ray.score.results import BenchmarkResult, ReliabilityBins

VEGA_LITE = "6.4"  # the version that Altair writes and the page includes
STATIC_WIDTH = 520
DIGITS = 5  # of numbers in charts; tables have full precision
PARTS = built_in("ood.ba", "id.idq", "shift.idq", "daq")
COMPONENTS = {"LRP": "lrp", "Loc": "lrp_loc", "FP": "lrp_fp", "FN": "lrp_fn"}
CONFIG: Spec = {
    "aria": False,  # each figure has one label; labels on thousands of marks help nobody
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": charts.INK,
        "titleColor": charts.INK,
        "tickColor": charts.INK,
        "domainColor": charts.INK,
        "gridColor": charts.INK,
        "gridOpacity": 0.12,
        "domainOpacity": 0.4,
        "tickOpacity": 0.4,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "legend": {"labelColor": charts.INK, "titleColor": charts.INK, "symbolStrokeWidth": 2, "labelFontSize": 11},
    "header": {"labelColor": charts.INK, "titleColor": charts.INK, "labelFontSize": 11},
    "title": {"color": charts.INK, "fontSize": 12, "fontWeight": "normal"},
}


class ReportChart(NamedTuple):
    """A chart of the report; one with a height (in pixels) fills its container's width."""

    name: str
    caption: str
    chart: charts.Chart
    height: int | None


@dataclass(frozen=True)
class Figure:
    """A named chart: its caption, its specification, and an SVG of its initial state."""

    name: str
    caption: str
    spec: Spec
    svg: str


def figures(report_data: ReportData) -> dict[str, Figure]:
    """All figures that the report has data for, by name."""
    choice = initial_choice(report_data)
    rendered = {}
    for name, caption, chart, height in _charts(report_data):
        spec = apply_page_style(chart.to_dict(), choice, height)
        rendered[name] = Figure(name, caption, spec, render_svg(name, spec))
    return rendered


def charts_by_name(report_data: ReportData) -> dict[str, ReportChart]:
    """All charts that the report has data for, by name."""
    return {chart.name: chart for chart in _charts(report_data)}


def standalone(report_chart: ReportChart, report_data: ReportData, width: int) -> charts.Chart:
    """A chart for a notebook, with the initial selections of the page and a fixed width in pixels."""
    spec = apply_page_style(report_chart.chart.to_dict(), initial_choice(report_data), report_chart.height)
    if report_chart.height is not None:
        spec["width"] = width
    spec["config"] = {**spec["config"], "background": "white"}
    text = json.dumps(spec).replace(charts.INK, "black")  # a notebook has no current colour
    return cast("charts.Chart", alt.Chart.from_json(text))


def initial_choice(report_data: ReportData) -> charts.Choice:
    """The selections when the page opens: the best detector, all classes, LRP, the fitted threshold."""
    first = next(iter(report_data.results.ranked()))
    return charts.Choice(first, report_data.results[first].image_threshold)


def apply_page_style(spec: Spec, choice: charts.Choice, height: int | None) -> Spec:
    """A specification with the page's style and selections; with a height it fills its container's width."""
    spec = {**spec, "config": CONFIG}
    spec["params"] = [{"name": name, "value": value} for name, value in choice._asdict().items()]
    if height is not None:
        spec |= {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}}
    return _rounded(spec)


def _rounded(value: Any) -> Any:
    """A JSON value with its numbers rounded to `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


def render_svg(name: str, spec: Spec) -> str:
    """A specification rendered as SVG, whose text takes the colour of the surrounding page."""
    fixed = spec | {"width": STATIC_WIDTH} if spec.get("width") == "container" else spec
    svg: str = vl_convert.vegalite_to_svg(fixed, vl_version=VEGA_LITE)
    numbers: dict[str, int] = {}

    def unique_id(match: re.Match[str]) -> str:
        return f"{match[1]}{name}-{numbers.setdefault(match[2], len(numbers))}"

    # ids must be unique within the page and must not depend on how many SVGs the library rendered before
    return re.sub(r'(\bid="|url\(#|href="#)([^")]+)', unique_id, svg)


def _charts(report_data: ReportData) -> Iterator[ReportChart]:
    results, tables = report_data.results, report_data.tables
    detectors = list(results.ranked())
    titles = [metric.title for metric in PARTS]
    yield ReportChart("parts", "DAQ and its components", charts.bars(_parts(results), titles, detectors), 240)
    yield from _uncertainty(report_data, detectors)
    severities = [(name, row) for name in detectors for row in tables[name].severities]
    for key, title in (("lrp", "LRP ↓"), ("laece", "LaECE ↓"), ("ap", "AP ↑"), ("accepted", "images accepted")):
        if len({row.severity for _, row in severities}) > 1:
            points = [{"detector": name, "severity": row.severity, key: getattr(row, key)} for name, row in severities]
            yield ReportChart(
                f"severity-{key}", f"{title} over severity", charts.severity(points, key, title, detectors), 200
            )
    cells = [{"detector": name, **_cell(row)} for name in detectors for row in tables[name].corruptions]
    if cells:
        height = 22 * len({row["corruption"] for row in cells})
        caption = "Corruption by severity: the selected detector and metric"
        yield ReportChart("corruptions", caption, charts.heat_map(cells), height)
    yield from _calibration(report_data, detectors)
    for part, title in (("id", "ID"), ("shift", "domain shift")):
        rows = [
            {"detector": name, "metric": label, "value": getattr(getattr(results[name], part), key)}
            for name in detectors
            for label, key in COMPONENTS.items()
        ]
        caption = f"LRP and its components on {title}"
        yield ReportChart(f"components-{part}", caption, charts.bars(rows, list(COMPONENTS), detectors), 220)


def _parts(results: BenchmarkResult) -> charts.Rows:
    return [
        {"detector": name, "metric": metric.title, "value": metric.value(result)}
        for name, result in results.ranked().items()
        for metric in PARTS
    ]


def _cell(row: ShiftResult) -> charts.Row:
    return {key: getattr(row, key) for key in ("corruption", "severity", "images", "accepted", "ap", "laece", "lrp")}


def _uncertainty(report_data: ReportData, detectors: list[str]) -> Iterator[ReportChart]:
    tables = report_data.tables
    bins = [(name, row) for name in detectors for row in tables[name].histogram if row.low is not None]
    accuracy = [{"detector": name, **_without_bin(row)} for name in detectors for row in tables[name].bin_ap]
    splits = list(dict.fromkeys(row.split for _, row in bins if row.images))
    rows = [{"detector": name, **_without_bin(row)} for name, row in bins if row.split in splits]
    if rows:
        caption = "Images by uncertainty (bars), AP of the images in each bin (line), and the threshold (dashed)"
        yield ReportChart("uncertainty", caption, charts.histogram(rows, accuracy, splits), None)
    curves = [
        {"detector": name, "k": k, "subset": point.subset, "fpr": point.fpr, "tpr": point.tpr}
        for name in detectors
        for k, point in enumerate(tables[name].roc)
    ]
    subsets = list(dict.fromkeys(point.subset for name in detectors for point in tables[name].roc))
    if curves:
        overall = [row for row in curves if row["subset"] == subsets[0]]
        yield ReportChart(
            "roc", f"ROC of ID against {subsets[0]}, by detector", charts.roc(overall, detectors, "detector"), 260
        )
    if len(subsets) > 1:
        yield ReportChart(
            "roc-subsets", "ROC by OOD subset: the selected detector", charts.roc(curves, subsets, "subset"), 260
        )


def _without_bin(row: msgspec.Struct) -> charts.Row:
    return {key: value for key, value in msgspec.structs.asdict(row).items() if key != "bin"}


def reliability_rows(report_data: ReportData, detectors: list[str], stage: str) -> charts.Rows:
    """Chart rows of each detector's and class's bins before or after calibration."""
    return [
        {"detector": name, "class": label, **pack_bins(bins)}
        for name in detectors
        for label, bins in report_data.tables[name].calibration.reliability.get(stage, {}).items()
        if bins.bin
    ]


def _calibration(report_data: ReportData, detectors: list[str]) -> Iterator[ReportChart]:
    tables, bins = report_data.tables, report_data.results.settings.bins
    for stage in ("before", "after"):
        rows = reliability_rows(report_data, detectors, stage)
        if rows:
            caption = f"Reliability on ID {stage} calibration (bars; ticks: share of detections; dots: mean score)"
            yield ReportChart(
                f"reliability-{stage}", caption, charts.reliability(rows, bins, f"score {stage} calibration"), 260
            )
    rows = [
        {
            "detector": name,
            "class": label,
            "score": thousandths(curve.score),
            "value": thousandths(curve.calibrated),
        }
        for name in detectors
        for label, curve in tables[name].calibration.curves.items()
        if curve.score
    ]
    if rows:
        yield ReportChart(
            "calibrators", "The calibrators per class (the selected class on top)", charts.calibrators(rows), 260
        )
    rows = [row for name in detectors for row in _thresholds(report_data, name)]
    if rows:
        yield ReportChart(
            "oracle", "Detection thresholds per class: fitted on val, and optimal on ID", charts.oracle(rows), 260
        )


def pack_bins(bins: ReliabilityBins) -> dict[str, list[int]]:
    """A class's bins as lists of thousandths, since bins are most of the page's data."""
    total = sum(bins.detections)
    share = [count / total for count in bins.detections]
    lists = {"score": bins.score, "iou": bins.iou, "share": share}
    return {"bin": bins.bin, **{name: thousandths(values) for name, values in lists.items()}}


def thousandths(values: list[float]) -> list[int]:
    """Fractions as integers, which take less space in JSON.

    >>> thousandths([0.12345, 1.0])
    [123, 1000]
    """
    return [round(1000 * value) for value in values]


def _thresholds(report_data: ReportData, detector: str) -> charts.Rows:
    result, oracle = report_data.results[detector], report_data.tables[detector].calibration.oracle
    return [
        {"detector": detector, "class": name, "v": v, "oracle": oracle[name], "objects": row.objects}
        for name, row in result.classes.items()
        if (v := result.detection_thresholds[name]) is not None and v >= 0 and oracle.get(name) is not None
    ]
