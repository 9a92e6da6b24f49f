"""Contrast, pixelate and JPEG compression."""

from __future__ import annotations

import io

import numpy as np
from numba import njit
from PIL import Image

from saod_ray.errors import SaodError

Array = np.ndarray
CONTRAST = (0.4, 0.3, 0.2, 0.1, 0.05)
PIXELATE = (0.6, 0.5, 0.4, 0.3, 0.25)
JPEG = (25, 18, 15, 10, 7)
JPEG_SIDE = 65_500


def contrast(image: Array, draws: None, severity: int) -> Array:
    """Move every channel towards its mean."""
    factor = CONTRAST[severity - 1]
    means = _sums(image) / (255.0 * image.shape[0] * image.shape[1])
    levels = np.arange(256)[None, :] / 255.0
    tables = (np.clip((levels - means[:, None]) * factor + means[:, None], 0, 1) * 255).astype(np.uint8)
    out = np.empty_like(image)
    _map_levels(image, tables[0], tables[1], tables[2], out)
    return out


@njit(cache=True, nogil=True)
def _sums(image: Array) -> Array:
    flat = image.reshape(-1, 3)
    r, g, b = 0, 0, 0
    for i in range(flat.shape[0]):
        r += flat[i, 0]
        g += flat[i, 1]
        b += flat[i, 2]
    return np.array([r, g, b])


@njit(cache=True, nogil=True)
def _map_levels(image: Array, red: Array, green: Array, blue: Array, out: Array) -> None:
    source, target = image.reshape(-1, 3), out.reshape(-1, 3)
    for i in range(source.shape[0]):
        target[i, 0] = red[source[i, 0]]
        target[i, 1] = green[source[i, 1]]
        target[i, 2] = blue[source[i, 2]]


def pixelate(image: Array, draws: None, severity: int) -> Array:
    """Shrink by area averaging to at least one pixel per side, and enlarge without interpolation."""
    height, width, _ = image.shape
    rows, columns = (max(1, int(side * PIXELATE[severity - 1])) for side in (height, width))
    small = Image.fromarray(image).resize((columns, rows), Image.Resampling.BOX)
    return np.array(small.resize((width, height), Image.Resampling.NEAREST))


def jpeg_compression(image: Array, draws: None, severity: int) -> Array:
    """Encode as JPEG of low quality, and decode. SaodError if a side exceeds what JPEG can encode."""
    if max(image.shape) > JPEG_SIDE:
        raise SaodError(
            f"JPEG has no image over {JPEG_SIDE:,} pixels a side, and this one has the shape {image.shape}."
        )
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=JPEG[severity - 1])
    return np.array(Image.open(buffer))
