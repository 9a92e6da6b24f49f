"""What is random has the library's distribution: a noise's is in its table, the rest is here."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from saod_ray.corrupt import textures
from saod_ray.corrupt.draw import below, generator, normals, uniform, words
from saod_ray.corrupt.pipeline import STEPS

SIZE = (200, 301)


def rng(image_id: int = 0) -> np.random.Generator:
    return generator(seed=7, image_id=image_id, corruption="test", severity=1)


def drawn(name: str, severity: int = 3, count: int = 1) -> list:
    return [STEPS[name].draws(rng(image_id), *SIZE, severity) for image_id in range(count)]


def test_normals_are_normal() -> None:
    noise = normals(rng(), 1000, 1000).ravel().astype(np.float64)
    counts, _ = np.histogram(stats.norm.cdf(noise), bins=500, range=(0, 1))
    assert stats.chisquare(counts).pvalue > 1e-3
    far = [(np.abs(noise) > z).sum() for z in (3, 3.5, 4, 4.3)]
    expected = [2 * stats.norm.sf(z) * noise.size for z in (3, 3.5, 4, 4.3)]
    assert all(
        stats.poisson.cdf(n, e) > 1e-4 and stats.poisson.sf(n - 1, e) > 1e-4 for n, e in zip(far, expected, strict=True)
    )
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5e-3


def test_numbers_below_and_within_are_uniform() -> None:
    source = rng()
    assert stats.chisquare(np.bincount([below(source, 7) for _ in range(20_000)])).pvalue > 1e-3
    assert stats.kstest([uniform(source, -45, 45) for _ in range(20_000)], stats.uniform(-45, 90).cdf).pvalue > 1e-3


def test_words_are_uniform_in_every_byte() -> None:
    some = words(rng(), 200_001).view(np.uint8).reshape(-1, 4)
    assert len(some) >= 200_001
    for byte in some.T:
        assert stats.chisquare(np.bincount(byte, minlength=256)).pvalue > 1e-3


@pytest.mark.parametrize(("name", "low", "high"), [("motion_blur", -45, 45), ("snow", -135, -45)])
def test_angles_are_uniform(name: str, low: float, high: float) -> None:
    angles = [draws if name == "motion_blur" else draws.angle for draws in drawn(name, count=2000)]
    assert stats.kstest(angles, stats.uniform(low, high - low).cdf).pvalue > 1e-3


def test_an_elastic_fields_noise_is_uniform_and_its_two_directions_are_independent() -> None:
    (draws,) = drawn("elastic_transform")
    for field in draws:
        assert field.shape == SIZE
        assert stats.kstest(field.ravel(), stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(draws.across.ravel(), draws.down.ravel())[0, 1]) < 0.02


def test_a_plasmas_wibbles_are_uniform() -> None:
    (wibbles,) = drawn("fog")
    assert wibbles.size == 512 * 512 - 1 and wibbles.dtype == np.int16
    assert stats.kstest((wibbles + 0.5) / 32768, stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_frost_takes_each_of_five_textures_and_every_place_of_it() -> None:
    draws = drawn("frost", count=4000)
    assert stats.chisquare(np.bincount([each.texture for each in draws])).pvalue > 1e-3
    for index in range(5):
        rows, columns = textures.size_for(index, *SIZE)
        mine = [each for each in draws if each.texture == index]
        for places, room in (
            ([each.top for each in mine], rows - SIZE[0]),
            ([each.left for each in mine], columns - SIZE[1]),
        ):
            assert min(places) >= 0 and max(places) < room
            assert stats.kstest((np.array(places) + 0.5) / room, stats.uniform.cdf).pvalue > 1e-4
