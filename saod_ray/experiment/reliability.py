"""Whether uncertainties of images, and scores of detections, mean what they say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import having
from saod_ray.report import acceptance
from saod_ray.report.calibration import pooled, sums_before

Array = np.ndarray
NO_BIN = "no detection"


def _chosen(desk: Desk) -> tuple[list[str], list[Remark]]:
    return having(desk, desk.detectors, *desk.benchmark.fitted_on(), "id")


def _splits(desk: Desk, detector: str) -> list[str]:
    return [split for split in ("id", *desk.shifted(detector), "ood") if desk.has(detector, split)]


def _edges(desk: Desk) -> Array:
    """The bins that all detectors share."""
    pairs = [(name, split) for name in _chosen(desk)[0] for split in _splits(desk, name)]
    return acceptance.edges({f"{name} {split}": desk.uncertainty(name, split)[1] for name, split in pairs})


def _bins(desk: Desk) -> list[str]:
    edges = _edges(desk)
    return [f"{low:.3g}–{high:.3g}" for low, high in pairwise(edges)]


def columns(desk: Desk) -> tuple[Column, ...]:
    """The ten bins of uncertainty, and the images without any detection."""
    return tuple(Column(title) for title in [*_bins(desk), NO_BIN])


def rows(desk: Desk) -> Iterator[Row | Remark]:
    """Of each split the share of images in each bin and, where there are objects, AP of the images in it."""
    edges = _edges(desk)
    chosen, lacking = _chosen(desk)
    yield from lacking
    for detector in chosen:
        for split in _splits(desk, detector):
            _, values = desk.uncertainty(detector, split)
            where = acceptance.bin_of(values, edges)
            shares = np.bincount(where, minlength=acceptance.BINS + 1) / max(len(values), 1)
            yield Row((detector, split, "images"), tuple(shares.tolist()))
            if split != "ood":
                found = acceptance.accuracy_by_bin(desk.judged(detector, split), desk.benchmark, edges)
                known = {each["bin"]: each["ap"] for each in found}
                yield Row((detector, split, "AP"), tuple(known.get(k) for k in range(acceptance.BINS + 1)))


def charts(desk: Desk, outcome: Outcome) -> dict[str, Spec]:
    """The histograms with AP (Fig. 2, A.11) and the reliability diagrams (Fig. 4, A.14) of the chosen detector."""
    from saod_ray.report import charts as drawn

    binned = _binned(outcome, _edges(desk))
    splits = list(dict.fromkeys(row.heads[1] for row in outcome.rows))
    shown = {
        "uncertainty": (
            "Images by uncertainty (bars), AP of the images in each bin (line), and the threshold (dashed)",
            drawn.histogram(binned["images"], binned["AP"], splits),
        )
    }
    for stage, diagrams in _diagrams(desk).items():
        caption = f"Reliability on ID {stage} calibration (bars; ticks: share of detections; dots: mean score)"
        shown[f"reliability-{stage}"] = (
            caption,
            drawn.reliability(diagrams, desk.settings.bins, f"score {stage} calibration"),
        )
    return {name: chart.properties(description=caption).to_dict() for name, (caption, chart) in shown.items()}


def _binned(outcome: Outcome, edges: Array) -> dict[str, list[dict[str, Any]]]:
    """The table's rows as a chart's: a record a bin."""
    keys = {"images": "share", "AP": "ap"}
    out: dict[str, list[dict[str, Any]]] = {what: [] for what in keys}
    for row in outcome.rows:
        detector, split, what = row.heads
        for k, value in enumerate(row.values[: acceptance.BINS]):
            if value is not None:
                place = {"detector": detector, "split": split, "low": float(edges[k]), "high": float(edges[k + 1])}
                out[what].append(place | {keys[what]: value})
    return out


def _diagrams(desk: Desk) -> dict[str, list[dict[str, Any]]]:
    from saod_ray.report.figures import packed

    out: dict[str, list[dict[str, Any]]] = {"before": [], "after": []}
    for detector in _chosen(desk)[0]:
        each = desk.judged(detector, "id")
        for stage, sums in (("before", sums_before(each, desk.benchmark)), ("after", each.sums(desk.benchmark))):
            out[stage].append({"detector": detector, "class": "", **packed(pooled(sums))})
    return out


EXPERIMENT = Experiment(
    name="reliability",
    paper="Fig. 2, 4, A.11 and A.14",
    shows="The distribution of image-level uncertainties on ID, its severities and OOD vs. the accuracy in COCO-style "
    "AP; and reliability diagrams on ID before and after calibration.",
    needs="detections on val, pseudo-ood and id; the histograms of shift and OOD need theirs.",
    heads=("detector", "split", "of"),
    columns=columns,
    rows=rows,
    charts=charts,
)
