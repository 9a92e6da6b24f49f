"""Where randomness comes from: a hash of what an image is and what is done to it, never a global state."""

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
    """Which of the 15 an image gets at a severity, each equally likely.

    >>> draw(0, 1, 1), draw(0, 1, 3), draw(0, 2, 1)
    ('brightness', 'brightness', 'impulse_noise')
    """
    numbers = (whole("seed", seed), whole("image id", image_id), known_severity(severity))
    return CORRUPTIONS[_hash(b"saod-ray draw", *numbers) % len(CORRUPTIONS)]


def whole(what: str, value: int) -> int:
    """A whole number; 1.5 and True are none, because two images would become one."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise SaodError(f"The {what} of a corruption is a whole number, not {value!r}.") from None


def known_severity(severity: int) -> int:
    """One of the five severities."""
    if isinstance(severity, bool | np.bool_ | np.ndarray) or severity not in SEVERITIES:
        raise SaodError(f"The severity of a corruption is 1, 2, 3, 4 or 5, not {severity!r}.")
    return int(severity)


def generator(seed: int, image_id: int, corruption: str, severity: int) -> np.random.Generator:
    """The generator of one corrupted image; numpy promises that SFC64's raw words stay what they are."""
    numbers = (whole("seed", seed), whole("image id", image_id))
    key = _hash(b"saod-ray pixels", *numbers, corruption, severity)
    return np.random.Generator(np.random.SFC64(key))


def raw(rng: np.random.Generator) -> int:
    """The next 64 random bits."""
    return int(rng.bit_generator.random_raw())


def uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number in [low, high), from raw bits because numpy may change its distributions but not its words."""
    return low + (high - low) * (raw(rng) >> 11) * 2.0**-53


def below(rng: np.random.Generator, bound: int) -> int:
    """A whole number in [0, bound); the bias of the remainder is under bound / 2**64."""
    return raw(rng) % bound


def key(rng: np.random.Generator) -> tuple[np.uint32, np.uint32]:
    """The key of a field of noise, expanded by `threefry`."""
    word = raw(rng)
    return np.uint32(word & 0xFFFFFFFF), np.uint32(word >> 32)


@njit(cache=True, nogil=True, inline="always")
def _mixed(x: np.uint32, y: np.uint32, turn: int) -> np.uint32:
    return _U32(_U32((y << _U32(turn)) | (y >> _U32(32 - turn))) ^ x)


@njit(cache=True, nogil=True)
def threefry(k0: np.uint32, k1: np.uint32, start: int, field: int, block: Array) -> None:
    """Fill a block with Threefry-2x32-13 of the counters (start, field), (start + 1, field), …

    Kernels in other files compile this in: after a change here their caches (`__pycache__/*.nb?`) must go.
    A counter-based generator has no state that one word must wait for, so that the loop runs in vector lanes.
    First words go in the block's first half and second words in its second. The key is two words of 32 bits:
    split from a wider one in here, it would make the compiler use wider lanes.
    """
    k2 = _U32(k0 ^ k1 ^ _U32(0x1BD11BDA))
    half = block.size // 2
    for i in range(half):
        x, y = _U32(_U32(start + i) + k0), _U32(_U32(field) + k1)
        x = _U32(x + y)
        y = _mixed(x, y, 13)
        x = _U32(x + y)
        y = _mixed(x, y, 15)
        x = _U32(x + y)
        y = _mixed(x, y, 26)
        x = _U32(x + y)
        y = _mixed(x, y, 6)
        x, y = _U32(x + k1), _U32(y + k2 + _U32(1))
        x = _U32(x + y)
        y = _mixed(x, y, 17)
        x = _U32(x + y)
        y = _mixed(x, y, 29)
        x = _U32(x + y)
        y = _mixed(x, y, 16)
        x = _U32(x + y)
        y = _mixed(x, y, 24)
        x, y = _U32(x + k2), _U32(y + k0 + _U32(2))
        x = _U32(x + y)
        y = _mixed(x, y, 13)
        x = _U32(x + y)
        y = _mixed(x, y, 15)
        x = _U32(x + y)
        y = _mixed(x, y, 26)
        x = _U32(x + y)
        y = _mixed(x, y, 6)
        x, y = _U32(x + k0), _U32(y + k1 + _U32(3))
        x = _U32(x + y)
        y = _mixed(x, y, 17)
        block[i], block[half + i] = x, y


def words(rng: np.random.Generator, count: int) -> Array:
    """At least `count` random 32-bit words, an even number."""
    block = np.empty(count + count % 2, np.uint32)
    threefry(*key(rng), 0, 0, block)
    return block


def normals(rng: np.random.Generator, *shape: int) -> Array:
    """Standard normal noise, from words of our own because numpy may change how it draws them.

    The distribution's 65,536 quantiles are exact; between two neighbours it is taken to be uniform.
    """
    out = np.empty(shape, np.float32)
    _spread(words(rng, out.size), _quantiles(), out.reshape(-1))
    return out


@cache
def _quantiles() -> Array:
    quantiles = ndtri(np.arange(65537) / 65536)
    last = quantiles[-2]
    mean = 65536 * np.exp(-(last**2) / 2) / np.sqrt(2 * np.pi)  # of what lies beyond it
    quantiles[-1] = 2 * mean - last
    quantiles[0] = -quantiles[-1]
    return quantiles.astype(np.float32)


@njit(cache=True, nogil=True)
def _spread(word: Array, quantiles: Array, out: Array) -> None:
    for i in range(out.size):
        cell = np.int64(word[i] >> _U32(16))
        part = np.float32(word[i] & _U32(0xFFFF)) * np.float32(2.0**-16)
        out[i] = quantiles[cell] + part * (quantiles[cell + 1] - quantiles[cell])
