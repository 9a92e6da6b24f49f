"""The taps of a motion blur along a line: shifts and weights. Motion blur and snow use them."""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray
MIN_SIDE = 32  # pixels; imagecorruptions refuses smaller images


def streak(radius: int, sigma: float, angle: float, height: int, width: int) -> tuple[Array, Array]:
    """The taps of a motion blur at an angle in degrees: offsets (n, 2) as dy, dx in pixels, and weights (n,).

    imagecorruptions drops the taps from the first one that reaches beyond the image, which darkens narrow images. We do
    the same for images that it accepts. For smaller ones all taps count, and the border is repeated.
    """
    taps = 2 * radius + 1
    weights = np.exp(-(np.arange(taps) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    y, x = taps * math.sin(math.radians(angle)), taps * math.cos(math.radians(angle))
    length = math.hypot(y, x)
    offsets = [(math.ceil(i * y / length - 0.5), math.ceil(i * x / length - 0.5)) for i in range(taps)]
    inside = [abs(dy) < height and abs(dx) < width for dy, dx in offsets]
    if min(height, width) >= MIN_SIDE and not all(inside):
        weights[inside.index(False) :] = 0
    return np.array(offsets), weights
