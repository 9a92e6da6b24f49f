"""Sums per class, and per class and bin, from which LRP and LaECE are computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Statistics:
    """Sums over the TPs and FPs of each class, (classes,), and of each class and bin, (classes, bins + 1).

    The last column of the bins has the detections in no bin: NaN scores and, if the last bin is open, scores of 1.0.
    """

    objects: Array  # number of non-crowd objects
    tp: Array
    fp: Array
    iou: Array  # sum of IoUs
    error: Array  # sum of |score - IoU|
    bin_count: Array  # number of detections
    bin_score: Array  # sum of calibrated scores
    bin_iou: Array  # sum of IoUs
