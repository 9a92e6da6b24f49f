"""DAQ and what it is made of: LRP and LaECE joined in IDQ; BA, IDQ and IDQ_T joined in DAQ."""

from __future__ import annotations

from typing import Any

from saod_ray.config import ScoreSettings
from saod_ray.score import laece, lrp
from saod_ray.score.statistics import Statistics
from saod_ray.score.thresholds import harmonic

AFTER_PAPER_BINS = 25


def quality(sums: Statistics, settings: ScoreSettings) -> dict[str, float | None]:
    """IDQ, LaECE, LRP and its components over classes."""
    paper = settings.conventions == "paper"
    parts = lrp.components(sums.tp, sums.fp, sums.iou, sums.objects, settings.tau, paper)
    figures = {name: lrp.mean_of_defined(values) for name, values in parts.items()}
    figures["laece"] = lrp.mean_of_defined(laece.laece(sums, paper))
    figures["idq"] = idq(figures["lrp"], figures["laece"], settings.idq_weights)
    return figures


def idq(lrp_mean: float | None, laece_mean: float | None, weights: tuple[float, float]) -> float | None:
    """The harmonic mean of 1 - LRP and 1 - LaECE."""
    if lrp_mean == 1:  # nothing was found, and LaECE may be undefined because nothing was detected
        return 0.0
    if lrp_mean is None or laece_mean is None:
        return None
    return harmonic(1 - lrp_mean, 1 - laece_mean, weights=weights)


def daq(parts: list[float | None], weights: tuple[float, ...]) -> float | None:
    """The harmonic mean of BA, IDQ and (where there is corruption) IDQ_T: 0 where one is 0, None where one is undefined."""
    used = [(part, weight) for part, weight in zip(parts, weights, strict=False) if weight]
    if any(part == 0 for part, _ in used):
        return 0.0
    defined = [(part, weight) for part, weight in used if part is not None]
    if len(defined) < len(used):
        return None
    return harmonic(*(part for part, _ in defined), weights=tuple(weight for _, weight in defined))


def after_paper(sums: Statistics) -> dict[str, float | None]:
    """LaECE_0, LaACE_0 and LRP_0 (Kuzucu et al.): any overlap matches, and classes without detections do not count."""
    return {
        "laece_0": lrp.mean_of_defined(laece.laece(sums, paper=True)),
        "laace_0": lrp.mean_of_defined(laece.laace(sums)),
        "lrp_0": lrp.mean_of_defined(lrp.components(sums.tp, sums.fp, sums.iou, sums.objects, 0.0)["lrp"]),
    }


def per_class(sums: Statistics, settings: ScoreSettings, classes: list[str]) -> dict[str, dict[str, Any]]:
    """LaECE, LRP and counts of each class; None where undefined."""
    paper = settings.conventions == "paper"
    parts = lrp.components(sums.tp, sums.fp, sums.iou, sums.objects, settings.tau, paper)
    columns = {"laece": laece.laece(sums, paper), **parts}
    table: dict[str, dict[str, Any]] = {}
    for label, name in enumerate(classes):
        table[name] = {key: lrp.mean_of_defined(values[label : label + 1]) for key, values in columns.items()}
        table[name] |= {"objects": int(sums.objects[label]), "detections": int(sums.tp[label] + sums.fp[label])}
    return table
