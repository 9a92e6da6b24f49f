"""Pseudo-OOD images: objects are replaced by black boxes (Section 4 of the paper)."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def blank(image: Array, boxes: Array) -> Array:
    """A copy of the image in which every pixel that a box touches is zero.

    `boxes` is (n, 4): x, y, width, height in pixels.

    >>> blank(np.ones((2, 4), np.uint8), np.array([[1.5, 0, 1, 1]])).tolist()
    [[1, 0, 0, 1], [1, 1, 1, 1]]
    """
    out = image.copy()
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    size = (image.shape[1], image.shape[0])
    first = np.clip(np.floor(boxes[:, :2]), 0, size)
    last = np.clip(np.ceil(boxes[:, :2] + boxes[:, 2:]), 0, size)
    for (left, top), (right, bottom) in zip(first.astype(int), last.astype(int), strict=True):
        out[top:bottom, left:right] = 0
    return out
