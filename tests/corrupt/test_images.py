"""Every corruption takes every image there is, and says what is wrong with what is not one."""

from __future__ import annotations

import cv2
import numpy as np
import pictures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saod_ray.corrupt import CORRUPTIONS, as_rgb, corrupt, draw, textures
from saod_ray.corrupt.draw import SEVERITIES
from saod_ray.errors import SaodError

Array = np.ndarray


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([(), (1,), (3,), (4,)]),
    st.sampled_from([np.uint8, np.uint16]),
    st.integers(0, 2**32),
)
def test_any_shape(height: int, width: int, channels: tuple[int, ...], dtype: type, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, (height, width, *channels)).astype(dtype)
    before = image.copy()
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            out = corrupt(image, name, severity, seed, 1)
            assert out.shape == (height, width, 3) and out.dtype == np.uint8
            assert not np.shares_memory(out, image)
            assert np.array_equal(image, before)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_grey_rgba_16_bits_read_only_and_strided_images_are_the_same_image(name: str) -> None:
    rgb = pictures.photograph(34, 45)
    rgb[:, :, 1:] = rgb[:, :, :1]
    grey = rgb[:, :, 0]
    rgba = np.dstack([rgb, np.full(grey.shape, 7, np.uint8)])
    frozen = rgb.copy()
    frozen.flags.writeable = False
    wide = rgb.astype(np.uint16) * 256 + 201
    expected = corrupt(rgb, name, 4, 0, 0)
    for same in (grey, grey[:, :, None], rgba, frozen, wide, rgba[:, :, :3], rgb[::-1][::-1]):
        assert np.array_equal(corrupt(same, name, 4, 0, 0), expected)


def test_16_bits_become_8_as_opencv_reads_them() -> None:
    deep = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1).repeat(3, axis=2)
    png = cv2.imencode(".png", deep)[1]
    assert np.array_equal(as_rgb(deep), cv2.imdecode(png, cv2.IMREAD_COLOR))


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (90, 140, 200)])
@pytest.mark.parametrize("side", [1, 2, 5, 20, 31])
def test_blurs_keep_a_flat_image_however_small(side: int, colour: tuple[int, int, int]) -> None:
    """The library's motion blur turns small images dark."""
    image = pictures.flat(side, side, colour)
    for name in ("motion_blur", "gaussian_blur", "elastic_transform", "pixelate"):
        for severity in SEVERITIES:
            assert np.array_equal(corrupt(image, name, severity, 1, 1), image), (name, severity)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((8, 8, 3)),
        np.zeros((8, 8, 3), np.int16),
        np.zeros((8, 8, 2), np.uint8),
        np.zeros((8, 8, 3, 1), np.uint8),
        np.zeros(8, np.uint8),
        np.zeros((0, 8, 3), np.uint8),
        [[1, 2], [3, 4]],
        None,
    ],
)
def test_what_is_not_an_image_is_refused(image: Array) -> None:
    with pytest.raises(SaodError, match="An image must be"):
        corrupt(image, "fog", 1, 0, 0)


def test_an_unknown_corruption_is_refused_with_a_hint() -> None:
    with pytest.raises(SaodError, match="no corruption 'gausian_noise' \\(did you mean 'gaussian_noise'\\?\\)"):
        corrupt(pictures.flat(8, 8, (1, 2, 3)), "gausian_noise", 1, 0, 0)


@pytest.mark.parametrize("severity", [0, 6, -1, "3", None, 2.5, True, np.array([3]), np.array([1, 2])])
def test_an_unknown_severity_is_refused(severity: int) -> None:
    with pytest.raises(SaodError, match=r"1, 2, 3, 4 or 5, not"):
        corrupt(pictures.flat(8, 8, (1, 2, 3)), "fog", severity, 0, 0)
    with pytest.raises(SaodError, match=r"1, 2, 3, 4 or 5, not"):
        draw(0, 0, severity)


@pytest.mark.parametrize("value", [None, "7", 1.7, float("nan"), True, "a.jpg"])
def test_seeds_and_image_ids_are_whole_numbers(value: int) -> None:
    image = pictures.flat(8, 8, (1, 2, 3))
    for work in (lambda: corrupt(image, "fog", 1, 0, value), lambda: draw(0, value, 1)):
        with pytest.raises(SaodError, match="The image id of a corruption must be an integer, not"):
            work()
    with pytest.raises(SaodError, match="The seed of a corruption must be an integer, not"):
        corrupt(image, "fog", 1, value, 0)
    assert np.array_equal(corrupt(image, "fog", 1, np.int64(-3), np.uint8(9)), corrupt(image, "fog", 1, -3, 9))


def test_frost_without_its_photographs_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    textures._texture.cache_clear()
    with pytest.raises(SaodError, match="pip install imagecorruptions"):
        corrupt(pictures.flat(8, 8, (1, 2, 3)), "frost", 1, 0, 0)


def test_the_textures_kept_stay_within_their_memory() -> None:
    for side in range(900, 1400, 20):
        textures.resized(0, *textures.size_for(0, side, side))
    assert sum(each.nbytes for each in textures._cache.values()) <= textures._MAX_CACHE_BYTES
