"""IDQ, which combines LRP and LaECE, and DAQ, which combines BA, IDQ and IDQ_T."""

from __future__ import annotations

from collections.abc import Sequence

from saod_ray.config import ScoreSettings
from saod_ray.score import laece, lrp
from saod_ray.score.results import ClassResult, SplitQuality
from saod_ray.score.statistics import Statistics
from saod_ray.score.thresholds import harmonic

AFTER_PAPER_BINS = 25


def quality(sums: Statistics, settings: ScoreSettings) -> SplitQuality:
    """IDQ, LaECE, LRP and its components over classes."""
    paper = settings.conventions == "paper"
    parts = lrp.components(sums.tp, sums.fp, sums.iou, sums.objects, settings.tau, paper)
    means = {name: lrp.mean_of_defined(values) for name, values in parts.items()}
    laece_mean = lrp.mean_of_defined(laece.laece(sums, paper))
    return SplitQuality(laece=laece_mean, idq=idq(means["lrp"], laece_mean, settings.idq_weights), **means)


def idq(lrp_mean: float | None, laece_mean: float | None, weights: tuple[float, float]) -> float | None:
    """The harmonic mean of 1 - LRP and 1 - LaECE."""
    if lrp_mean == 1:  # no object was detected, and LaECE may be undefined
        return 0.0
    if lrp_mean is None or laece_mean is None:
        return None
    return harmonic(1 - lrp_mean, 1 - laece_mean, weights=weights)


def daq(parts: Sequence[float | None], weights: tuple[float, ...]) -> float | None:
    """The weighted harmonic mean of BA, IDQ and, if there are corrupted splits, IDQ_T.

    0 if a part is 0, None if a part is undefined.
    """
    used = [(part, weight) for part, weight in zip(parts, weights, strict=False) if weight]
    if any(part == 0 for part, _ in used):
        return 0.0
    defined = [(part, weight) for part, weight in used if part is not None]
    if len(defined) < len(used):
        return None
    return harmonic(*(part for part, _ in defined), weights=tuple(weight for _, weight in defined))


def after_paper(sums: Statistics) -> dict[str, float | None]:
    """LaECE_0, LaACE_0 and LRP_0 of Kuzucu et al.: any overlap is a match, and classes without detections do not count."""
    return {
        "laece_0": lrp.mean_of_defined(laece.laece(sums, paper=True)),
        "laace_0": lrp.mean_of_defined(laece.laace(sums)),
        "lrp_0": lrp.mean_of_defined(lrp.components(sums.tp, sums.fp, sums.iou, sums.objects, 0.0)["lrp"]),
    }


def per_class(
    sums: Statistics, settings: ScoreSettings, average_precision: Sequence[float | None]
) -> list[ClassResult]:
    """LaECE, LRP and counts of each class by label, with its AP; None where undefined."""
    paper = settings.conventions == "paper"
    parts = lrp.components(sums.tp, sums.fp, sums.iou, sums.objects, settings.tau, paper)
    columns = {"laece": laece.laece(sums, paper), **parts}
    return [
        ClassResult(
            objects=int(sums.objects[label]),
            detections=int(sums.tp[label] + sums.fp[label]),
            ap=ap,
            **{key: lrp.mean_of_defined(values[label : label + 1]) for key, values in columns.items()},
        )
        for label, ap in enumerate(average_precision)
    ]
