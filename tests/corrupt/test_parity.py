"""The same draws give imagecorruptions' pixels, or at most the level beside them."""

from __future__ import annotations

from collections.abc import Callable

import library
import numpy as np
import pictures
import pytest

from saod_ray.corrupt import CORRUPTIONS
from saod_ray.corrupt.noise import NOISES
from saod_ray.corrupt.pipeline import STEPS

Array = np.ndarray
EXACT = ("frost", "pixelate", "jpeg_compression")  # and contrast, but where a channel's mean is a whole level
PICTURES: dict[str, Callable[[], Array]] = {
    "photograph": lambda: pictures.photograph(131, 178),
    "tall photograph": lambda: pictures.photograph(257, 97, seed=1),
    "small": lambda: pictures.photograph(33, 47, seed=2),
    "narrow": lambda: pictures.photograph(32, 70, seed=3),
    "lines that rounding empties in snow": lambda: pictures.photograph(86, 157, seed=5),
    "noise": lambda: pictures.noise(90, 121),
    "saturated": lambda: pictures.saturated(64, 83),
    "black": lambda: pictures.flat(48, 35, (0, 0, 0)),
    "white": lambda: pictures.flat(48, 35, (255, 255, 255)),
    "one colour": lambda: pictures.flat(41, 60, (200, 31, 7)),
    "checks": lambda: np.repeat(np.where(np.indices((40, 64)).sum(0) % 2, 95, 105)[..., None], 3, 2).astype(np.uint8),
}


def difference(a: Array, b: Array) -> int:
    assert a.shape == b.shape and a.dtype == b.dtype == np.uint8
    return int(np.abs(a.astype(int) - b).max())


def allowed(name: str, picture: str) -> int:
    if name == "contrast":
        return 1 if picture in ("one colour", "checks") else 0
    return 0 if name in EXACT else 1


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in NOISES])
def test_the_pixels_are_the_librarys(name: str, picture: str) -> None:
    image = PICTURES[picture]()
    height, width, _ = image.shape
    for severity in range(1, 6):
        seed = 10 * severity + len(picture)
        drawn = library.draws(name, height, width, severity, seed)
        got = STEPS[name].apply(image, drawn, severity)
        assert difference(got, library.corrupted(image, name, severity, seed)) <= allowed(name, picture), severity


@pytest.mark.parametrize("name", ["elastic_transform", "fog", "snow", "motion_blur", "defocus_blur", "gaussian_blur"])
def test_the_pixels_are_the_librarys_on_a_large_image(name: str) -> None:
    """Where sums are longest, displacements largest and the fractal has most levels."""
    image = pictures.photograph(481, 642, seed=4)
    drawn = library.draws(name, 481, 642, 5, 9)
    got = STEPS[name].apply(image, drawn, 5)
    expected = library.corrupted(image, name, 5, 9)
    assert difference(got, expected) == 1
    assert abs((got.astype(int) - expected).mean()) < 0.3  # flat areas lie on the edge of truncation


@pytest.mark.parametrize(
    ("height", "width", "grey", "severity", "seed"), [(700, 701, 25, 4, 23), (33, 33, 0, 5, 376655)]
)
def test_a_flake_is_rounded_as_the_library_does(height: int, width: int, grey: int, severity: int, seed: int) -> None:
    """Sums of flakes that lie a hair beside a half level: in single precision these were two levels off."""
    image = pictures.flat(height, width, (grey, grey, grey))
    got = STEPS["snow"].apply(image, library.draws("snow", height, width, severity, seed), severity)
    assert difference(got, library.corrupted(image, "snow", severity, seed)) <= 1


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("name", NOISES)
def test_a_noises_formula_is_the_librarys(name: str, picture: str) -> None:
    image = PICTURES[picture]()
    for severity in range(1, 6):
        level = NOISES[name].level(
            image, library.noise_draws(name, image, severity, 5), NOISES[name].strengths[severity - 1]
        )
        assert np.array_equal(level, library.corrupted(image, name, severity, 5)), severity


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_comparison_would_notice(name: str) -> None:
    """Another severity is more than a level away, so that agreement within one is not for want of change."""
    image = pictures.photograph(131, 178)
    one, three = (library.corrupted(image, name, severity) for severity in (1, 3))
    assert difference(one, three) > 1
