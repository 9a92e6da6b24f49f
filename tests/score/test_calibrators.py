from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
import reference
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression

from saod_ray.score import calibrators

X = st.one_of(st.integers(0, 20).map(lambda k: k / 20), st.floats(0, 1, width=32).map(float))
PAIRS = st.lists(st.tuples(X, st.floats(0, 1)), min_size=1, max_size=80)
PROBES = np.concatenate([np.linspace(0, 1, 41), [0.123, 0.777]])


def columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Scores and targets by falling score, as a class list has them."""
    ordered = sorted(pairs, key=lambda p: -p[0])
    return np.array([p[0] for p in ordered]), np.array([p[1] for p in ordered])


@given(PAIRS, st.sampled_from(["linear", "isotonic", "histogram", "none"]), st.sampled_from([1, 4, 25]), st.booleans())
def test_against_the_reference(pairs, kind, bins, paper) -> None:
    x, y = columns(pairs)
    got = calibrators.fit(kind, x, y, bins, clip=paper)
    expected = reference.fit(kind, x.tolist(), y.tolist(), bins, "paper" if paper else "official")
    if expected is None or got is None:
        assert got is expected is None
        return
    probes = np.concatenate([PROBES, x])
    if kind == "linear" and np.ptp(x) < 1e-6:
        return  # a slope over nothing: both are noise
    assert got(probes).tolist() == pytest.approx([expected(s) for s in probes], nan_ok=True, abs=1e-9)


@given(PAIRS)
def test_linear_is_scikit_learns(pairs) -> None:
    x, y = columns(pairs)
    if np.ptp(x) < 1e-3 and len(x) > 1:
        return  # scikit-learn's slope over equal scores is the rounding error of their mean; ours is 0
    peer = LinearRegression().fit(x[:, None], y)
    got = calibrators.fit("linear", x, y, 25, clip=False)
    np.testing.assert_allclose(got(PROBES), peer.predict(PROBES[:, None]).clip(0, 1), atol=1e-9)


@given(PAIRS)
def test_isotonic_is_scikit_learns(pairs) -> None:
    x, y = columns(pairs)
    x = np.round(x, 6)  # scikit-learn joins scores that are nearer than its resolution
    for clip, bounds in ((True, "clip"), (False, "nan")):
        peer = IsotonicRegression(y_min=0, y_max=1, out_of_bounds=bounds).fit(x, y)
        got = calibrators.fit("isotonic", x, y, 25, clip=clip)
        np.testing.assert_allclose(got(PROBES), peer.predict(PROBES), atol=1e-9)


@given(PAIRS, st.booleans(), st.sampled_from([(0.02, 0.96), (0.05, 0.1), (0.6, 0.3)]))
@example([(0.12, 0.2), (0.2, 0.3), (0.14, 1.0)], True, (0.05, 1.0))
def test_logistic_fits_reach_the_optimum(pairs, platt, span) -> None:
    """At the optimum the gradient vanishes, or the slope is 0 and could only fall further."""
    x, y = columns([(span[0] + span[1] * a, 0.02 + 0.96 * b) for a, b in pairs])
    got = calibrators.fit("platt" if platt else "temperature", x, y, 25, clip=False)
    logit = np.log(x) - np.log1p(-x)
    residual = 1 / (1 + np.exp(-(got.slope * logit + got.intercept))) - y
    along_slope, along_intercept = float((residual * logit).mean()), float(residual.mean())
    assert got.slope >= 0
    assert abs(along_slope) < 1e-6 or (got.slope == 0 and along_slope > 0)
    assert abs(along_intercept) < 1e-6 if platt else got.intercept == 0


def test_logistic_survives_scores_of_zero_and_one() -> None:
    x, y = np.array([1.0, 1.0, 0.5, 0.0]), np.array([0.9, 0.0, 0.3, 0.0])
    for kind in ("platt", "temperature"):
        got = calibrators.fit(kind, x, y, 25, clip=False)
        assert np.isfinite(got(np.array([0.0, 0.5, 1.0]))).all()


def test_a_line_does_not_fall_after_the_paper() -> None:
    x, y = np.array([0.9, 0.5, 0.1]), np.array([0.1, 0.5, 0.9])
    assert calibrators.fit("linear", x, y, 25, clip=True, rising=True).slope == 0
    assert calibrators.fit("linear", x, y, 25, clip=True).slope == pytest.approx(-1)


def test_isotonic_is_nan_outside_its_range_and_constant_for_one_knot() -> None:
    outside = calibrators.fit("isotonic", np.array([0.6, 0.4]), np.array([0.8, 0.2]), 25, clip=False)
    assert math.isnan(outside(np.array([0.9]))[0])
    single = calibrators.fit("isotonic", np.array([0.6]), np.array([0.8]), 25, clip=False)
    assert single(np.array([0.1, 0.6, 1.0])).tolist() == [0.8] * 3


@pytest.mark.parametrize("kind", ["linear", "isotonic", "histogram", "platt", "temperature"])
def test_json_and_back(kind) -> None:
    rng = np.random.default_rng(1)
    x = np.sort(rng.random(60))[::-1]
    fitted = calibrators.fit(kind, x, rng.random(60), 25, clip=True)
    again = msgspec.json.decode(msgspec.json.encode(fitted), type=calibrators.Calibrator)
    assert again(PROBES).tolist() == fitted(PROBES).tolist()
