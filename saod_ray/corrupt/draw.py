"""Random numbers from a hash of seed, image and corruption, and never from global state."""

from __future__ import annotations

import hashlib
import operator
from functools import cache

import numpy as np
from numba import njit
from scipy.special import ndtri

from saod_ray.errors import SaodError

Array = np.ndarray
CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "defocus_blur",
    "motion_blur",
    "gaussian_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
SEVERITIES = (1, 2, 3, 4, 5)
_U32 = np.uint32


def _hash(domain: bytes, *parts: object) -> int:
    text = "\0".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16, person=domain).digest(), "little")


def draw(seed: int, image_id: int, severity: int) -> str:
    """The name of the corruption that an image gets at a severity; all 15 are equally likely.

    >>> draw(0, 1, 1), draw(0, 1, 3), draw(0, 2, 1)
    ('brightness', 'brightness', 'impulse_noise')
    """
    numbers = (check_integer("seed", seed), check_integer("image id", image_id), check_severity(severity))
    return CORRUPTIONS[_hash(b"saod-ray draw", *numbers) % len(CORRUPTIONS)]


def check_integer(what: str, value: int) -> int:
    """The value as an int. SaodError for 1.5 or True, which would give two images the same numbers."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise SaodError(f"The {what} of a corruption must be an integer, not {value!r}.") from None


def check_severity(severity: int) -> int:
    """The severity as an int. SaodError unless it is 1, 2, 3, 4 or 5."""
    if isinstance(severity, bool | np.bool_ | np.ndarray) or severity not in SEVERITIES:
        raise SaodError(f"The severity of a corruption must be 1, 2, 3, 4 or 5, not {severity!r}.")
    return int(severity)


def generator(seed: int, image_id: int, corruption: str, severity: int) -> np.random.Generator:
    """The generator for one corrupted image. numpy guarantees that SFC64's raw words never change."""
    numbers = (check_integer("seed", seed), check_integer("image id", image_id))
    key = _hash(b"saod-ray pixels", *numbers, corruption, severity)
    return np.random.Generator(np.random.SFC64(key))


def raw(rng: np.random.Generator) -> int:
    """The next 64 random bits."""
    return int(rng.bit_generator.random_raw())


def uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number in [low, high), from raw bits: numpy may change its distributions, but not its raw words."""
    return low + (high - low) * (raw(rng) >> 11) * 2.0**-53


def below(rng: np.random.Generator, bound: int) -> int:
    """An integer in [0, bound); the bias of the remainder is below bound / 2**64."""
    return raw(rng) % bound


def key(rng: np.random.Generator) -> tuple[np.uint32, np.uint32]:
    """A key from which `threefry` generates a field of noise."""
    word = raw(rng)
    return np.uint32(word & 0xFFFFFFFF), np.uint32(word >> 32)


@njit(cache=True, nogil=True, inline="always")
def _mix(x: np.uint32, y: np.uint32, turn: int) -> np.uint32:
    return _U32(_U32((y << _U32(turn)) | (y >> _U32(32 - turn))) ^ x)


@njit(cache=True, nogil=True)
def threefry(k0: np.uint32, k1: np.uint32, start: int, field: int, block: Array) -> None:
    """Fill a block (uint32) with Threefry-2x32-13 of the counters (start, field), (start + 1, field), …

    First words fill the block's first half and second words its second half. A counter-based generator carries no state
    from word to word, so that the loop is vectorised. The key is two 32-bit words because splitting a 64-bit key here
    would make the compiler use 64-bit lanes.

    Kernels in other files inline this function: after a change here delete their caches (`__pycache__/*.nb?`).
    """
    k2 = _U32(k0 ^ k1 ^ _U32(0x1BD11BDA))
    half = block.size // 2
    for i in range(half):
        x, y = _U32(_U32(start + i) + k0), _U32(_U32(field) + k1)
        x = _U32(x + y)
        y = _mix(x, y, 13)
        x = _U32(x + y)
        y = _mix(x, y, 15)
        x = _U32(x + y)
        y = _mix(x, y, 26)
        x = _U32(x + y)
        y = _mix(x, y, 6)
        x, y = _U32(x + k1), _U32(y + k2 + _U32(1))
        x = _U32(x + y)
        y = _mix(x, y, 17)
        x = _U32(x + y)
        y = _mix(x, y, 29)
        x = _U32(x + y)
        y = _mix(x, y, 16)
        x = _U32(x + y)
        y = _mix(x, y, 24)
        x, y = _U32(x + k2), _U32(y + k0 + _U32(2))
        x = _U32(x + y)
        y = _mix(x, y, 13)
        x = _U32(x + y)
        y = _mix(x, y, 15)
        x = _U32(x + y)
        y = _mix(x, y, 26)
        x = _U32(x + y)
        y = _mix(x, y, 6)
        x, y = _U32(x + k0), _U32(y + k1 + _U32(3))
        x = _U32(x + y)
        y = _mix(x, y, 17)
        block[i], block[half + i] = x, y


def words(rng: np.random.Generator, count: int) -> Array:
    """At least `count` random 32-bit words, an even number."""
    block = np.empty(count + count % 2, np.uint32)
    threefry(*key(rng), 0, 0, block)
    return block


def normals(rng: np.random.Generator, *shape: int) -> Array:
    """Standard normal noise, float32, independent of how numpy draws normal numbers.

    65,536 quantiles of the distribution are exact; between neighbours it is approximated as uniform.
    """
    out = np.empty(shape, np.float32)
    _interpolate(words(rng, out.size), _quantiles(), out.reshape(-1))
    return out


@cache
def _quantiles() -> Array:
    quantiles = ndtri(np.arange(65537) / 65536)
    last = quantiles[-2]
    mean = 65536 * np.exp(-(last**2) / 2) / np.sqrt(2 * np.pi)  # of the tail beyond it
    quantiles[-1] = 2 * mean - last
    quantiles[0] = -quantiles[-1]
    return quantiles.astype(np.float32)


@njit(cache=True, nogil=True)
def _interpolate(word: Array, quantiles: Array, out: Array) -> None:
    for i in range(out.size):
        cell = np.int64(word[i] >> _U32(16))
        part = np.float32(word[i] & _U32(0xFFFF)) * np.float32(2.0**-16)
        out[i] = quantiles[cell] + part * (quantiles[cell + 1] - quantiles[cell])
