"""Compile and cache all kernels: `python -m saod_ray.corrupt.warm`, which set-up runs."""

from __future__ import annotations

import numpy as np

from saod_ray.corrupt.draw import CORRUPTIONS
from saod_ray.corrupt.pipeline import corrupt


def warm() -> None:
    """Apply every corruption once to a small image."""
    image = np.zeros((40, 48, 3), np.uint8)
    for corruption in CORRUPTIONS:
        corrupt(image, corruption, 3, seed=0, image_id=0)


if __name__ == "__main__":
    warm()
