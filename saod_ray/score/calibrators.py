"""Calibrators: one small function of the score a class, fitted on val, kept as plain numbers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

Array = np.ndarray
_EDGE = 1e-12  # logits of scores nearer to 0 or 1 than this are cut


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
    """Linear interpolation between knots; outside of them NaN, or the nearest value where `clip`."""

    x: list[float]
    y: list[float]
    clip: bool

    def __post_init__(self) -> None:
        _check_finite(*self.x, *self.y)
        if not self.x or len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} `x` and {len(self.y)} `y` are no knots")
        if any(b <= a for a, b in pairwise(self.x)):
            raise ValueError("the knots' `x` do not rise")

    def __call__(self, score: Array) -> Array:
        """Calibrate scores."""
        value = np.interp(score, self.x, self.y)
        if self.clip or len(self.x) == 1:
            return value
        return np.where((score < self.x[0]) | (score > self.x[-1]), np.nan, value)


class Histogram(msgspec.Struct, frozen=True, tag="histogram"):
    """A value for each bin; edges fall from 1 to 0."""

    edges: list[float]
    values: list[float]

    def __post_init__(self) -> None:
        _check_finite(*self.edges, *self.values)
        if not self.values or len(self.edges) != len(self.values) + 1:
            raise ValueError(f"{len(self.edges)} `edges` do not bound {len(self.values)} `values`")

    def __call__(self, score: Array) -> Array:
        """Calibrate scores."""
        # the first edge below the score: edges fall, so count those at or above it
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
    """msgspec makes of a ValueError what is wrong with a file, and where."""
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number is not finite")


Calibrator = Linear | Isotonic | Histogram | Logistic


def fit(kind: str, score: Array, target: Array, bins: int, clip: bool, rising: bool = False) -> Calibrator | None:
    """Fit one class on scores and targets (IoU, or 0 for a FP), by falling score. None: the raw score stays.

    `clip` is for isotonic regression outside of its range; `rising` forbids a negative slope.
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


def _linear(x: Array, y: Array, rising: bool) -> Linear:
    # sums instead of a solver: the system is 1 by 1, and BLAS would wake all cores for it
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
    """Binary cross-entropy with soft targets by L-BFGS: convex in slope and intercept.

    The slope is a magnitude, so where the optimum of all slopes is negative, the one among magnitudes is 0.
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

    # ftol 0: stop where the gradient vanishes, not where a step gained little
    options: dict[str, Any] = {"maxiter": 2000, "maxfun": 10_000, "ftol": 0.0, "gtol": 1e-9}
    begin = np.array([1.0, 0.0] if with_intercept else [1.0])
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", options=options).x
    if found[0] < 0:
        return Logistic(0.0, float(_logit(y.mean())) if with_intercept else 0.0)
    return Logistic(float(found[0]), float(found[1]) if with_intercept else 0.0)


def _logit(score: Array) -> Array:
    p = np.clip(score, _EDGE, 1 - _EDGE)
    return np.log(p) - np.log1p(-p)


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))
