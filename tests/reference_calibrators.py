"""The calibrators of docs/metrics.md as slow, plain code. `reference` uses them; x are scores, y are IoUs (0 for a FP)."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np

nan = math.nan


def fit(kind: str, x: list[float], y: list[float], bins: int, conventions: str) -> Callable[[float], float] | None:
    if not x or kind == "none":
        return None
    if kind == "linear":
        return fit_linear(x, y)
    if kind == "isotonic":
        return fit_isotonic(x, y, conventions)
    if kind == "histogram":
        return fit_histogram(x, y, bins)
    raise ValueError(kind)


def fit_linear(x: list[float], y: list[float], rising: bool = False) -> Callable[[float], float]:
    mx, my = sum(x) / len(x), sum(y) / len(y)
    sxx = sum((a - mx) ** 2 for a in x)
    sxy = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    slope = 0.0 if len(set(x)) == 1 else sxy / sxx
    if rising:
        slope = max(slope, 0.0)
    return lambda s: min(max(my + slope * (s - mx), 0.0), 1.0)


def fit_isotonic(x: list[float], y: list[float], conventions: str) -> Callable[[float], float]:
    groups: dict[float, list[float]] = defaultdict(list)
    for a, b in zip(x, y, strict=True):
        groups[a].append(b)
    knots = sorted(groups)
    blocks = [[sum(groups[k]) / len(groups[k]), len(groups[k]), 1] for k in knots]  # mean, weight, knots
    i = 0
    while i + 1 < len(blocks):
        if blocks[i][0] > blocks[i + 1][0]:
            (a, n, p), (b, m, q) = blocks[i], blocks[i + 1]
            blocks[i : i + 2] = [[(a * n + b * m) / (n + m), n + m, p + q]]
            i = max(i - 1, 0)
        else:
            i += 1
    values = [min(max(mean, 0.0), 1.0) for mean, _, count in blocks for _ in range(int(count))]

    def apply(s: float) -> float:
        if len(knots) == 1:
            return values[0]
        if s < knots[0] or s > knots[-1]:
            return float(np.interp(s, knots, values)) if conventions == "paper" else nan
        return float(np.interp(s, knots, values))

    return apply


def fit_histogram(x: list[float], y: list[float], bins: int) -> Callable[[float], float] | None:
    n = len(x)
    if n == 1:
        return None
    pairs = sorted(zip(x, y, strict=True), key=lambda p: -p[0])
    b = bins if n >= 2 * bins else n // 2
    starts = [-(-i * (n + 1) // b) for i in range(b)] + [n]
    values = [sum(p[1] for p in pairs[s:e]) / (e - s) for s, e in itertools.pairwise(starts)]
    edges = [1.0] + [pairs[starts[i]][0] for i in range(1, b)] + [0.0]

    def apply(s: float) -> float:
        for j, edge in enumerate(edges):
            if s > edge:
                return values[j - 1]
        return values[-1]

    return apply
