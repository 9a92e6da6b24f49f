"""The four kinds of noise. Each replaces a byte by a random level that depends only on its old level.

So a noise is a table: the exact probability of each of the 256 new levels, for each of the 256 old ones. Sampling from
it by the alias method takes the same time for every noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.special import ndtr, pdtr

from saod_ray.corrupt.draw import key, threefry

Array = np.ndarray
PEPPER, KEPT, SALT = 0, 1, 2
_U32 = np.uint32
_BLOCK = 2048  # words generated at a time; they fit the L1 cache


class Noise(NamedTuple):
    """One kind of noise; `strengths` are the parameter c at severities 1 to 5.

    `level(image, draws, c)` is the formula of imagecorruptions for given random draws, and `probabilities(c)` the
    (256, 256) table that results from it: old level by new level.
    """

    strengths: tuple[float, ...]
    level: Callable[[Array, Array, float], Array]
    probabilities: Callable[[float], Array]


def _levels(x: Array) -> Array:
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)  # truncated, as in imagecorruptions


def _gaussian_level(image: Array, noise: Array, c: float) -> Array:
    return _levels(image / 255.0 + noise)


def _speckle_level(image: Array, noise: Array, c: float) -> Array:
    x = image / 255.0
    return _levels(x + x * noise)


def _shot_level(image: Array, counts: Array, c: float) -> Array:
    return _levels(counts / float(c))


def _impulse_level(image: Array, kind: Array, c: float) -> Array:
    return _levels(np.where(kind == KEPT, image / 255.0, kind / 2))


def _gaussian_probabilities(c: float) -> Array:
    return _normal_probabilities(np.full(256, c))


def _speckle_probabilities(c: float) -> Array:
    return _normal_probabilities(c * np.arange(256) / 255)


def _normal_probabilities(deviation: Array) -> Array:
    """The table of normal noise: level j is reached if the noise is at least (j - x) / 255."""
    x, j = np.arange(256)[:, None], np.arange(1, 256)[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (x - j) / 255 / deviation[:, None]
    at_least = np.where(deviation[:, None] > 0, ndtr(z), x >= j)
    return -np.diff(at_least, prepend=1.0, append=0.0)


def _shot_probabilities(c: float) -> Array:
    x = np.arange(256)[:, None]
    counts = np.arange(int(c) + 1)
    below = pdtr(counts[None, :] - 1, x / 255 * c)  # P(count < k); the last count includes all larger ones
    below[:, 0] = 0
    return _sum_by_level(_shot_level(x, counts, c), np.diff(below, append=1.0))


def _impulse_probabilities(c: float) -> Array:
    kinds = np.array([PEPPER, KEPT, SALT])
    return _sum_by_level(
        _impulse_level(np.arange(256)[:, None], kinds, c), np.broadcast_to([c / 2, 1 - c, c / 2], (256, 3))
    )


def _sum_by_level(levels: Array, weights: Array) -> Array:
    """Sum the weights of each row's draws by the level that they result in."""
    table = np.zeros((256, 256))
    np.add.at(table, (np.arange(256)[:, None], levels), weights)
    return table


NOISES = {
    "gaussian_noise": Noise((0.08, 0.12, 0.18, 0.26, 0.38), _gaussian_level, _gaussian_probabilities),
    "shot_noise": Noise((60, 25, 12, 5, 3), _shot_level, _shot_probabilities),
    "impulse_noise": Noise((0.03, 0.06, 0.09, 0.17, 0.27), _impulse_level, _impulse_probabilities),
    "speckle_noise": Noise((0.15, 0.2, 0.35, 0.45, 0.6), _speckle_level, _speckle_probabilities),
}


@lru_cache(maxsize=20)
def alias_table(name: str, severity: int) -> Array:
    """The alias table of a noise, flat uint32: 256 entries per old level, each `threshold << 8 | alias`.

    Probabilities are rounded to multiples of 2**-32 that sum to one; the rest is integer arithmetic.
    """
    noise = NOISES[name]
    probabilities = noise.probabilities(noise.strengths[severity - 1])
    shares = np.floor(probabilities * 2.0**32).astype(np.int64)
    shares[np.arange(256), probabilities.argmax(axis=1)] += 2**32 - shares.sum(axis=1)
    table = np.empty((256, 256), np.uint32)
    for level in range(256):
        _alias_row(shares[level], table[level])
    return table.ravel()


@njit(cache=True, nogil=True)
def _alias_row(share: Array, row: Array) -> None:
    full = 1 << 24
    remaining = share.copy()
    small, large = np.empty(256, np.int64), np.empty(256, np.int64)
    smalls, larges = 0, 0
    for j in range(256):
        row[j] = j  # its own alias, which stays if the column is exactly full
        if remaining[j] < full:
            small[smalls] = j
            smalls += 1
        elif remaining[j] > full:
            large[larges] = j
            larges += 1
    while smalls > 0:
        smalls -= 1
        low, high = small[smalls], large[larges - 1]
        row[low] = remaining[low] << 8 | high
        remaining[high] -= full - remaining[low]
        if remaining[high] <= full:
            larges -= 1
            if remaining[high] < full:
                small[smalls] = high
                smalls += 1


@njit(cache=True, nogil=True)
def _sample(image: Array, table: Array, k0: np.uint32, k1: np.uint32, out: Array) -> None:
    """Three short loops instead of one, so that all but the table look-up is vectorised."""
    word, entry = np.empty(_BLOCK, np.uint32), np.empty(_BLOCK, np.uint32)
    for start in range(0, image.size, _BLOCK):
        threefry(k0, k1, start // 2, 0, word)
        count = min(_BLOCK, image.size - start)
        source, target = image[start : start + count], out[start : start + count]
        for i in range(count):
            entry[i] = _U32(_U32(source[i]) << _U32(8)) | _U32(word[i] >> _U32(24))
        for i in range(count):
            entry[i] = table[np.uint64(entry[i])]
        for i in range(count):
            column, alias = np.uint8(word[i] >> _U32(24)), np.uint8(entry[i] & _U32(255))
            target[i] = column if _U32(word[i] & _U32(0xFFFFFF)) < _U32(entry[i] >> _U32(8)) else alias


def key_draw(rng: np.random.Generator, height: int, width: int, severity: int) -> tuple[np.uint32, np.uint32]:
    """The key from which noise is generated while it is applied."""
    return key(rng)


def apply_noise(name: str, image: Array, draws: tuple[np.uint32, np.uint32], severity: int) -> Array:
    """Replace every byte by a sample from its row of the noise's table."""
    out = np.empty_like(image)
    _sample(image.reshape(-1), alias_table(name, severity), *draws, out.reshape(-1))
    return out
