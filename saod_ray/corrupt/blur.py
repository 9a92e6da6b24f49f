"""Defocus, motion and Gaussian blur in 16-bit fixed point, of which a CPU multiplies 16 or 32 at a time.

Pixels are interleaved bytes: the next pixel is three bytes further.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from saod_ray.corrupt.draw import uniform
from saod_ray.corrupt.streak import streak

Array = np.ndarray
Pair = tuple[Array, Array]
_U16, _U32 = np.uint16, np.uint32
GAUSSIAN = (1, 2, 3, 4, 6)  # standard deviation
MOTION = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))  # radius, standard deviation
DEFOCUS = (
    (3, 0.1),
    (4, 0.5),
    (6, 0.5),
    (8, 0.5),
    (10, 0.5),
)  # radius of the disk, and standard deviation of its soft edge


@njit(cache=True, nogil=True, inline="always")
def _times(value: Any, weight: Any) -> Any:
    """The 32-bit product of 16-bit numbers; without the explicit types the compiler uses 64 bits."""
    return _U32(_U32(_U16(value)) * _U32(weight))


@njit(cache=True, nogil=True)
def _add_pairs(first: Pair, second: Pair, third: Pair, fourth: Pair, taps: Array, sums: Array) -> None:
    """Add four taps of a symmetric kernel at a time, so that sums are loaded and stored less."""
    (a, b), (c, d), (e, f), (g, h) = first, second, third, fourth
    w0, w1, w2, w3 = taps[0], taps[1], taps[2], taps[3]
    for x in range(sums.size):
        products = _U32(_times(a[x] + b[x], w0) + _times(c[x] + d[x], w1))
        products += _U32(_times(e[x] + f[x], w2) + _times(g[x] + h[x], w3))
        sums[x] += _U16(_U32(products) >> _U32(16))


@njit(cache=True, nogil=True)
def _to_bytes(sums: Array, out: Array) -> None:
    """Convert from seven fractional bits to bytes, clipped at white."""
    for x in range(out.size):
        out[x] = min(sums[x], _U16(255 * 128)) >> _U16(7)


def gaussian_blur(image: Array, draws: None, severity: int) -> Array:
    """A Gaussian kernel cut at four standard deviations; the border is repeated."""
    out = np.empty_like(image)
    height = image.shape[0]
    _separable(image.reshape(height, -1), _gaussian_taps(GAUSSIAN[severity - 1]), out.reshape(height, -1))
    return out


@lru_cache(maxsize=8)
def _gaussian_taps(sigma: int) -> Array:
    """Half of the taps from the centre, in units of 2**-16; without the central one their number is a multiple of four."""
    radius = 4 * sigma
    half = np.exp(-(np.arange(radius + 1) ** 2) / (2 * sigma**2))
    taps = np.round(half / (2 * half.sum() - 1) * 65536).astype(np.int64)
    taps[0] = 65536 - 2 * taps[1:].sum()
    return taps.astype(np.uint16)


@njit(cache=True, nogil=True)
def _separable(image: Array, taps: Array, out: Array) -> None:
    """Both passes of the filter, row by row, with seven fractional bits; the bias compensates for truncation."""
    height, n = image.shape
    radius = taps.size - 1
    bias = _U16(radius // 8 + 2)
    row = np.empty(n + 6 * radius, np.uint16)
    across = np.empty(n, np.uint16)
    middle = row[3 * radius : 3 * radius + n]
    for y in range(height):
        source = image[y]
        for x in range(n):
            middle[x] = bias + _U16(_times(source[x], taps[0]) >> _U32(9))
        for k in range(1, radius + 1, 4):
            a, b = image[max(y - k, 0)], image[min(y + k, height - 1)]
            c, d = image[max(y - k - 1, 0)], image[min(y + k + 1, height - 1)]
            e, f = image[max(y - k - 2, 0)], image[min(y + k + 2, height - 1)]
            g, h = image[max(y - k - 3, 0)], image[min(y + k + 3, height - 1)]
            w0, w1, w2, w3 = taps[k], taps[k + 1], taps[k + 2], taps[k + 3]
            for x in range(n):
                products = _U32(_times(_U16(a[x]) + _U16(b[x]), w0) + _times(_U16(c[x]) + _U16(d[x]), w1))
                products += _U32(_times(_U16(e[x]) + _U16(f[x]), w2) + _times(_U16(g[x]) + _U16(h[x]), w3))
                middle[x] += _U16(_U32(products) >> _U32(9))
        for x in range(3 * radius):
            row[x], row[3 * radius + n + x] = middle[x % 3], middle[n - 3 + x % 3]
        for x in range(n):
            across[x] = bias + _U16(_times(middle[x], taps[0]) >> _U32(16))
        for k in range(1, radius + 1, 4):
            first, second = _shifted(row, k, radius, n), _shifted(row, k + 1, radius, n)
            third, fourth = _shifted(row, k + 2, radius, n), _shifted(row, k + 3, radius, n)
            _add_pairs(first, second, third, fourth, taps[k : k + 4], across)
        _to_bytes(across, out[y])


@njit(cache=True, nogil=True)
def _shifted(row: Array, distance: int, radius: int, n: int) -> Pair:
    """A row with a border of `radius` pixels, shifted by so many pixels to the left and to the right."""
    left, right = 3 * (radius - distance), 3 * (radius + distance)
    return row[left : left + n], row[right : right + n]


def motion_draw(rng: np.random.Generator, height: int, width: int, severity: int) -> float:
    """The angle in degrees."""
    return uniform(rng, -45, 45)


def motion_blur(image: Array, angle: float, severity: int) -> Array:
    """A half Gaussian along a line; the border is repeated."""
    height, width, _ = image.shape
    offsets, weights = streak(*MOTION[severity - 1], angle, height, width)
    taps = np.round(weights * 65536).astype(np.int64)
    is_positive = taps > 0
    if weights.all():  # no tap was dropped, so rounding must not darken the image
        taps[0] += 65536 - taps.sum()
    padding = -int(is_positive.sum()) % 4
    offsets = np.pad(offsets[is_positive], ((0, padding), (0, 0)))
    taps = np.pad(taps[is_positive], (0, padding)).astype(np.uint16)
    out = np.empty_like(image)
    _motion(image.reshape(height, -1), offsets, taps, out.reshape(height, -1))
    return out


@njit(cache=True, nogil=True)
def _motion(image: Array, offsets: Array, taps: Array, out: Array) -> None:
    """Weighted sum of shifted copies with eight fractional bits; the number of taps is a multiple of four."""
    height, n = image.shape
    left, right = -3 * min(0, offsets[:, 1].min()), 3 * max(0, offsets[:, 1].max())
    padded = np.empty((height, left + n + right), np.uint8)
    for y in range(height):
        padded[y, left : left + n] = image[y]
        for x in range(left):
            padded[y, x] = image[y, x % 3]
        for x in range(right):
            padded[y, left + n + x] = image[y, n - 3 + x % 3]
    sums = np.empty(n, np.uint16)
    for y in range(height):
        sums[:] = taps.size // 8 + 4
        for k in range(0, taps.size, 4):
            a = padded[min(max(y + offsets[k, 0], 0), height - 1), left + 3 * offsets[k, 1] :]
            b = padded[min(max(y + offsets[k + 1, 0], 0), height - 1), left + 3 * offsets[k + 1, 1] :]
            c = padded[min(max(y + offsets[k + 2, 0], 0), height - 1), left + 3 * offsets[k + 2, 1] :]
            d = padded[min(max(y + offsets[k + 3, 0], 0), height - 1), left + 3 * offsets[k + 3, 1] :]
            w0, w1, w2, w3 = taps[k], taps[k + 1], taps[k + 2], taps[k + 3]
            for x in range(n):
                products = _times(a[x], w0) + _times(b[x], w1) + _times(c[x], w2) + _times(d[x], w3)
                sums[x] += _U16(_U32(products) >> _U32(8))
        target = out[y]
        for x in range(n):
            target[x] = sums[x] >> _U16(8)


def defocus_blur(image: Array, draws: None, severity: int) -> Array:
    """A disk with a soft edge; the mirrored border does not repeat its last pixel. Severities 4 and 5 brighten the image."""
    height, width, _ = image.shape
    runs, weights, reach, scale = _disk_runs(severity)
    rows, columns = (
        mirror(np.arange(-reach, height + reach), height),
        mirror(np.arange(-reach, width + reach), width),
    )
    out = np.empty_like(image)
    _sum_runs(_with_border(image, rows, columns), reach, runs, weights, scale, out.reshape(height, -1))
    return out


def mirror(index: Array, size: int) -> Array:
    """Map indices beyond an axis of `size` pixels into it, by mirroring without repeating the last pixel."""
    period = max(2 * size - 2, 1)
    index = np.abs(index) % period
    return np.minimum(index, period - index)


def _disk(radius: int, softness: float) -> Array:
    """The kernel of imagecorruptions. Its grid is too small for the soft edge at radius 8 and 10: it sums to more than 1."""
    reach = max(8, radius)
    across = np.arange(-reach, reach + 1)
    disk = (across[:, None] ** 2 + across[None, :] ** 2 <= radius**2).astype(np.float64)
    disk /= disk.sum()
    size = 1 if radius <= 8 else 2
    edge = np.exp(-(np.arange(-size, size + 1) ** 2) / (2 * softness**2))
    edge /= edge.sum()
    padded = np.pad(disk, size, mode="reflect")
    for _ in range(2):
        padded = np.array([np.convolve(line, edge, mode="same") for line in padded]).T
    return padded[size:-size, size:-size]


@lru_cache(maxsize=8)
def _disk_runs(severity: int) -> tuple[Array, Array, int, np.uint16]:
    """The kernel as vertical runs: their (half-length, column) and weights, the kernel's reach, and a scale.

    Each column of the kernel decreases from its centre to its ends in a few steps, and each step ends a run. A run
    stands for both sides of the central column. Sums are scaled to use 16 bits; the number of runs is a multiple of four.
    """
    kernel = _disk(*DEFOCUS[severity - 1])
    half = kernel[kernel.shape[0] // 2 :, kernel.shape[0] // 2 :]
    half[:, 0] /= 2  # the central column is its own mirror image
    reach = int(np.flatnonzero(half[:, 0] > 1e-7).max())
    shift = 16 - (2 * 255 * (2 * reach + 1)).bit_length()
    steps = np.round((half - np.pad(half[1:], ((0, 1), (0, 0)))) * 2.0 ** (23 - shift)).astype(np.int64)
    runs = np.argwhere(steps)
    weights = steps[runs[:, 0], runs[:, 1]]
    padding = -len(runs) % 4
    padded = np.pad(runs, ((0, padding), (0, 0)))
    return padded, np.pad(weights, (0, padding)).astype(np.uint16), reach, _U16(1 << shift)


@njit(cache=True, nogil=True)
def _with_border(image: Array, rows: Array, columns: Array) -> Array:
    """The image with a border: `rows` and `columns` are the source pixels of the result, consecutive within the image."""
    width = image.shape[1]
    left = (columns.size - width) // 2
    out = np.empty((rows.size, 3 * columns.size), np.uint8)
    for y in range(rows.size):
        source, target = image[rows[y]], out[y]
        target[3 * left : 3 * (left + width)] = source.reshape(-1)
        for x in range(left):
            for c in range(3):
                target[3 * x + c] = source[columns[x], c]
                target[3 * (left + width + x) + c] = source[columns[left + width + x], c]
    return out


@njit(cache=True, nogil=True)
def _sum_runs(framed: Array, reach: int, runs: Array, weights: Array, scale: np.uint16, out: Array) -> None:
    """Row by row, sum over runs of every length, and then add up these sums by their weights."""
    height, n = out.shape
    lengths = np.empty((reach + 1, framed.shape[1]), np.uint16)
    sums = np.empty(n, np.uint16)
    for y in range(height):
        _scale_row(framed[y + reach], scale, lengths[0])
        for j in range(1, reach + 1):
            _extend_runs(lengths[j - 1], framed[y + reach - j], framed[y + reach + j], scale, lengths[j])
        sums[:] = weights.size // 8 + 4
        for k in range(0, weights.size, 4):
            first = _shifted(lengths[runs[k, 0]], runs[k, 1], reach, n)
            second = _shifted(lengths[runs[k + 1, 0]], runs[k + 1, 1], reach, n)
            third = _shifted(lengths[runs[k + 2, 0]], runs[k + 2, 1], reach, n)
            fourth = _shifted(lengths[runs[k + 3, 0]], runs[k + 3, 1], reach, n)
            _add_pairs(first, second, third, fourth, weights[k : k + 4], sums)
        _to_bytes(sums, out[y])


@njit(cache=True, nogil=True)
def _scale_row(row: Array, scale: np.uint16, out: Array) -> None:
    for x in range(out.size):
        out[x] = _U16(row[x]) * scale


@njit(cache=True, nogil=True)
def _extend_runs(shorter: Array, above: Array, below: Array, scale: np.uint16, out: Array) -> None:
    """Sums of runs that are one pixel longer at both ends."""
    for x in range(out.size):
        out[x] = shorter[x] + (_U16(above[x]) + _U16(below[x])) * scale
