"""Fig. 2, 4, A.11 and A.14: whether the uncertainties of images and the scores of detections are reliable."""

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


def _suitable(context: ExperimentContext) -> tuple[list[str], list[Remark]]:
    return with_splits(context, context.detectors, *context.benchmark.fit_splits(), "id")


def _splits(context: ExperimentContext, detector: str) -> list[str]:
    return [split for split in ("id", *context.shifted_splits(detector), "ood") if context.has_split(detector, split)]


def _edges(context: ExperimentContext) -> Array:
    """The edges of the bins, which all detectors share."""
    pairs = [(name, split) for name in _suitable(context)[0] for split in _splits(context, name)]
    return acceptance.bin_edges({f"{name} {split}": context.uncertainty(name, split)[1] for name, split in pairs})


def _bins(context: ExperimentContext) -> list[str]:
    edges = _edges(context)
    return [f"{low:.3g}–{high:.3g}" for low, high in pairwise(edges)]


def columns(context: ExperimentContext) -> tuple[Column, ...]:
    """The ten bins of uncertainty, and one for the images without a detection."""
    return tuple(Column(title) for title in [*_bins(context), NO_BIN])


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """Per detector and split: the share of images in each bin and, except for OOD, AP of the images in each bin."""
    edges = _edges(context)
    detectors, remarks = _suitable(context)
    yield from remarks
    for detector in detectors:
        for split in _splits(context, detector):
            _, values = context.uncertainty(detector, split)
            indices = acceptance.bin_indices(values, edges)
            shares = np.bincount(indices, minlength=acceptance.BINS + 1) / max(len(values), 1)
            yield Row((detector, split, "images"), tuple(shares.tolist()))
            if split != "ood":
                bins = acceptance.accuracy_by_bin(
                    split, context.raw_detections(detector, split), values, context.benchmark, edges
                )
                ap = {row.bin: row.ap for row in bins}
                yield Row((detector, split, "AP"), tuple(ap.get(k) for k in range(acceptance.BINS + 1)))


def charts(context: ExperimentContext, outcome: Outcome) -> dict[str, Spec]:
    """The histograms with AP (Fig. 2, A.11) and the reliability diagrams (Fig. 4, A.14) for the selected detector."""
    from saod_ray.report import charts as report_charts

    binned = _binned(outcome, _edges(context))
    splits = list(dict.fromkeys(row.headers[1] for row in outcome.rows))
    captioned = {
        "uncertainty": (
            "Images by uncertainty (bars), AP of the images in each bin (line), and the threshold (dashed)",
            report_charts.histogram(binned["images"], binned["AP"], splits),
        )
    }
    for stage, diagrams in _diagrams(context).items():
        caption = f"Reliability on ID {stage} calibration (bars; ticks: share of detections; dots: mean score)"
        captioned[f"reliability-{stage}"] = (
            caption,
            report_charts.reliability(diagrams, context.settings.bins, f"score {stage} calibration"),
        )
    return {name: chart.properties(description=caption).to_dict() for name, (caption, chart) in captioned.items()}


def _binned(outcome: Outcome, edges: Array) -> dict[str, list[ChartRow]]:
    """The rows of the table as chart rows by quantity, with one record per bin."""
    keys = {"images": "share", "AP": "ap"}
    records: dict[str, list[ChartRow]] = {quantity: [] for quantity in keys}
    for row in outcome.rows:
        detector, split, quantity = row.headers
        for k, value in enumerate(row.values[: acceptance.BINS]):
            if value is not None:
                low, high = float(edges[k]), float(edges[k + 1])
                record = {"detector": detector, "split": split, "low": low, "high": high, keys[quantity]: value}
                records[quantity].append(record)
    return records


def _diagrams(context: ExperimentContext) -> dict[str, list[ChartRow]]:
    """Chart rows of the reliability diagrams by stage."""
    from saod_ray.report.figures import pack_bins

    diagrams: dict[str, list[ChartRow]] = {"before": [], "after": []}
    for detector in _suitable(context)[0]:
        evaluation = context.evaluation(detector, "id")
        before = statistics_before(evaluation, context.benchmark)
        for stage, sums in (("before", before), ("after", evaluation.sums().statistics())):
            diagrams[stage].append({"detector": detector, "class": "", **pack_bins(pooled_reliability(sums))})
    return diagrams


EXPERIMENT = Experiment(
    name="reliability",
    paper="Fig. 2, 4, A.11 and A.14",
    shows="The distribution of image-level uncertainties on ID, its severities and OOD vs. the accuracy in COCO-style "
    "AP; and reliability diagrams on ID before and after calibration.",
    needs="detections on val, pseudo-ood and id; for the histograms of shift and OOD, also on those splits.",
    headers=("detector", "split", "of"),
    columns=columns,
    rows=rows,
    charts=charts,
)
