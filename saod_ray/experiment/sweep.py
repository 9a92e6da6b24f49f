"""What the sweeps share: detections are kept, matched and summed up once for as many settings as that holds for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.experiment.desk import Desk
from saod_ray.experiment.experiment import Column, Outcome, Remark, Spec
from saod_ray.report.judged import Judged, zero_id_misses
from saod_ray.score import thresholds
from saod_ray.score.daq import daq, quality
from saod_ray.score.matching import Matches, greedy
from saod_ray.score.objects import Objects
from saod_ray.score.split import Split
from saod_ray.score.statistics import Statistics, statistics
from saod_ray.score.uncertainty import NO_DETECTION
from saod_ray.selfaware import SelfAware, calibrated, detection_thresholds, fit_calibrators

Array = np.ndarray
Figures = dict[str, float | None]


FIG_5 = (  # of its two halves
    Column("det/img", ""),
    Column("LaECE", rising=False),
    Column("AP", rising=True),
    Column("LRP", rising=False),
)


def having(desk: Desk, detectors: Sequence[str], *splits: str) -> tuple[list[str], list[Remark]]:
    """Those of the detectors that have detections on all of these splits, and a remark on each of the others."""
    missing = {name: [split for split in splits if not desk.has(name, split)] for name in detectors}
    remarks = [
        Remark(f"{name} has no detections on {', '.join(lacking)}.") for name, lacking in missing.items() if lacking
    ]
    return [name for name, lacking in missing.items() if not lacking], remarks


def drawn_over_steps(outcome: Outcome, title: str, caption: str) -> dict[str, Spec]:
    """LaECE, AP and LRP of `FIG_5` over the second head of the rows, with det/img behind them."""
    from saod_ray.report import charts

    figures = [column.title for column in outcome.columns if column.unit == "%"]
    points = []
    for detector, step, values in ((*row.heads, row.values) for row in outcome.rows):
        of = dict(zip([column.title for column in outcome.columns], values, strict=True))
        points.append({"detector": detector, "x": step, "many": of["det/img"]})
        points += [{"detector": detector, "x": step, "figure": name, "value": of[name]} for name in figures]
    steps = list(dict.fromkeys(row.heads[1] for row in outcome.rows))
    chart = charts.curves(points, title, figures, steps)
    return {outcome.name: chart.properties(description=caption).to_dict()}


# detections of val or id, none of whose images is rejected ---------------------------------------------------------


def pseudo_id(desk: Desk, detector: str) -> Split:
    """The raw detections on val's annotated images, which everything is fitted on."""
    return desk.benchmark.pseudo_id(detector, desk.raw(detector, "val"))


def fitted_v(desk: Desk, detector: str, settings: ScoreSettings) -> Array:
    """The detection thresholds alone, for which no pseudo-OOD images are needed."""
    return detection_thresholds(pseudo_id(desk, detector), desk.objects("val"), settings)


def reaching(split: Split, v: Array) -> Split:
    """The detections that reach their class's threshold; NaN keeps none of a class."""
    return split.select(split.score >= v[split.label])


def matched(split: Split, objects: Objects, settings: ScoreSettings) -> Matches:
    """What becomes of detections of val or id; those of a prefix of the scores become the same without the others."""
    return greedy(split, objects, settings.tau, zero_id_misses=settings.conventions == "official")


def summed(split: Split, matches: Matches, objects: Objects, settings: ScoreSettings) -> Statistics:
    """The statistics of matched detections; the objects of all of the split's images count."""
    counts, closed = objects.counts(split.images), settings.conventions == "paper"
    return statistics(split.label, split.score, matches, counts, settings.bins, last_closed=closed)


def judged(split: Split, objects: Objects, settings: ScoreSettings) -> Figures:
    """LaECE, LRP and the rest of detections of val or id as they are."""
    return quality(summed(split, matched(split, objects, settings), objects, settings), settings)


# the benchmark over thresholds -------------------------------------------------------------------------------------


def over_image_thresholds(desk: Desk, detector: str, values: Sequence[float]) -> list[Figures]:
    """The benchmark's figures at each of these rising values of u.

    Neither v nor the calibrators depend on u, and an image is matched by itself: every split is matched once with
    nothing rejected, and each value adds the images that it is the first to accept.
    """
    mine = desk.aware(detector)
    at = [replace(mine, image_threshold=u) for u in values]
    open_to_all = replace(mine, image_threshold=np.inf)
    sums = [_growing(desk, desk.judged(detector, split, open_to_all), at) for split in _splits(desk, detector)]
    return [_figures(desk, each, _ba(desk, detector, at[k])) for k, each in enumerate(zip(*sums, strict=True))]


def _growing(desk: Desk, each: Judged, at: Sequence[SelfAware]) -> list[Statistics]:
    """The sums of a split at each threshold; `each` rejects nothing that has a detection."""
    everywhere = desk.objects("id").counts(each.sure.images)
    accepted = np.zeros(len(each.accepted), bool)
    sums, out = each.sums(desk.benchmark, accepted), []
    for mine in at:
        before, accepted = accepted, mine.accepts(each.uncertainty, each.accepted)
        sums = sums + each.sums(desk.benchmark, accepted & ~before)
        # severity 5: a rejected image is not judged at all; elsewhere its objects are misses
        out.append(sums if each.name == "id-c5" else replace(sums, objects=everywhere))
    return out


def over_detection_thresholds(desk: Desk, detector: str, values: Sequence[float]) -> list[Figures]:
    """The benchmark's figures with each of these rising values as v of all classes; u does not depend on v.

    Each value is matched anew: a calibrator is fitted on what its v keeps, and calibrated scores decide the order of
    matching. But nothing is loaded again, and each value looks at what the one before kept.
    """
    mine, known = desk.aware(detector), pseudo_id(desk, detector)
    at = [_with_one_v(desk, mine, known, v) for v in values]
    sums = [_shrinking(desk, detector, split, at) for split in _splits(desk, detector)]
    ba = _ba(desk, detector, mine)
    return [_figures(desk, each, ba) for each in zip(*sums, strict=True)]


def _with_one_v(desk: Desk, mine: SelfAware, known: Split, v: float) -> SelfAware:
    """The same u with another v, and with calibrators of what this v keeps."""
    objects, settings = desk.objects("val"), desk.settings
    everywhere = np.full(objects.classes, v)
    functions = fit_calibrators(known, objects, everywhere, settings, settings.tau)
    return replace(mine, detection_thresholds=everywhere, calibrators=functions)


def _shrinking(desk: Desk, detector: str, split: str, at: Sequence[SelfAware]) -> list[Statistics]:
    each = desk.judged(detector, split, at[0])
    out = [each.sums(desk.benchmark)]
    for mine in at[1:]:
        kept = reaching(each.kept, mine.detection_thresholds)
        sure = calibrated(kept, mine.calibrators)
        matches = greedy(sure, desk.objects("id"), desk.settings.tau, zero_id_misses(desk.benchmark, split))
        each = replace(each, kept=kept, sure=sure, matches=matches)
        out.append(each.sums(desk.benchmark))
    return out


def _splits(desk: Desk, detector: str) -> list[str]:
    return ["id", *desk.shifted(detector)]


def _figures(desk: Desk, sums: Sequence[Statistics], ba: float | None) -> Figures:
    """DAQ and what it is made of, from the sums of ID and of each severity, which are one evaluation (`_t`)."""
    settings, (clean, *shifted) = desk.settings, sums
    found = quality(clean, settings)
    shift = quality(sum(shifted[1:], shifted[0]), settings) if shifted else dict.fromkeys(found)
    parts = [ba, found["idq"], shift["idq"]]
    whole = daq(parts if desk.store.description.severities else parts[:2], settings.daq_weights)
    return {"daq": whole, "ba": ba, **found, **{f"{name}_t": value for name, value in shift.items()}}


def _ba(desk: Desk, detector: str, mine: SelfAware) -> float | None:
    if not desk.has(detector, "ood"):
        return None
    inside, outside = (desk.uncertainty(detector, split)[1] for split in ("id", "ood"))
    if mine.settings.conventions == "official":
        return thresholds.balanced_accuracy(inside, outside, mine.image_threshold)["ba"]
    decided = [mine.accepts(each, each != NO_DETECTION) for each in (inside, outside)]
    return thresholds.decided_accuracy(*decided)["ba"]
