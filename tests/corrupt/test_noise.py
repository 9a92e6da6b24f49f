"""The noises' tables are the formula's distribution, and their sampler follows the tables."""

from __future__ import annotations

import library
import numpy as np
import pytest
from scipy import stats

from saod_ray.corrupt.draw import generator, threefry
from saod_ray.corrupt.noise import NOISES, alias_table, apply_noise

Array = np.ndarray
EVERY = [(name, severity) for name in NOISES for severity in range(1, 6)]
LEVELS = (0, 1, 2, 40, 127, 128, 200, 254, 255)


def probabilities(name: str, severity: int) -> Array:
    noise = NOISES[name]
    return noise.probabilities(noise.strengths[severity - 1])


def p_value(counts: Array, expected: Array) -> float:
    """Chi-square with the rare levels put together; an impossible level must not occur."""
    assert not counts[expected == 0].any()
    common = expected >= 10
    counts, expected = (np.append(each[common], each[~common].sum()) for each in (counts, expected))
    if expected[-1] < 10:
        counts, expected = counts[:-1], expected[:-1]
    return float(stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue) if len(counts) > 1 else 1.0


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_a_row_is_a_distribution(name: str, severity: int) -> None:
    table = probabilities(name, severity)
    assert table.min() >= 0
    assert np.allclose(table.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_the_alias_table_holds_the_probabilities(name: str, severity: int) -> None:
    """Read back from thresholds and aliases, no probability is off by more than 256 units of 2**-32."""
    entries = alias_table(name, severity).reshape(256, 256).astype(np.int64)
    rows = np.arange(256)[:, None]
    shares = np.zeros((256, 256), np.int64)
    shares += entries >> 8
    np.add.at(shares, (rows, entries & 255), 2**24 - (entries >> 8))
    assert np.abs(shares / 2.0**32 - probabilities(name, severity)).max() <= 256 / 2.0**32


def stripes() -> Array:
    """Four rows of every level: 120,000 bytes each, and more rows than the library's least 32."""
    return np.broadcast_to(np.repeat(np.array(LEVELS, np.uint8), 4)[:, None, None], (4 * len(LEVELS), 10_000, 3)).copy()


def agreement(out: Array, table: Array) -> float:
    """The smallest p-value over the levels, times their number."""
    bands = out.reshape(len(LEVELS), -1)
    values = [
        p_value(np.bincount(band, minlength=256), table[level] * band.size)
        for level, band in zip(LEVELS, bands, strict=True)
    ]
    return min(values) * len(LEVELS)


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_the_sampler_follows_the_table(name: str, severity: int) -> None:
    out = apply_noise(name, stripes(), (np.uint32(severity), np.uint32(17)), severity)
    assert agreement(out, probabilities(name, severity)) > 1e-3


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_the_library_follows_the_table(name: str, severity: int) -> None:
    out = library.corrupted(stripes(), name, severity, seed=severity)
    assert agreement(out, probabilities(name, severity)) > 1e-3


def test_the_chi_square_would_notice() -> None:
    """Two hundredths more noise is seen in as many bytes."""
    out = apply_noise("gaussian_noise", stripes(), (np.uint32(1), np.uint32(17)), 3)
    assert agreement(out, NOISES["gaussian_noise"].probabilities(0.18 * 1.02)) < 1e-3


def test_bytes_are_independent() -> None:
    """Neighbours' levels together are as often as each times the other."""
    image = np.full((1, 400_001, 1), 128, np.uint8)
    out = apply_noise("gaussian_noise", image, (np.uint32(3), np.uint32(4)), 3).ravel() // 32
    for lag in (1, 2, 3, 1024, 2048):
        pairs = np.bincount(out[:-lag] * 8 + out[lag:], minlength=64).reshape(8, 8)
        assert stats.chi2_contingency(pairs).pvalue > 1e-4


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0xFD36D048, 0x2D17272C)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xBA3E4725, 0xF27D669E)),
    ],
)
def test_threefry_gives_its_published_words(counter: tuple, key: tuple, expected: tuple) -> None:
    block = np.empty(2, np.uint32)
    threefry(np.uint32(key[0]), np.uint32(key[1]), *counter, block)
    assert tuple(block) == expected


def test_the_generator_is_numpys_sfc64() -> None:
    """The first raw words of a known image: they may never change."""
    rng = generator(seed=1, image_id=2, corruption="snow", severity=3)
    assert rng.bit_generator.random_raw(2).tolist() == [16776754709776249059, 8339371055069833233]
