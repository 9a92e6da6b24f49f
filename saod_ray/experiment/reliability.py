"""Whether uncertainties of images, and scores of detections, mean what they say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Outcome, Remark, Row, Spec
from saod_ray.experiment.sweep import with_splits
from saod_ray.report import acceptance
from saod_ray.report.calibration import statistics_before
from saod_ray.score.laece import pooled_reliability

Array = np.ndarray
ChartRow = dict[str, object]
NO_BIN = "no detection"


def _chosen(context: ExperimentContext) -> tuple[list[str], list[Remark]]:
    return with_splits(context, context.detectors, *context.benchmark.fit_splits(), "id")


def _splits(context: ExperimentContext, detector: str) -> list[str]:
    return [split for split in ("id", *context.shifted(detector), "ood") if context.has(detector, split)]


def _edges(context: ExperimentContext) -> Array:
    """The bins that all detectors share."""
    pairs = [(name, split) for name in _chosen(context)[0] for split in _splits(context, name)]
    return acceptance.edges({f"{name} {split}": context.uncertainty(name, split)[1] for name, split in pairs})


def _bins(context: ExperimentContext) -> list[str]:
    edges = _edges(context)
    return [f"{low:.3g}–{high:.3g}" for low, high in pairwise(edges)]


def columns(context: ExperimentContext) -> tuple[Column, ...]:
    """The ten bins of uncertainty, and the images without any detection."""
    return tuple(Column(title) for title in [*_bins(context), NO_BIN])


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """Of each split the share of images in each bin and, where there are objects, AP of the images in it."""
    edges = _edges(context)
    chosen, lacking = _chosen(context)
    yield from lacking
    for detector in chosen:
        for split in _splits(context, detector):
            _, values = context.uncertainty(detector, split)
            where = acceptance.bin_of(values, edges)
            shares = np.bincount(where, minlength=acceptance.BINS + 1) / max(len(values), 1)
            yield Row((detector, split, "images"), tuple(shares.tolist()))
            if split != "ood":
                found = acceptance.accuracy_by_bin(
                    split, context.raw(detector, split), values, context.benchmark, edges
                )
                by_bin = {row.bin: row.ap for row in found}
                yield Row((detector, split, "AP"), tuple(by_bin.get(k) for k in range(acceptance.BINS + 1)))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """The histograms with AP (Fig. 2, A.11) and the reliability diagrams (Fig. 4, A.14) of the chosen detector."""
    from saod_ray.report import charts as drawn

    binned = _binned(outcome, _edges(context))
    splits = list(dict.fromkeys(row.heads[1] for row in outcome.rows))
    shown = {
        "uncertainty": (
            "Images by uncertainty (bars), AP of the images in each bin (line), and the threshold (dashed)",
            drawn.histogram(binned["images"], binned["AP"], splits),
        )
    }
    for stage, diagrams in _diagrams(context).items():
        caption = f"Reliability on ID {stage} calibration (bars; ticks: share of detections; dots: mean score)"
        shown[f"reliability-{stage}"] = (
            caption,
            drawn.reliability(diagrams, context.settings.bins, f"score {stage} calibration"),
        )
    return {name: chart.properties(description=caption).to_dict() for name, (caption, chart) in shown.items()}


def _binned(outcome: Outcome, edges: Array) -> dict[str, list[ChartRow]]:
    """The table's rows as a chart's: a record a bin."""
    keys = {"images": "share", "AP": "ap"}
    out: dict[str, list[ChartRow]] = {what: [] for what in keys}
    for row in outcome.rows:
        detector, split, what = row.heads
        for k, value in enumerate(row.values[: acceptance.BINS]):
            if value is not None:
                place = {"detector": detector, "split": split, "low": float(edges[k]), "high": float(edges[k + 1])}
                out[what].append(place | {keys[what]: value})
    return out


def _diagrams(context: ExperimentContext) -> dict[str, list[ChartRow]]:
    from saod_ray.report.figures import packed

    out: dict[str, list[ChartRow]] = {"before": [], "after": []}
    for detector in _chosen(context)[0]:
        evaluation = context.evaluation(detector, "id")
        before = statistics_before(evaluation, context.benchmark)
        for stage, sums in (("before", before), ("after", evaluation.sums().statistics())):
            out[stage].append({"detector": detector, "class": "", **packed(pooled_reliability(sums))})
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
