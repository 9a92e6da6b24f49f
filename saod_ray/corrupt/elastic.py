"""Elastic transform: a smooth random field displaces every pixel."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from saod_ray.corrupt.draw import key, threefry

Array = np.ndarray
_F32 = np.float32
ELASTIC = tuple(250 * c for c in (0.05, 0.065, 0.085, 0.1, 0.12))


class ElasticDraw(NamedTuple):
    """Two fields of noise in [-1, 1), (height, width) float32: horizontal and vertical displacement before smoothing."""

    across: Array
    down: Array


def elastic_draw(rng: np.random.Generator, height: int, width: int, severity: int) -> ElasticDraw:
    """Noise for both directions."""
    k0, k1 = key(rng)
    return ElasticDraw(*(_uniform_field(k0, k1, field, height, width) for field in range(2)))


@njit(cache=True, nogil=True)
def _uniform_field(k0: np.uint32, k1: np.uint32, field: int, height: int, width: int) -> Array:
    out = np.empty(height * width, np.float32)
    block = np.empty(2048, np.uint32)
    unit = _F32(2.0**-31)
    for start in range(0, out.size, block.size):
        threefry(k0, k1, start // 2, field, block)
        target = out[start : start + block.size]
        for i in range(target.size):
            target[i] = _F32(np.int32(block[i])) * unit
    return out.reshape(height, width)


def elastic_transform(image: Array, draws: ElasticDraw, severity: int) -> Array:
    """Read every pixel from a displaced position by bilinear interpolation; the mirrored border repeats its last pixel."""
    height, width, _ = image.shape
    amount = ELASTIC[severity - 1] * 0.005 * height  # the height counts in both directions, as in imagecorruptions
    down, across = _gaussian(0.01 * height), _gaussian(0.01 * width)
    vertical = (down * amount).astype(np.float32)
    right, below = _smooth(draws.across, vertical, across), _smooth(draws.down, vertical, across)
    left, top = (math.ceil(max(field.max(), -field.min())) + 1 for field in (right, below))
    columns = _reflect(np.arange(-left, width + left + 1), width)
    rows = _reflect(np.arange(-top, height + top + 1), height)
    out = np.empty_like(image)
    _displace(image, right, below, columns, rows, (left, top), out)
    return out


def _gaussian(sigma: float) -> Array:
    """Half of a Gaussian kernel cut at three standard deviations, from its centre, padded to a multiple of four taps."""
    radius = int(3 * sigma + 0.5)
    half = np.exp(-(np.arange(radius + 1) ** 2) / (2 * sigma**2))
    return np.pad(half / (2 * half.sum() - 1), (0, -radius % 4)).astype(np.float32)


def _reflect(index: Array, size: int) -> Array:
    index = index % (2 * size)
    return np.minimum(index, 2 * size - 1 - index)


@njit(cache=True, nogil=True)
def _smooth(field: Array, down: Array, across: Array) -> Array:
    """Both passes of a separable filter, row by row; four taps at a time, so that sums are loaded and stored less."""
    height, width = field.shape
    reach = across.size - 1
    out = np.empty((height, width), np.float32)
    row = np.zeros(width + 2 * reach, np.float32)
    middle = row[reach : reach + width]
    for y in range(height):
        source = field[y]
        for x in range(width):
            middle[x] = down[0] * source[x]
        for k in range(1, down.size, 4):
            a, b = _mirror(field, y - k), _mirror(field, y + k)
            c, d = _mirror(field, y - k - 1), _mirror(field, y + k + 1)
            e, f = _mirror(field, y - k - 2), _mirror(field, y + k + 2)
            g, h = _mirror(field, y - k - 3), _mirror(field, y + k + 3)
            w0, w1, w2, w3 = down[k], down[k + 1], down[k + 2], down[k + 3]
            for x in range(width):
                middle[x] += (w0 * (a[x] + b[x]) + w1 * (c[x] + d[x])) + (w2 * (e[x] + f[x]) + w3 * (g[x] + h[x]))
        for x in range(min(reach, width)):
            row[reach - 1 - x], row[reach + width + x] = middle[x], middle[width - 1 - x]
        target = out[y]
        for x in range(width):
            target[x] = across[0] * middle[x]
        for k in range(1, across.size, 4):
            a, b = row[reach - k :], row[reach + k :]
            c, d = row[reach - k - 1 :], row[reach + k + 1 :]
            e, f = row[reach - k - 2 :], row[reach + k + 2 :]
            g, h = row[reach - k - 3 :], row[reach + k + 3 :]
            w0, w1, w2, w3 = across[k], across[k + 1], across[k + 2], across[k + 3]
            for x in range(width):
                target[x] += (w0 * (a[x] + b[x]) + w1 * (c[x] + d[x])) + (w2 * (e[x] + f[x]) + w3 * (g[x] + h[x]))
    return out


@njit(cache=True, nogil=True)
def _mirror(field: Array, y: int) -> Array:
    height = field.shape[0]
    y = -1 - y if y < 0 else y
    y = 2 * height - 1 - y if y >= height else y
    return field[min(max(y, 0), height - 1)]


@njit(cache=True, nogil=True)
def _displace(
    image: Array, across: Array, down: Array, columns: Array, rows: Array, margin: tuple[int, int], out: Array
) -> None:
    """Read from displaced positions. Three channels share a 64-bit integer, so that one product weights them all.

    `columns` and `rows` are the pixels of the image with its mirrored border, whose `margin` is (left, top).
    """
    left, top = margin
    height, width, _ = image.shape
    packed = np.empty((rows.size, columns.size), np.uint64)
    for y in range(rows.size):
        source, target = image[rows[y]], packed[y]
        for x in range(columns.size):
            pixel = source[columns[x]]
            target[x] = (
                np.uint64(pixel[0]) | np.uint64(pixel[1]) << np.uint64(21) | np.uint64(pixel[2]) << np.uint64(42)
            )
    flat, stride = packed.reshape(-1), columns.size
    at, right, below = np.empty(width, np.uint32), np.empty(width, np.uint32), np.empty(width, np.uint32)
    rounding, one, low = np.uint64(32 << 42 | 32 << 21 | 32), np.uint64(8192), np.uint64(255)
    for y in range(height):
        across_row, down_row, target = across[y], down[y], out[y]
        for x in range(width):
            v, u = _F32(y + top) + down_row[x], _F32(x + left) + across_row[x]
            row, column = np.int32(v), np.int32(u)
            at[x] = row * stride + column
            right[x], below[x] = np.int32((u - _F32(column)) * _F32(8192)), np.int32((v - _F32(row)) * _F32(8192))
        for x in range(width):
            a, b, here = np.uint64(right[x]), np.uint64(below[x]), np.uint64(at[x])
            product = (a * b) >> np.uint64(13)
            under = here + np.uint64(stride)
            total = (
                flat[here] * (one - a - b + product)
                + flat[here + np.uint64(1)] * (a - product)
                + flat[under] * (b - product)
                + flat[under + np.uint64(1)] * product
                + rounding
            )
            target[x, 0] = (total >> np.uint64(13)) & low
            target[x, 1] = (total >> np.uint64(34)) & low
            target[x, 2] = total >> np.uint64(55)
