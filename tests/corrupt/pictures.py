"""Images to corrupt: one that looks like a photograph, and the extremes."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def photograph(height: int, width: int, seed: int = 0) -> Array:
    """Gradients, discs, a saturated block, black and white corners, and grain in the lower half."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    image = np.stack([x * 255 / width, y * 255 / height, (x + y) * 3 % 256], axis=-1).astype(np.float64)
    for _ in range(12):
        top, left, radius = rng.integers(height), rng.integers(width), rng.integers(2, 3 + height // 4)
        image[(y - top) ** 2 + (x - left) ** 2 < radius**2] = rng.integers(0, 256, 3)
    image[height // 3 : height // 2, width // 4 : width // 2] = (255, 0, 0)
    image[: height // 8, : width // 8] = 0
    image[-(height // 8) - 1 :, : width // 8] = 255
    grain = rng.normal(0, 6, image.shape) * (y[..., None] > height // 2)
    return np.clip(image + grain, 0, 255).astype(np.uint8)


def flat(height: int, width: int, colour: tuple[int, int, int]) -> Array:
    return np.full((height, width, 3), colour, np.uint8)


def noise(height: int, width: int, seed: int = 0) -> Array:
    """Independent bytes: the hardest contrasts for whatever interpolates."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def saturated(height: int, width: int) -> Array:
    """The eight corners of the colour cube in a fine check."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x // 3 % 2, y // 5 % 2, (x + y) // 7 % 2], axis=-1).astype(np.uint8) * np.uint8(255)
