"""Calibrators: one small function of the score per class, fitted on val and stored as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

Array = np.ndarray
_EDGE = 1e-12  # scores closer to 0 or 1 than this are clipped before their logit is taken


class Linear(msgspec.Struct, frozen=True, tag="linear"):
    """intercept + slope * score, clipped to [0, 1]."""

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        _check_finite(self.slope, self.intercept)

    def __call__(self, score: Array) -> Array:
        """Calibrate scores."""
        return np.clip(self.intercept + self.slope * score, 0.0, 1.0)


class Isotonic(msgspec.Struct, frozen=True, tag="isotonic"):
    """Linear interpolation between knots. Outside of their range: NaN, or the nearest knot's value if `clip`."""

    x: list[float]
    y: list[float]
    clip: bool

    def __post_init__(self) -> None:
        _check_finite(*self.x, *self.y)
        if not self.x or len(self.x) != len(self.y):
            raise ValueError(f"`x` and `y` must be non-empty and of equal length, not {len(self.x)} and {len(self.y)}")
        if any(b <= a for a, b in pairwise(self.x)):
            raise ValueError("`x` must be strictly increasing")

    def __call__(self, score: Array) -> Array:
        """Calibrate scores."""
        value = np.interp(score, self.x, self.y)
        if self.clip or len(self.x) == 1:
            return value
        return np.where((score < self.x[0]) | (score > self.x[-1]), np.nan, value)


class Histogram(msgspec.Struct, frozen=True, tag="histogram"):
    """One value per bin. Edges descend from 1 to 0."""

    edges: list[float]
    values: list[float]

    def __post_init__(self) -> None:
        _check_finite(*self.edges, *self.values)
        if not self.values or len(self.edges) != len(self.values) + 1:
            raise ValueError(f"{len(self.edges)} `edges` do not bound {len(self.values)} `values`")

    def __call__(self, score: Array) -> Array:
        """Calibrate scores."""
        # edges descend: the number of edges at or above a score gives its bin
        first = np.searchsorted(-np.asarray(self.edges), -score, side="right")
        return np.asarray(self.values)[np.clip(first - 1, 0, len(self.values) - 1)]


class Logistic(msgspec.Struct, frozen=True, tag="logistic"):
    """sigmoid(slope * logit(score) + intercept): Platt scaling, and temperature scaling with intercept 0."""

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        _check_finite(self.slope, self.intercept)

    def __call__(self, score: Array) -> Array:
        """Calibrate scores."""
        return _sigmoid(self.slope * _logit(score) + self.intercept)


def _check_finite(*numbers: float) -> None:
    """Raise ValueError, which msgspec reports with the place in the file."""
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number is not finite")


Calibrator = Linear | Isotonic | Histogram | Logistic


def fit(kind: str, score: Array, target: Array, bins: int, *, clip: bool, rising: bool = False) -> Calibrator | None:
    """Fit the calibrator of one class; None leaves scores unchanged.

    Args:
        kind: The setting `calibrator`.
        score: (n,) float64 in descending order.
        target: (n,) float64: the IoU of a true positive, 0 for a false positive.
        bins: Number of bins of a histogram.
        clip: Clip isotonic regression outside of its range instead of returning NaN.
        rising: Forbid a negative slope.
    """
    if kind == "none" or len(score) == 0:
        return None
    if kind == "linear":
        return _linear(score, target, rising)
    if kind == "isotonic":
        return _isotonic(score, target, clip)
    if kind == "histogram":
        return _histogram(score, target, bins)
    return _logistic(score, target, with_intercept=kind == "platt")


def calibrated_scores(label: Array, score: Array, calibrators: Sequence[Calibrator | None]) -> Array:
    """Apply each class's calibrator to its scores; a copy, in the same order.

    >>> calibrated_scores(np.array([1, 0]), np.array([0.5, 0.5]), [None, Linear(slope=0.5, intercept=0.0)]).tolist()
    [0.25, 0.5]
    """
    score = score.copy()
    order = np.argsort(label, kind="stable")
    starts = np.searchsorted(label[order], np.arange(len(calibrators) + 1))
    for number, calibrator in enumerate(calibrators):
        rows = order[starts[number] : starts[number + 1]]
        if calibrator is not None and len(rows):
            score[rows] = calibrator(score[rows])
    return score


def _linear(x: Array, y: Array, rising: bool) -> Linear:
    # closed form: a solver would call BLAS, which starts threads on all cores for a system of one unknown
    centred = x - x.mean()
    slope = (centred * (y - y.mean())).sum() / (centred**2).sum() if np.ptp(x) > 0 else 0.0
    slope = max(slope, 0.0) if rising else slope
    return Linear(float(slope), float(y.mean() - slope * x.mean()))


def _isotonic(x: Array, y: Array, clip: bool) -> Isotonic:
    from scipy.optimize import isotonic_regression

    knots, group, count = np.unique(x, return_inverse=True, return_counts=True)
    mean = np.bincount(group, y) / count
    fitted = isotonic_regression(mean, weights=count.astype(np.float64)).x
    return Isotonic(knots.tolist(), np.clip(fitted, 0.0, 1.0).tolist(), clip)


def _histogram(x: Array, y: Array, bins: int) -> Histogram | None:
    n = len(x)
    if n == 1:
        return None
    bins = bins if n >= 2 * bins else n // 2
    starts = [-(-i * (n + 1) // bins) for i in range(bins)]
    values = [float(y[a:b].mean()) for a, b in zip(starts, [*starts[1:], n], strict=True)]
    return Histogram([1.0, *(float(x[a]) for a in starts[1:]), 0.0], values)


def _logistic(x: Array, y: Array, with_intercept: bool) -> Logistic:
    """Minimise the binary cross-entropy with soft targets by L-BFGS; it is convex in slope and intercept.

    The slope must not be negative: if the optimum is, the constrained optimum is slope 0.
    """
    from scipy.optimize import minimize

    logit = _logit(x)

    def loss(parameters: Array) -> tuple[float, Array]:
        slope, intercept = parameters[0], parameters[1] if with_intercept else 0.0
        z = slope * logit + intercept
        value = np.mean(np.logaddexp(0, z) - y * z)
        residual = (_sigmoid(z) - y) / len(y)
        gradient = [(residual * logit).sum(), residual.sum()]
        return float(value), np.array(gradient[: len(parameters)])

    # ftol 0: stop when the gradient vanishes, not when a step improves little
    options: dict[str, Any] = {"maxiter": 2000, "maxfun": 10_000, "ftol": 0.0, "gtol": 1e-9}
    start = np.array([1.0, 0.0] if with_intercept else [1.0])
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    if optimum[0] < 0:
        return Logistic(0.0, float(_logit(y.mean())) if with_intercept else 0.0)
    return Logistic(float(optimum[0]), float(optimum[1]) if with_intercept else 0.0)


def _logit(score: Array) -> Array:
    p = np.clip(score, _EDGE, 1 - _EDGE)
    return np.log(p) - np.log1p(-p)


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))
