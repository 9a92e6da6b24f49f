"""Fit the parts of a self-aware detector on val: image threshold, detection thresholds and calibrators."""

from __future__ import annotations

import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.score import calibrators, thresholds
from saod_ray.score.calibrators import Calibrator
from saod_ray.score.lrp import optimal_thresholds
from saod_ray.score.matching import FP, TP, greedy, zero_id_rule
from saod_ray.score.objects import GroundTruth
from saod_ray.score.order import class_order
from saod_ray.score.split import SplitDetections

Array = np.ndarray
FIT_TAU = 0.1  # the IoU at which the published evaluation fits v-bar, whatever tau is


def image_threshold(pseudo_id: Array, pseudo_ood: Array, rule: str) -> float:
    """u-bar from the uncertainties of pseudo-ID and pseudo-OOD images, each (images,) float64.

    `rule` is the setting `image_threshold`. Only the rule `pseudo-ood` uses the second array.
    """
    if rule == "pseudo-ood":
        return thresholds.pseudo_ood_threshold(pseudo_id, pseudo_ood)
    if rule.startswith("tpr-"):
        return thresholds.tpr_threshold(pseudo_id, float(rule.removeprefix("tpr-")))
    return float(rule)


def detection_thresholds(pseudo_id: SplitDetections, objects: GroundTruth, settings: ScoreSettings) -> Array:
    """v-bar per class, (classes,) float64, from raw detections on pseudo-ID images."""
    if settings.detection_threshold != "lrp":
        return np.full(objects.classes, float(settings.detection_threshold))
    tau = settings.tau if settings.conventions == "paper" else FIT_TAU
    matches = greedy(pseudo_id, objects, tau, zero_id_misses=zero_id_rule(settings.conventions))
    return optimal_thresholds(pseudo_id.label, pseudo_id.score, matches, objects.counts(pseudo_id.images), tau)


def fit_calibrators(
    pseudo_id: SplitDetections,
    objects: GroundTruth,
    v: Array,
    settings: ScoreSettings,
    tau: float,
    after_paper: bool = False,
) -> list[Calibrator | None]:
    """One calibrator per class, from the detections that reach v-bar. No image is rejected.

    `after_paper` fits the variants of Kuzucu et al.: isotonic regression clips, and a line never falls.
    """
    paper = settings.conventions == "paper"
    limit = v[pseudo_id.label]
    selected = pseudo_id.select(pseudo_id.score >= limit if paper else ~(pseudo_id.score < limit))
    misses = not after_paper and zero_id_rule(settings.conventions)
    matches = greedy(selected, objects, tau, zero_id_misses=misses)
    order, start = class_order(selected.label, selected.score, objects.classes)
    has_objects = objects.counts(selected.images) > 0
    counted = (matches.state == TP) | (matches.state == FP)
    fitted: list[Calibrator | None] = []
    for label in range(objects.classes):
        rows = order[start[label] : start[label + 1]]
        rows = rows[counted[rows]] if has_objects[label] else rows[:0]
        pairs = selected.score[rows], matches.iou[rows]
        clip = paper or after_paper
        fitted.append(calibrators.fit(settings.calibrator, *pairs, settings.bins, clip=clip, rising=after_paper))
    return fitted
