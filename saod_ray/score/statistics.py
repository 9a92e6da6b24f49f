"""What the formulas of LRP and LaECE read: sums per class, and per class and bin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Statistics:
    """Per class: objects, TPs, FPs, their IoU; and per class and bin: detections, sum of scores, sum of IoU.

    The last column of the bins holds what is in no bin: NaN scores and, where the last bin is open, 1.0.
    """

    objects: Array
    tp: Array
    fp: Array
    iou: Array
    error: Array  # sum of |score - IoU|
    bin_count: Array
    bin_score: Array
    bin_iou: Array
