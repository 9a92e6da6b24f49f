"""Snow, frost, fog and brightness."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from saod_ray.corrupt import textures
from saod_ray.corrupt.draw import below, normals, uniform, words
from saod_ray.corrupt.streak import streak

Array = np.ndarray
_F32 = np.float32
BRIGHTNESS = (0.1, 0.2, 0.3, 0.4, 0.5)
FROST = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))  # weights of the image and of the frost
FOG = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))  # thickness, and the decay of the wibbles


class Snow(NamedTuple):
    """Flakes are normal noise, enlarged, cut off below `threshold` and motion-blurred. The image is whitened:
    `image_weight` is the share of the original.
    """

    mean: float
    deviation: float
    zoom: float
    threshold: float
    radius: int
    sigma: float
    image_weight: float


SNOW = (
    Snow(0.1, 0.3, 3, 0.5, 10, 4, 0.8),
    Snow(0.2, 0.3, 2, 0.5, 12, 4, 0.7),
    Snow(0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    Snow(0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    Snow(0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
)


class SnowDraw(NamedTuple):
    """Standard normal noise for the centre of the image, the only part that is enlarged, and the angle of fall."""

    noise: Array
    angle: float


def snow_draw(rng: np.random.Generator, height: int, width: int, severity: int) -> SnowDraw:
    """Noise for the flakes, and the angle of fall in degrees."""
    zoom = SNOW[severity - 1].zoom
    angle = uniform(rng, -135, -45)
    return SnowDraw(normals(rng, math.ceil(height / zoom), math.ceil(width / zoom)), angle)


def snow(image: Array, draws: SnowDraw, severity: int) -> Array:
    """Whiten the image, and add the flakes and a copy of them rotated by 180 degrees."""
    c = SNOW[severity - 1]
    height, width, _ = image.shape
    noise = c.mean + c.deviation * draws.noise.astype(np.float64)
    flakes = _enlarge(noise, round(noise.shape[0] * c.zoom), round(noise.shape[1] * c.zoom), c.threshold)
    offsets, weights = streak(c.radius, c.sigma, draws.angle, *flakes.shape)
    layer = _blur_flakes(flakes, offsets, weights, height, width)
    out = np.empty_like(image)
    _add_snow(image, layer, _F32(c.image_weight), out)
    return out


@njit(cache=True, nogil=True)
def _enlarge(noise: Array, height: int, width: int, threshold: float) -> Array:
    """Bilinear interpolation in double precision, so that rounding does not move a flake across the threshold."""
    rows, columns = noise.shape
    out = np.empty((height, width))
    left, weight = np.empty(width, np.int64), np.empty(width)
    step = (columns - 1) / (width - 1) if width > 1 else 0.0
    for x in range(width):
        left[x] = max(min(int(x * step), columns - 2), 0)
        weight[x] = x * step - left[x]
    line = np.empty(columns)
    down = (rows - 1) / (height - 1) if height > 1 else 0.0
    for y in range(height):
        top = max(min(int(y * down), rows - 2), 0)
        part = y * down - top
        first, second = noise[top], noise[min(top + 1, rows - 1)]
        for x in range(columns):
            line[x] = (1 - part) * first[x] + part * second[x]
        for x in range(width):
            value = (1 - weight[x]) * line[left[x]] + weight[x] * line[min(left[x] + 1, columns - 1)]
            out[y, x] = min(value, 1.0) if value >= threshold else 0.0
    # at some sizes rounding puts the last line just outside, where imagecorruptions interpolates to zero
    if (width - 1) * step > columns - 1:
        out[:, width - 1] = 0
    if (height - 1) * down > rows - 1:
        out[height - 1] = 0
    return out


@njit(cache=True, nogil=True)
def _blur_flakes(flakes: Array, offsets: Array, weights: Array, height: int, width: int) -> Array:
    """The upper left part of the motion-blurred flakes as bytes; the border is repeated."""
    rows, columns = flakes.shape
    left, right = -min(0, offsets[:, 1].min()), max(0, offsets[:, 1].max())
    framed = np.empty((rows, left + columns + right))
    for y in range(rows):
        framed[y, left : left + columns] = flakes[y]
        framed[y, :left] = flakes[y, 0]
        framed[y, left + columns :] = flakes[y, columns - 1]
    out = np.empty((height, width), np.uint8)
    sums = np.empty(width)
    for y in range(height):
        sums[:] = 0
        for k in range(weights.size):
            weight = weights[k]
            source = framed[min(max(y + offsets[k, 0], 0), rows - 1), left + offsets[k, 1] :]
            for x in range(width):
                sums[x] += weight * source[x]
        target = out[y]
        for x in range(width):
            target[x] = np.uint8(np.rint(sums[x] * 255))
    return out


@njit(cache=True, nogil=True)
def _add_snow(image: Array, layer: Array, image_weight: np.float32, out: Array) -> None:
    height, width, _ = image.shape
    white_weight = _F32(1) - image_weight
    white, flakes = np.empty((width, 3), np.float32), np.empty((width, 3), np.float32)
    rotated = np.empty(width, np.uint8)
    for y in range(height):
        source, here, opposite = image[y], layer[y], layer[height - 1 - y]
        for x in range(width):
            rotated[x] = opposite[width - 1 - x]
        for x in range(width):
            r, g, b = _F32(source[x, 0]), _F32(source[x, 1]), _F32(source[x, 2])
            grey = (r * _F32(0.299) + g * _F32(0.587) + b * _F32(0.114)) * _F32(1.5) + _F32(127.5)
            white[x, 0], white[x, 1], white[x, 2] = grey, grey, grey
        for x in range(width):
            flake = _F32(_F32(here[x]) + _F32(rotated[x]))
            flakes[x, 0], flakes[x, 1], flakes[x, 2] = flake, flake, flake
        weights = image_weight, white_weight
        _whiten(source.reshape(-1), white.reshape(-1), flakes.reshape(-1), weights, out[y].reshape(-1))


@njit(cache=True, nogil=True)
def _whiten(source: Array, white: Array, flakes: Array, weights: tuple[np.float32, np.float32], target: Array) -> None:
    first, second = weights
    for x in range(target.size):
        value = _F32(source[x])
        target[x] = np.uint8(np.int32(min(first * value + second * max(value, white[x]) + flakes[x], _F32(255))))


class FrostDraw(NamedTuple):
    """The number of the texture, and the upper left corner of the crop that is laid over the image."""

    texture: int
    top: int
    left: int


def frost_draw(rng: np.random.Generator, height: int, width: int, severity: int) -> FrostDraw:
    """A random texture and a random crop of it."""
    texture = below(rng, len(textures.NAMES))
    rows, columns = textures.size_for(texture, height, width)
    return FrostDraw(texture, below(rng, rows - height), below(rng, columns - width))


def frost(image: Array, draws: FrostDraw, severity: int) -> Array:
    """The weighted sum of the image and a photograph of frost."""
    height, width, _ = image.shape
    texture = textures.resized(draws.texture, *textures.size_for(draws.texture, height, width))
    out = np.empty_like(image)
    first, second = FROST[severity - 1]
    _add_frost(image, texture, draws.top, draws.left, float(first), second, out)
    return out


@njit(cache=True, nogil=True)
def _add_frost(image: Array, texture: Array, top: int, left: int, first: float, second: float, out: Array) -> None:
    height, width, _ = image.shape
    for y in range(height):
        source, target = image[y].reshape(-1), out[y].reshape(-1)
        ice = texture[top + y].reshape(-1)[3 * left :]
        for x in range(3 * width):
            target[x] = np.uint8(np.int32(min(first * source[x] + second * ice[x], 255.0)))


def fog_draw(rng: np.random.Generator, height: int, width: int, severity: int) -> Array:
    """The random offsets (wibbles) of a plasma fractal from the coarsest level to the finest, uniform int16."""
    side = plasma_side(height, width)
    return words(rng, side * side // 2).view(np.int16)[: side * side - 1]


def plasma_side(height: int, width: int) -> int:
    """The power of two that covers an image."""
    return 1 << (max(height, width, 3) - 1).bit_length()  # imagecorruptions counts the channels as a side


def fog(image: Array, wibbles: Array, severity: int) -> Array:
    """Add a plasma fractal, and scale the sum so that the brightest value stays."""
    height, width, _ = image.shape
    thickness, decay = FOG[severity - 1]
    brightest = float(image.max()) / 255
    fractal, low, high = _plasma(wibbles, plasma_side(height, width), decay, height, width)
    scale = brightest / (brightest + thickness)
    out = np.empty_like(image)
    span = high - low if high > low else 1.0
    _add_fog(image, fractal, _F32(low), _F32(255 * thickness * scale / span), _F32(scale), out)
    return out


def _plasma(wibbles: Array, side: int, decay: float, height: int, width: int) -> tuple[Array, float, float]:
    """The upper left part of a diamond-square fractal on a torus, and the minimum and maximum of all of it."""
    grid = np.zeros((1, 1), np.float32)
    wibble, points, low, high = 100.0, 1, 0.0, 0.0
    while points < side:
        size = (2 * points, 2 * points) if 2 * points < side else (height, width)
        level = wibbles[points * points - 1 : 4 * points * points - 1].reshape(3, points, points)
        grid, low, high = _refine(grid, level, _F32(wibble * wibble / 32768), *size)
        points *= 2
        wibble /= decay
    return grid, low, high


@njit(cache=True, nogil=True)
def _refine(grid: Array, wibbles: Array, unit: np.float32, height: int, width: int) -> tuple[Array, float, float]:
    """Double the points per side and crop; returns also the minimum and maximum before the crop.

    The centre of a square is the mean of its corners. Then the centre of an edge is the mean of its ends and of the
    centres of the two squares that share it.
    """
    n = grid.shape[0]
    half, quarter = _F32(0.5), _F32(0.25)
    out = np.empty((height, width), np.float32)
    middle, before = (
        np.empty(n + 1, np.float32),
        np.empty(n + 1, np.float32),
    )  # beginning with a copy of the last square
    edge, side, corner, under = (
        np.empty(n, np.float32),
        np.empty(n, np.float32),
        np.empty(n + 1, np.float32),
        np.empty(n + 1, np.float32),
    )
    low, high = np.full(n, np.inf, np.float32), np.full(n, -np.inf, np.float32)
    for row in range(-1, n):
        i = row % n
        corner[:n], corner[n] = grid[i], grid[i, 0]
        j = (i + 1) % n
        under[:n], under[n] = grid[j], grid[j, 0]
        middle, before = before, middle
        wibble = wibbles[0, i]
        for x in range(n):
            total = (corner[x] + corner[x + 1]) + (under[x] + under[x + 1])
            middle[x + 1] = total * quarter + unit * (_F32(wibble[x]) + half)
        middle[0] = middle[n]
        if row < 0:
            continue
        first, second = wibbles[1, i], wibbles[2, i]
        for x in range(n):
            across = (corner[x] + corner[x + 1]) + (before[x + 1] + middle[x + 1])
            edge[x] = across * quarter + unit * (_F32(first[x]) + half)
            down = (corner[x] + under[x]) + (middle[x] + middle[x + 1])
            side[x] = down * quarter + unit * (_F32(second[x]) + half)
        for x in range(n):
            smaller, larger = min(corner[x], middle[x + 1]), max(corner[x], middle[x + 1])
            low[x] = min(low[x], min(smaller, min(edge[x], side[x])))
            high[x] = max(high[x], max(larger, max(edge[x], side[x])))
        if 2 * row < height:
            _interleave(corner, edge, out[2 * row])
        if 2 * row + 1 < height:
            _interleave(side, middle[1:], out[2 * row + 1])
    return out, low.min(), high.max()


@njit(cache=True, nogil=True)
def _interleave(even: Array, odd: Array, out: Array) -> None:
    for x in range(out.size // 2):
        out[2 * x] = even[x]
        out[2 * x + 1] = odd[x]
    if out.size % 2:
        out[out.size - 1] = even[out.size // 2]


@njit(cache=True, nogil=True)
def _add_fog(image: Array, fractal: Array, low: np.float32, fog: np.float32, scale: np.float32, out: Array) -> None:
    height, width, _ = image.shape
    thick = np.empty((width, 3), np.float32)
    for y in range(height):
        line, flat = fractal[y], thick.reshape(-1)
        for x in range(width):
            here = (line[x] - low) * fog
            thick[x, 0], thick[x, 1], thick[x, 2] = here, here, here
        source, target = image[y].reshape(-1), out[y].reshape(-1)
        for x in range(3 * width):
            target[x] = np.uint8(np.int32(min(_F32(source[x]) * scale + flat[x], _F32(255))))


def brightness(image: Array, draws: None, severity: int) -> Array:
    """Raise the value in HSV: all three channels are multiplied by the factor of the largest."""
    level = np.arange(256) / 255
    raised = np.minimum(level + BRIGHTNESS[severity - 1], 1)
    factor = np.divide(raised, level, out=np.zeros(256), where=level > 0).astype(np.float32)
    out = np.empty_like(image)
    _brighten(image, factor, _F32(raised[0] * 255), out)
    return out


@njit(cache=True, nogil=True)
def _brighten(image: Array, factor: Array, black: np.float32, out: Array) -> None:
    """Multiply channels by the factor of the largest one; black becomes grey."""
    height, width, _ = image.shape
    by, more = np.empty((width, 3), np.float32), np.empty((width, 3), np.float32)
    for y in range(height):
        pixels = image[y]
        for x in range(width):
            largest = max(pixels[x, 0], max(pixels[x, 1], pixels[x, 2]))
            by[x, 0], by[x, 1], by[x, 2] = factor[largest], factor[largest], factor[largest]
            grey = black if largest == 0 else _F32(0)
            more[x, 0], more[x, 1], more[x, 2] = grey, grey, grey
        source, target, factors, greys = pixels.reshape(-1), out[y].reshape(-1), by.reshape(-1), more.reshape(-1)
        for x in range(3 * width):
            target[x] = np.uint8(np.int32(min(_F32(source[x]) * factors[x] + greys[x], _F32(255))))
