"""Compile the kernels once, on a small image: `python -m saod_ray.corrupt.warm`, part of set-up."""

from __future__ import annotations

import numpy as np

from saod_ray.corrupt.corrupting import corrupt
from saod_ray.corrupt.draw import CORRUPTIONS


def warm() -> None:
    """Apply all fifteen once."""
    image = np.zeros((40, 48, 3), np.uint8)
    for corruption in CORRUPTIONS:
        corrupt(image, corruption, 3, seed=0, image_id=0)


if __name__ == "__main__":
    warm()
