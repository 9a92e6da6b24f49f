"""The report's charts as Altair charts over small tables.

The reader's selections (detector, class, metric, threshold) are parameters of the specification, which the page sets.
Names that users chose occur only as data, never in an expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

Chart = alt.Chart | alt.LayerChart | alt.FacetChart
Row = Mapping[str, object]
Rows = Sequence[Row]  # the data of a chart
Spec = dict[str, Any]  # a Vega-Lite specification: JSON
# Okabe and Ito's colours without black and yellow, which vanish on dark and light backgrounds, and two of Tol's. There
# are more colours than dashes, so that lines with the same colour differ in their dashes.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#999999", "#AA4499", "#44AA99"]
DASHES = [[1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [10, 3], [4, 4], [1, 3]]
INK, PALE, FIRST, SECOND = "currentColor", "#8a8f98", COLOURS[0], COLOURS[3]
LEGEND = alt.Legend(title=None, orient="bottom", columns=3, labelLimit=110)
IS_CHOSEN = "datum.detector === detector"


class Choice(NamedTuple):
    """The reader's selections, which are parameters of every chart."""

    detector: str
    threshold: float | None
    chosen: str = ""  # the selected class; empty for all classes. Charts in stores refer to it by this name
    metric: str = "lrp"  # of the heat map


def _data(rows: Rows) -> alt.InlineData:
    """Inline data; layers that share it write it once."""
    return alt.InlineData(values=list(rows))


def _colour(names: list[str], field: str = "detector") -> alt.Color:
    colours = [COLOURS[k % len(COLOURS)] for k in range(len(names))]
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=names, range=colours), legend=LEGEND)


def _dash(names: list[str], field: str = "detector") -> alt.StrokeDash:
    dashes = [DASHES[k % len(DASHES)] for k in range(len(names))]
    return alt.StrokeDash(f"{field}:N", scale=alt.Scale(domain=names, range=dashes), legend=LEGEND)


def _percent_axis(title: str | None = None) -> alt.Axis:
    return alt.Axis(format="%", title=title)


def _unit(low: float = 0.0, high: float = 1.0) -> alt.Scale:
    return alt.Scale(domain=[low, high])


def bars(rows: Rows, metrics: list[str], detectors: list[str]) -> alt.Chart:
    """Metrics side by side, with one bar per detector."""
    base = alt.Chart(_data(rows)).mark_bar(cornerRadiusEnd=2)
    return base.encode(
        x=alt.X("metric:N", sort=metrics, axis=alt.Axis(title=None, labelAngle=0)),
        xOffset=alt.XOffset("detector:N", sort=detectors),
        y=alt.Y("value:Q", scale=_unit(), axis=_percent_axis()),
        color=_colour(detectors),
        tooltip=["detector:N", "metric:N", alt.Tooltip("value:Q", format=".2%")],
    )


def histogram(rows: Rows, accuracy: Rows, splits: list[str]) -> Chart:
    """Per split: the share of images in each bin of uncertainty, AP per bin, and the image threshold."""
    x = alt.X("low:Q", bin="binned", title="image-level uncertainty", axis=alt.Axis(format=".2~f", tickCount=6))
    tips = ["split:N", alt.Tooltip("low:Q", format=".2f"), alt.Tooltip("high:Q", format=".2f")]
    base = alt.Chart().transform_filter(IS_CHOSEN)
    columns = (
        base.transform_filter("isValid(datum.share)")
        .mark_bar(fill=FIRST, opacity=0.75, binSpacing=1)
        .encode(
            x=x,
            x2="high:Q",
            y=alt.Y("share:Q", axis=alt.Axis(format="%", title=None, tickCount=3), scale=_unit()),
            tooltip=[*tips, "images:Q", alt.Tooltip("share:Q", format=".1%")],
        )
    )
    line = (
        base.transform_filter("isValid(datum.ap)")
        .transform_calculate(middle="(datum.low + datum.high) / 2")
        .mark_line(stroke=COLOURS[1], point=alt.OverlayMarkDef(fill=COLOURS[1], size=30))
        .encode(x="middle:Q", y="ap:Q", tooltip=[*tips, alt.Tooltip("ap:Q", format=".1%", title="AP")])
    )
    rule = base.transform_aggregate(n="count()", groupby=["split"]).transform_calculate(at="threshold")
    marks = rule.mark_rule(stroke=SECOND, strokeWidth=2, strokeDash=[4, 3]).encode(x="at:Q")
    header = alt.Header(labelAngle=0, labelAlign="left", labelAnchor="middle", labelLimit=90, title=None)
    layered = alt.layer(columns, line, marks, data=_data([*rows, *accuracy])).properties(width=480, height=46)
    return layered.facet(row=alt.Row("split:N", sort=splits, header=header), spacing=8)


def roc(rows: Rows, names: list[str], field: str) -> Chart:
    """ROC curves per detector, or per OOD subset of the selected detector."""
    base = alt.Chart(_data(rows))
    if field == "subset":
        base = base.transform_filter(IS_CHOSEN)
    axis = alt.Axis(format="%", tickCount=5)
    lines = base.mark_line(strokeWidth=2, interpolate="linear").encode(
        x=alt.X("fpr:Q", title="OOD images accepted (FPR)", scale=_unit(), axis=axis),
        y=alt.Y("tpr:Q", title="ID images accepted (TPR)", scale=_unit(), axis=axis),
        color=_colour(names, field),
        strokeDash=_dash(names, field),
        order=alt.Order("k:Q"),
        tooltip=[f"{field}:N", alt.Tooltip("fpr:Q", format=".1%"), alt.Tooltip("tpr:Q", format=".1%")],
    )
    return alt.layer(_diagonal(), lines)


def _diagonal() -> alt.Chart:
    corner = alt.Chart(_data([{"x": 0, "y": 0}, {"x": 1, "y": 1}]))
    return corner.mark_line(stroke=PALE, strokeDash=[3, 3], strokeWidth=1).encode(x="x:Q", y="y:Q")


def severity(rows: Rows, metric: str, title: str, detectors: list[str]) -> alt.Chart:
    """A metric over severity, with one line per detector."""
    return (
        alt.Chart(_data(rows))
        .mark_line(point=alt.OverlayMarkDef(size=40), strokeWidth=2)
        .encode(
            x=alt.X("severity:O", title="severity (0: uncorrupted)", axis=alt.Axis(labelAngle=0)),
            y=alt.Y(f"{metric}:Q", scale=_unit(), axis=_percent_axis(title)),
            color=_colour(detectors),
            strokeDash=_dash(detectors),
            tooltip=["detector:N", "severity:O", alt.Tooltip(f"{metric}:Q", format=".2%", title=title)],
        )
    )


def heat_map(rows: Rows) -> Chart:
    """The selected metric per corruption and severity, for the selected detector."""
    base = alt.Chart(_data(rows)).transform_filter(IS_CHOSEN).transform_calculate(value="datum[metric]")
    base = base.transform_filter("isValid(datum.value)").encode(
        x=alt.X("severity:O", title="severity", axis=alt.Axis(labelAngle=0, orient="top")),
        y=alt.Y("corruption:N", title=None, axis=alt.Axis(labelLimit=140)),
    )
    fill = alt.Color("value:Q", scale=alt.Scale(domain=[0, 1], scheme="cividis"), legend=None)
    tips = [
        "corruption:N",
        "severity:O",
        "images:Q",
        *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("lrp", "laece", "ap", "accepted")),
    ]
    text = base.mark_text(fontSize=11).encode(
        text=alt.Text("value:Q", format=".0%"),
        color=alt.condition("datum.value > 0.5", alt.value("#111"), alt.value("#fff")),
    )
    return alt.layer(base.mark_rect().encode(color=fill, tooltip=tips), text)


def reliability(rows: Rows, bins: int, title: str) -> Chart:
    """Precision times IoU over the score, with the share of detections in each bin; rows hold lists of thousandths."""
    base = (
        alt.Chart(_data(rows))
        .transform_filter(f"{IS_CHOSEN} && datum.class === chosen")
        .transform_flatten(["bin", "score", "iou", "share"])
        .transform_calculate(
            low=f"datum.bin / {bins}",
            high=f"(datum.bin + 1) / {bins}",
            middle=f"(datum.bin + 0.5) / {bins}",
            mean="datum.score / 1000",
            precision="datum.iou / 1000",
            part="datum.share / 1000",
        )
    )
    tips = [
        alt.Tooltip("mean:Q", format=".3f", title="mean score"),
        alt.Tooltip("precision:Q", format=".3f", title="precision × IoU"),
        alt.Tooltip("part:Q", format=".1%", title="share of detections"),
    ]
    x = alt.X("low:Q", bin="binned", title=title, scale=_unit(), axis=alt.Axis(format=".1f", tickCount=6))
    y = alt.Y("precision:Q", title="precision × IoU", scale=_unit(), axis=alt.Axis(format=".1f", tickCount=6))
    columns = base.mark_bar(fill=FIRST, opacity=0.8, binSpacing=1).encode(x=x, x2="high:Q", y=y, tooltip=tips)
    ticks = base.mark_tick(orient="horizontal", color=COLOURS[1], thickness=3, size=9)
    dots = base.mark_point(filled=True, color=SECOND, size=28, opacity=1)
    return alt.layer(
        columns,
        _diagonal(),
        ticks.encode(x="middle:Q", y="part:Q", tooltip=tips),
        dots.encode(x="mean:Q", y="precision:Q", tooltip=tips),
    )


def calibrators(rows: Rows) -> Chart:
    """The calibrators of the selected detector, the selected class on top; rows hold lists of thousandths."""
    base = (
        alt.Chart(_data(rows))
        .transform_filter(IS_CHOSEN)
        .transform_flatten(["score", "value"])
        .transform_calculate(raw="datum.score / 1000", calibrated="datum.value / 1000")
    )
    axis = alt.Axis(format=".1f", tickCount=6)
    x = alt.X("raw:Q", title="raw score", scale=_unit(), axis=axis)
    y = alt.Y("calibrated:Q", title="calibrated score", scale=_unit(), axis=axis)
    thin = base.mark_line(stroke=PALE, strokeWidth=1.2, opacity=0.8)
    selected = base.transform_filter("datum.class === chosen").mark_line(stroke=SECOND, strokeWidth=3)
    return alt.layer(
        _diagonal(),
        thin.encode(x=x, y=y, detail="class:N", tooltip=["class:N"]),
        selected.encode(x="raw:Q", y="calibrated:Q", tooltip=["class:N"]),
    )


def oracle(rows: Rows) -> Chart:
    """Per class, the threshold v fitted on val against the LRP-optimal one on ID."""
    base = alt.Chart(_data(rows)).transform_filter(IS_CHOSEN)
    axis = alt.Axis(format=".1f", tickCount=6)
    dots = base.mark_point(filled=True, color=FIRST, opacity=0.85).encode(
        x=alt.X("v:Q", title="v on val", scale=_unit(), axis=axis),
        y=alt.Y("oracle:Q", title="LRP-optimal on ID", scale=_unit(), axis=axis),
        size=alt.Size("objects:Q", title="objects", legend=None, scale=alt.Scale(range=[20, 300])),
        tooltip=["class:N", alt.Tooltip("v:Q", format=".3f"), alt.Tooltip("oracle:Q", format=".3f"), "objects:Q"],
    )
    return alt.layer(_diagonal(), dots)


def curves(rows: Rows, title: str, metrics: list[str], steps: list[str] | None = None) -> Chart:
    """Metrics of the selected detector over a setting `x`: a number, or one of `steps`.

    With steps, bars behind the lines show the detections per image, with their own axis on the right.
    """
    data, base = _data(_by_line(rows)), alt.Chart().transform_filter(IS_CHOSEN)
    x = alt.X("x:O", sort=steps, title=title, axis=alt.Axis(labelAngle=0)) if steps else alt.X("x:Q", title=title)
    lines = (
        base.transform_filter("isValid(datum.metric)")
        .transform_flatten(["x", "value"])
        .transform_filter("isValid(datum.value)")
        .mark_line(point=alt.OverlayMarkDef(size=25), strokeWidth=2)
        .encode(
            x=x,
            y=alt.Y("value:Q", scale=_unit(), axis=_percent_axis()),
            color=_colour(metrics, "metric"),
            strokeDash=_dash(metrics, "metric"),
            tooltip=[
                "metric:N",
                alt.Tooltip("x:Q" if steps is None else "x:N", title=title),
                alt.Tooltip("value:Q", format=".2%"),
            ],
        )
    )
    if not steps:
        return alt.layer(lines, data=data)
    axis = alt.Axis(title="detections per image", orient="right", grid=False)
    tips = [alt.Tooltip("x:N", title=title), alt.Tooltip("per_image:Q", format=".1f", title="detections per image")]
    bars = base.transform_filter("!isValid(datum.metric)").transform_flatten(["x", "per_image"])
    bars = bars.transform_filter("isValid(datum.per_image)").mark_bar(fill=PALE, opacity=0.35)
    columns = bars.encode(x=x, y=alt.Y("per_image:Q", axis=axis), tooltip=tips)
    return alt.layer(columns, lines, data=data).resolve_scale(y="independent")


def _by_line(rows: Rows) -> Rows:
    """One record per line, with lists of its points: a fraction of the size of one record per point."""
    lines: dict[tuple[object, object], dict[str, Any]] = {}
    for row in rows:
        identity: dict[str, Any] = {key: row[key] for key in ("detector", "metric") if key in row}
        line = lines.setdefault((row["detector"], row.get("metric", "")), identity)
        for key in row.keys() - identity.keys():
            line.setdefault(key, []).append(row[key])
    return list(lines.values())
