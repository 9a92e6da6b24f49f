from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from saod_ray.corrupt import blank

COORDINATE = st.floats(-5, 15, allow_nan=False, width=32).map(lambda x: round(x * 4) / 4)
SIZE = st.floats(0, 12, allow_nan=False).map(lambda x: round(x * 4) / 4)
BOXES = st.lists(st.tuples(COORDINATE, COORDINATE, SIZE, SIZE), max_size=4)


@given(
    arrays.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3)), elements=st.integers(1, 255)),
    BOXES,
)
def test_every_pixel_that_a_box_touches_is_zero_and_no_other(image, boxes) -> None:
    before = image.copy()
    out = blank(image, np.array(boxes, np.float64).reshape(-1, 4))
    assert np.array_equal(image, before) and not np.shares_memory(out, image)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            # a pixel is the square from (x, y) to (x + 1, y + 1); a box without area inside it touches it
            inside = any(_overlap(x, left, w) and _overlap(y, top, h) for left, top, w, h in boxes)
            assert np.array_equal(out[y, x], np.zeros(3) if inside else image[y, x])


def _overlap(pixel: int, start: float, length: float) -> bool:
    """Whether the pixel lies between the floor of the start and the ceiling of the end."""
    return np.floor(start) <= pixel < np.ceil(start + length)


def test_boxes_far_outside_touch_nothing() -> None:
    image = np.ones((6, 8, 3), np.uint8)
    assert blank(image, np.array([[1e30, 0, 5, 5], [0, -1e30, 5, 5]])).all()
