"""From gathered tables to figures: a Vega-Lite specification for the page, and the same as a picture without a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import vl_convert

from saod_ray.report import charts
from saod_ray.report.data import Gathered
from saod_ray.report.sheets import ranked
from saod_ray.report.table import figure

VEGA_LITE = "6.4"  # the version that Altair writes and the page carries
STATIC_WIDTH = 520
DIGITS = 5  # of numbers in charts; tables have them all
PARTS = {"BA": ("ood", "ba"), "IDQ": ("id", "idq"), "IDQ_T": ("shift", "idq"), "DAQ": ("daq",)}
COMPONENTS = {"LRP": "lrp", "Loc": "lrp_loc", "FP": "lrp_fp", "FN": "lrp_fn"}
CONFIG: dict[str, Any] = {
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
    spec: dict[str, Any]
    svg: str


def figures(gathered: Gathered) -> dict[str, Figure]:
    """All figures there are data for, by name."""
    start = chosen_first(gathered)
    out = {}
    for name, caption, chart, height in _charts(gathered):
        spec = finished(chart.to_dict(), start, height)
        out[name] = Figure(name, caption, spec, picture(name, spec))
    return out


def chosen_first(gathered: Gathered) -> dict[str, Any]:
    """What is chosen when the page opens: the best detector, all classes, LRP, the fitted threshold."""
    first = next(iter(ranked(gathered.results)))
    u = gathered.results["detectors"][first]["image_threshold"]
    return {"detector": first, "chosen": "", "figure": "lrp", "threshold": u}


def finished(spec: dict[str, Any], start: dict[str, Any], height: int | None) -> dict[str, Any]:
    """A specification with the page's look and choices; with a height it takes the width of its place."""
    spec = {**spec, "config": CONFIG}
    spec["params"] = [{"name": name, "value": value} for name, value in start.items()]
    if height is not None:
        spec |= {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}}
    return _rounded(spec)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def picture(name: str, spec: dict[str, Any]) -> str:
    """A specification drawn as SVG; its colour of text is that of the page it stands in."""
    fixed = spec | {"width": STATIC_WIDTH} if spec.get("width") == "container" else spec
    svg: str = vl_convert.vegalite_to_svg(fixed, vl_version=VEGA_LITE)
    numbers: dict[str, int] = {}

    def own(found: re.Match[str]) -> str:
        return f"{found[1]}{name}-{numbers.setdefault(found[2], len(numbers))}"

    # several pictures share a page, and ids are the page's; the library goes on counting from picture to picture
    return re.sub(r'(\bid="|url\(#|href="#)([^")]+)', own, svg)


def _charts(gathered: Gathered) -> Iterator[tuple[str, str, Any, int | None]]:
    """Name, caption, chart, and its height where its width is that of its place."""
    results, tables = gathered.results, gathered.tables
    detectors = list(ranked(results))
    yield "parts", "DAQ and what it is made of", charts.bars(_parts(results), list(PARTS), detectors), 240
    yield from _uncertainty(gathered, detectors)
    rows = [{"detector": name, **each} for name in detectors for each in tables[name]["severities"]]
    for key, title in (("lrp", "LRP ↓"), ("laece", "LaECE ↓"), ("ap", "AP ↑"), ("accepted", "images accepted")):
        if len({row["severity"] for row in rows}) > 1:
            mine = [{"detector": row["detector"], "severity": row["severity"], key: row[key]} for row in rows]
            yield f"severity-{key}", f"{title} over severity", charts.severity(mine, key, title, detectors), 200
    rows = [{"detector": name, **_cell(each)} for name in detectors for each in tables[name]["corruptions"]]
    if rows:
        height = 22 * len({row["corruption"] for row in rows})
        yield "corruptions", "Corruption by severity: the chosen detector and figure", charts.heat_map(rows), height
    yield from _calibration(gathered, detectors)
    for where, title in (("id", "ID"), ("shift", "domain shift")):
        rows = [
            {"detector": name, "figure": label, "value": results["detectors"][name][where][key]}
            for name in detectors
            for label, key in COMPONENTS.items()
        ]
        yield (
            f"components-{where}",
            f"LRP and its components on {title}",
            charts.bars(rows, list(COMPONENTS), detectors),
            220,
        )


def _parts(results: dict[str, Any]) -> charts.Rows:
    return [
        {"detector": name, "figure": label, "value": figure(each, path)}
        for name, each in ranked(results).items()
        for label, path in PARTS.items()
    ]


def _cell(each: dict[str, Any]) -> dict[str, Any]:
    return {key: each[key] for key in ("corruption", "severity", "images", "accepted", "ap", "laece", "lrp")}


def _uncertainty(gathered: Gathered, detectors: list[str]) -> Iterator[tuple[str, str, Any, int | None]]:
    tables = gathered.tables
    rows = [{"detector": name, **_binned(each)} for name in detectors for each in tables[name]["histogram"]]
    rows = [row for row in rows if row["low"] is not None]
    accuracy = [{"detector": name, **_binned(each)} for name in detectors for each in tables[name]["bin_ap"]]
    splits = list(dict.fromkeys(row["split"] for row in rows if row["images"]))
    rows = [row for row in rows if row["split"] in splits]
    if rows:
        caption = "Images by uncertainty (bars), AP of the images in each bin (line), and the threshold (dashed)"
        yield "uncertainty", caption, charts.histogram(rows, accuracy, splits), None
    curves = [{"detector": name, "k": k, **each} for name in detectors for k, each in enumerate(tables[name]["roc"])]
    subsets = list(dict.fromkeys(row["subset"] for row in curves))
    if curves:
        whole = [row for row in curves if row["subset"] == subsets[0]]
        yield "roc", f"ROC of ID against {subsets[0]}, by detector", charts.roc(whole, detectors, "detector"), 260
    if len(subsets) > 1:
        yield "roc-subsets", "ROC by OOD subset: the chosen detector", charts.roc(curves, subsets, "subset"), 260


def _binned(each: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in each.items() if key != "bin"}


def _calibration(gathered: Gathered, detectors: list[str]) -> Iterator[tuple[str, str, Any, int | None]]:
    tables, bins = gathered.tables, gathered.results["settings"]["bins"]
    for stage in ("before", "after"):
        rows = [
            {"detector": name, "class": label, **packed(each)}
            for name in detectors
            for label, each in tables[name].get("reliability", {}).get(stage, {}).items()
            if each["bin"]
        ]
        if rows:
            caption = f"Reliability on ID {stage} calibration (bars; ticks: share of detections; dots: mean score)"
            yield f"reliability-{stage}", caption, charts.reliability(rows, bins, f"score {stage} calibration"), 260
    rows = [
        {
            "detector": name,
            "class": label,
            "score": thousandths(each["score"]),
            "value": thousandths(each["calibrated"]),
        }
        for name in detectors
        for label, each in tables[name].get("curves", {}).items()
        if each["score"]
    ]
    if rows:
        yield "calibrators", "The calibrators by class (the chosen class in front)", charts.calibrators(rows), 260
    rows = [row for name in detectors for row in _thresholds(gathered, name)]
    if rows:
        yield "oracle", "Detection thresholds by class: on val, and what is optimal on ID", charts.oracle(rows), 260


def packed(each: dict[str, list[float]]) -> dict[str, list[int]]:
    """A class's bins as lists of thousandths: of eighty classes and six detectors they are the bulk of a page's data."""
    total = sum(each["detections"])
    share = [count / total for count in each["detections"]]
    lists = {"score": each["score"], "iou": each["iou"], "share": share}
    return {"bin": [int(k) for k in each["bin"]], **{name: thousandths(values) for name, values in lists.items()}}


def thousandths(values: list[float]) -> list[int]:
    """Numbers that take little room.

    >>> thousandths([0.12345, 1.0])
    [123, 1000]
    """
    return [round(1000 * value) for value in values]


def _thresholds(gathered: Gathered, detector: str) -> charts.Rows:
    found, oracle = gathered.results["detectors"][detector], gathered.tables[detector].get("oracle", {})
    return [
        {"detector": detector, "class": name, "v": v, "oracle": oracle[name], "objects": each["objects"]}
        for name, each in found.get("per_class", {}).items()
        if (v := found["detection_thresholds"][name]) is not None and v >= 0 and oracle.get(name) is not None
    ]
