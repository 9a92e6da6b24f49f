"""The taps of a motion blur: weighted copies of a picture shifted along a line. Snow falls along the same line."""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray
SMALLEST = 32  # the library refuses images with a side below this


def streak(radius: int, sigma: float, angle: float, height: int, width: int) -> tuple[Array, Array]:
    """Offsets (dy, dx) to read from, and weights, of a motion blur at an angle in degrees.

    The library stops at the first tap that reaches past the picture, which darkens narrow ones; that is kept
    for pictures that it accepts. Smaller ones repeat their border instead, as it does everywhere else.
    """
    taps = 2 * radius + 1
    weights = np.exp(-(np.arange(taps) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    y, x = taps * math.sin(math.radians(angle)), taps * math.cos(math.radians(angle))
    length = math.hypot(y, x)
    offsets = [(math.ceil(i * y / length - 0.5), math.ceil(i * x / length - 0.5)) for i in range(taps)]
    inside = [abs(dy) < height and abs(dx) < width for dy, dx in offsets]
    if min(height, width) >= SMALLEST and not all(inside):
        weights[inside.index(False) :] = 0
    return np.array(offsets), weights
