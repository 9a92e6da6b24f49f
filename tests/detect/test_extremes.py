"""Images at the limits of what a detector takes, and beyond them."""

from __future__ import annotations

import models
import numpy as np
import pytest
from PIL import Image
from test_adapter import photographs, small

from saod_ray.detect.detections import Detections
from saod_ray.errors import SaodError


@pytest.fixture(scope="module", params=list(models.MODELS))
def detector(request):
    return small(request.param)


def fits(found: Detections, height: int, width: int) -> None:
    for name, column in vars(found).items():
        assert column is None or (len(column) == len(found.score) and np.isfinite(column).all()), name
    assert found.box.min(initial=0) >= 0
    assert (found.box <= np.array([width, height] * 2) * (1 + 1e-5)).all()


def same(one: Detections, other: Detections, tolerance: float = 0) -> None:
    for name, column in vars(one).items():
        if column is not None:
            np.testing.assert_allclose(column, vars(other)[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (2, 3), (3000, 4000)])
def test_any_size(detector, size) -> None:
    (found,) = detector.detect(photographs(size))
    fits(found, *size)


@pytest.mark.parametrize("level", [0, 255])
def test_an_image_of_one_colour(detector, level) -> None:
    (found,) = detector.detect([np.full((40, 60, 3), level, np.uint8)])
    fits(found, 40, 60)


def test_grey_is_three_equal_channels(detector) -> None:
    grey = photographs((50, 70))[0][:, :, 0]
    expected = detector.detect([np.stack([grey] * 3, axis=2)])[0]
    for image in (grey, grey[:, :, None]):
        same(detector.detect([image])[0], expected)


def test_an_image_need_not_lie_in_order_nor_be_writable(detector) -> None:
    (image,) = photographs((50, 70))
    expected = detector.detect([image])[0]
    turned = np.asfortranarray(image)[::-1, ::-1].copy()[::-1, ::-1]
    turned.flags.writeable = False
    same(detector.detect([turned])[0], expected)


def test_mixed_sizes_come_back_in_their_order(detector) -> None:
    images = [*photographs((60, 90), (1, 1), (90, 60), (60, 90), (1, 300)), photographs((60, 90))[0][:, :, 0]]
    for image, found in zip(images, detector.detect(images), strict=True):
        fits(found, *image.shape[:2])
        (alone,) = detector.detect([image])
        assert len(found.score) == len(alone.score)
        np.testing.assert_allclose(found.score, alone.score, rtol=1e-4, atol=1e-5)


def test_no_images(detector) -> None:
    assert detector.detect([]) == []


@pytest.mark.parametrize(
    ("image", "given"),
    [
        (np.zeros((4, 5, 3)), r"float64 of shape \(4, 5, 3\)"),
        (np.zeros((4, 5, 3), np.uint16), "uint16"),
        (np.zeros((4, 5, 3), bool), "bool"),
        (np.zeros((4, 5, 4), np.uint8), r"\(4, 5, 4\)"),
        (np.zeros((4, 5, 2), np.uint8), r"\(4, 5, 2\)"),
        (np.zeros((1, 4, 5, 3), np.uint8), r"\(1, 4, 5, 3\)"),
        (np.zeros(3, np.uint8), r"\(3,\)"),
        (np.zeros((0, 5, 3), np.uint8), r"\(0, 5, 3\)"),
        (Image.new("RGB", (4, 5)), "a Image"),
        (None, "a NoneType"),
    ],
)
def test_what_is_no_image_is_named(image, given) -> None:
    with pytest.raises(SaodError, match=f"number 1 of 2 is .*{given}.*convert"):
        small("atss").detect([photographs((4, 4))[0], image])
