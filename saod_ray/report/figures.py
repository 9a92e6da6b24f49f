"""From gathered tables to figures: a Vega-Lite specification for the page, and the same as a picture without a script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import altair as alt
import msgspec
import vl_convert

from saod_ray.report import charts
from saod_ray.report.charts import Spec
from saod_ray.report.data import ReportData
from saod_ray.report.records import ShiftResult
from saod_ray.score.metrics import built_in
from saod_ray.score.results import BenchmarkResult, ReliabilityBins

VEGA_LITE = "6.4"  # the version that Altair writes and the page carries
STATIC_WIDTH = 520
DIGITS = 5  # of numbers in charts; tables have them all
PARTS = built_in("ood.ba", "id.idq", "shift.idq", "daq")
COMPONENTS = {"LRP": "lrp", "Loc": "lrp_loc", "FP": "lrp_fp", "FN": "lrp_fn"}
CONFIG: Spec = {
    "aria": False,  # a figure has one label; thousands of marks with one each help nobody
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


@dataclass(frozen=True)
class Figure:
    """A chart by name: what it shows in words, its specification, and an SVG of how it looks at first."""

    name: str
    caption: str
    spec: Spec
    svg: str


def figures(gathered: ReportData) -> dict[str, Figure]:
    """All figures there are data for, by name."""
    start = chosen_first(gathered)
    out = {}
    for name, caption, chart, height in _charts(gathered):
        spec = finished(chart.to_dict(), start, height)
        out[name] = Figure(name, caption, spec, picture(name, spec))
    return out


def charts_by_name(gathered: ReportData) -> dict[str, tuple[charts.Chart, int | None]]:
    """All charts there are data for by name, with their heights where they take the width of their place."""
    return {name: (chart, height) for name, _, chart, height in _charts(gathered)}


def standalone(chart: tuple[charts.Chart, int | None], gathered: ReportData, width: int) -> charts.Chart:
    """A chart for a notebook: the page's choices are made, and its width is fixed."""
    spec = finished(chart[0].to_dict(), chosen_first(gathered), chart[1])
    if chart[1] is not None:
        spec["width"] = width
    spec["config"] = {**spec["config"], "background": "white"}
    text = json.dumps(spec).replace(charts.INK, "black")  # a page's own colour of text is not known there
    return cast("charts.Chart", alt.Chart.from_json(text))


def chosen_first(gathered: ReportData) -> charts.Choice:
    """What is chosen when the page opens: the best detector, all classes, LRP, the fitted threshold."""
    first = next(iter(gathered.results.ranked()))
    return charts.Choice(first, gathered.results[first].image_threshold)


def finished(spec: Spec, start: charts.Choice, height: int | None) -> Spec:
    """A specification with the page's look and choices; with a height it takes the width of its place."""
    spec = {**spec, "config": CONFIG}
    spec["params"] = [{"name": name, "value": value} for name, value in start._asdict().items()]
    if height is not None:
        spec |= {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}}
    return _rounded(spec)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


def picture(name: str, spec: Spec) -> str:
    """A specification drawn as SVG; its colour of text is that of the page it stands in."""
    fixed = spec | {"width": STATIC_WIDTH} if spec.get("width") == "container" else spec
    svg: str = vl_convert.vegalite_to_svg(fixed, vl_version=VEGA_LITE)
    numbers: dict[str, int] = {}

    def own(found: re.Match[str]) -> str:
        return f"{found[1]}{name}-{numbers.setdefault(found[2], len(numbers))}"

    # several pictures share a page, and ids are the page's; the library goes on counting from picture to picture
    return re.sub(r'(\bid="|url\(#|href="#)([^")]+)', own, svg)


def _charts(gathered: ReportData) -> Iterator[tuple[str, str, charts.Chart, int | None]]:
    """Name, caption, chart, and its height where its width is that of its place."""
    results, tables = gathered.results, gathered.tables
    detectors = list(results.ranked())
    titles = [metric.title for metric in PARTS]
    yield "parts", "DAQ and what it is made of", charts.bars(_parts(results), titles, detectors), 240
    yield from _uncertainty(gathered, detectors)
    severities = [(name, row) for name in detectors for row in tables[name].severities]
    for key, title in (("lrp", "LRP ↓"), ("laece", "LaECE ↓"), ("ap", "AP ↑"), ("accepted", "images accepted")):
        if len({row.severity for _, row in severities}) > 1:
            points = [{"detector": name, "severity": row.severity, key: getattr(row, key)} for name, row in severities]
            yield f"severity-{key}", f"{title} over severity", charts.severity(points, key, title, detectors), 200
    cells = [{"detector": name, **_cell(row)} for name in detectors for row in tables[name].corruptions]
    if cells:
        height = 22 * len({row["corruption"] for row in cells})
        yield "corruptions", "Corruption by severity: the chosen detector and figure", charts.heat_map(cells), height
    yield from _calibration(gathered, detectors)
    for where, title in (("id", "ID"), ("shift", "domain shift")):
        rows = [
            {"detector": name, "figure": label, "value": getattr(getattr(results[name], where), key)}
            for name in detectors
            for label, key in COMPONENTS.items()
        ]
        caption = f"LRP and its components on {title}"
        yield f"components-{where}", caption, charts.bars(rows, list(COMPONENTS), detectors), 220


def _parts(results: BenchmarkResult) -> charts.Rows:
    return [
        {"detector": name, "figure": metric.title, "value": metric.value(result)}
        for name, result in results.ranked().items()
        for metric in PARTS
    ]


def _cell(row: ShiftResult) -> charts.Row:
    return {key: getattr(row, key) for key in ("corruption", "severity", "images", "accepted", "ap", "laece", "lrp")}


def _uncertainty(gathered: ReportData, detectors: list[str]) -> Iterator[tuple[str, str, charts.Chart, int | None]]:
    tables = gathered.tables
    bins = [(name, row) for name in detectors for row in tables[name].histogram if row.low is not None]
    accuracy = [{"detector": name, **_without_bin(row)} for name in detectors for row in tables[name].bin_ap]
    splits = list(dict.fromkeys(row.split for _, row in bins if row.images))
    rows = [{"detector": name, **_without_bin(row)} for name, row in bins if row.split in splits]
    if rows:
        caption = "Images by uncertainty (bars), AP of the images in each bin (line), and the threshold (dashed)"
        yield "uncertainty", caption, charts.histogram(rows, accuracy, splits), None
    curves = [
        {"detector": name, "k": k, "subset": point.subset, "fpr": point.fpr, "tpr": point.tpr}
        for name in detectors
        for k, point in enumerate(tables[name].roc)
    ]
    subsets = list(dict.fromkeys(point.subset for name in detectors for point in tables[name].roc))
    if curves:
        overall = [row for row in curves if row["subset"] == subsets[0]]
        yield "roc", f"ROC of ID against {subsets[0]}, by detector", charts.roc(overall, detectors, "detector"), 260
    if len(subsets) > 1:
        yield "roc-subsets", "ROC by OOD subset: the chosen detector", charts.roc(curves, subsets, "subset"), 260


def _without_bin(row: msgspec.Struct) -> charts.Row:
    return {key: value for key, value in msgspec.structs.asdict(row).items() if key != "bin"}


def reliability_rows(gathered: ReportData, detectors: list[str], stage: str) -> charts.Rows:
    """The bins of each detector and class before or after calibration, as a chart draws them."""
    return [
        {"detector": name, "class": label, **packed(bins)}
        for name in detectors
        for label, bins in gathered.tables[name].calibration.reliability.get(stage, {}).items()
        if bins.bin
    ]


def _calibration(gathered: ReportData, detectors: list[str]) -> Iterator[tuple[str, str, charts.Chart, int | None]]:
    tables, bins = gathered.tables, gathered.results.settings.bins
    for stage in ("before", "after"):
        rows = reliability_rows(gathered, detectors, stage)
        if rows:
            caption = f"Reliability on ID {stage} calibration (bars; ticks: share of detections; dots: mean score)"
            yield f"reliability-{stage}", caption, charts.reliability(rows, bins, f"score {stage} calibration"), 260
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
        yield "calibrators", "The calibrators by class (the chosen class in front)", charts.calibrators(rows), 260
    rows = [row for name in detectors for row in _thresholds(gathered, name)]
    if rows:
        yield "oracle", "Detection thresholds by class: on val, and what is optimal on ID", charts.oracle(rows), 260


def packed(bins: ReliabilityBins) -> dict[str, list[int]]:
    """A class's bins as lists of thousandths: of eighty classes and six detectors they are the bulk of a page's data."""
    total = sum(bins.detections)
    share = [count / total for count in bins.detections]
    lists = {"score": bins.score, "iou": bins.iou, "share": share}
    return {"bin": bins.bin, **{name: thousandths(values) for name, values in lists.items()}}


def thousandths(values: list[float]) -> list[int]:
    """Numbers that take little room.

    >>> thousandths([0.12345, 1.0])
    [123, 1000]
    """
    return [round(1000 * value) for value in values]


def _thresholds(gathered: ReportData, detector: str) -> charts.Rows:
    result, oracle = gathered.results[detector], gathered.tables[detector].calibration.oracle
    return [
        {"detector": detector, "class": name, "v": v, "oracle": oracle[name], "objects": row.objects}
        for name, row in result.classes.items()
        if (v := result.detection_thresholds[name]) is not None and v >= 0 and oracle.get(name) is not None
    ]
