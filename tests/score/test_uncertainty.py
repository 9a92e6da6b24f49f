from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from saod_ray.errors import SaodError
from saod_ray.score import uncertainty as unc

DETECTION = st.tuples(st.integers(0, 30).map(lambda k: k / 30), st.floats(0, 3))
IMAGES = st.lists(
    st.one_of(st.lists(DETECTION, max_size=6), st.lists(DETECTION, min_size=90, max_size=120)), max_size=5
)


@given(
    IMAGES,
    st.sampled_from(["score", "entropy"]),
    st.sampled_from(["min", "top-2", "top-3", "top-10", "top-11", "top-500", "mean", "sum"]),
)
def test_against_the_reference(images, kind, aggregate) -> None:
    flat = [pair for image in images for pair in image]
    offsets = np.concatenate([[0], np.cumsum([len(image) for image in images])]).astype(np.int64)
    columns = {"score": np.array([p[0] for p in flat]), "entropy": np.array([p[1] for p in flat])}
    values = unc.per_detection(kind, columns)
    many = unc.smallest_count(aggregate)
    if many <= unc.CACHED_SMALLEST:
        sums, count = unc.smallest_sums(offsets, values, columns["score"])
        sums = sums[:, many - 1]
    else:
        sums, count = unc.ascending_sums(offsets, values, columns["score"], many)
        sums = sums[:, 0]
    got = unc.aggregate_sums(aggregate, sums, count)
    expected = [
        reference.image_uncertainty([{"score": s, "entropy": e} for s, e in image], kind, aggregate) for image in images
    ]
    assert got.tolist() == expected


def test_from_variances() -> None:
    variance = np.array([[0.1, 0.2, 0.3, 0.4], [1e-200, 1e-200, 1.0, 1.0]])
    columns = {"variance": variance, "entropy": np.array([1.0, 2.0])}
    assert unc.per_detection("determinant", columns)[0] == pytest.approx(0.1 * 0.2 * 0.3 * 0.4)
    assert unc.per_detection("trace", columns)[0] == pytest.approx(1.0)
    gaussian = unc.per_detection("gaussian-entropy", columns)
    covariance = np.diag(variance[0])
    by_definition = 0.5 * math.log((2 * math.pi * math.e) ** 4 * np.linalg.det(covariance))
    assert gaussian[0] == pytest.approx(by_definition)
    assert np.isfinite(gaussian).all()  # the determinant of the second underflows
    assert unc.per_detection("joint-entropy", columns)[0] == pytest.approx(1.0 + by_definition)
    assert unc.per_detection("joint-entropy-balanced", columns)[0] == pytest.approx(4.0 + by_definition)
    ranges = unc.Range((0.0, 2.0), (by_definition - 1, by_definition + 3))
    assert unc.per_detection("joint-entropy-normalised", columns, ranges)[0] == pytest.approx(0.5 + 0.25)


def test_a_column_the_detector_does_not_have_is_named() -> None:
    with pytest.raises(SaodError, match="'trace' needs the column 'variance'"):
        unc.per_detection("trace", {"score": np.zeros(1)})
