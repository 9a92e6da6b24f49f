"""One tester for every reducer: against a slow reference, against golden values, and sharded = merged = permuted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from saod_ray.score.reducers import BinRule, ClassSums, class_sums, merge_sums

Reference = Callable[[pl.DataFrame], dict[tuple[int, int], tuple[float, ...]]]


def assert_same_sums(got: ClassSums, expected: ClassSums) -> None:
    """Equal to the last bit, as partial results and as arrays."""
    keys = ["label", "bin"]
    assert got.frame.sort(keys).rows() == expected.frame.sort(keys).rows()
    for name, values in vars(expected.statistics()).items():
        assert vars(got.statistics())[name].tobytes() == values.tobytes(), name


def assert_reducer(matches: pl.DataFrame, objects: np.ndarray, rule: BinRule, seed: int = 0) -> ClassSums:
    """Check a reduction in all three ways; returns it for golden values."""
    overall = class_sums(matches, objects, rule)
    assert_is_the_references(overall, matches, rule)
    rng = np.random.default_rng(seed)
    assert_same_sums(class_sums(matches[rng.permutation(matches.height)], objects, rule), overall)
    for shards in (2, 3, 7):
        group = rng.integers(0, shards, matches.height)
        nothing = np.zeros_like(objects)
        parts = [
            class_sums(matches.filter(pl.Series(group == k)), nothing if k else objects, rule) for k in range(shards)
        ]
        order = rng.permutation(shards)
        assert_same_sums(merge_sums([parts[k] for k in order]), overall)
    return overall


def assert_is_the_references(sums: ClassSums, matches: pl.DataFrame, rule: BinRule) -> None:
    """Row by row in plain Python, as the definition reads."""
    expected: dict[tuple[int, int], list[Any]] = {}
    for row in matches.iter_rows(named=True):
        if row["outcome"] not in (0, 1):
            continue
        score, iou = row["calibrated"], row["iou"]
        cell = expected.setdefault((row["label"], reference_bin(score, rule)), [0, 0, 0.0, 0.0])
        cell[0] += 1
        cell[1] += row["outcome"]
        cell[2] += 0.0 if np.isnan(score) else score
        cell[3] += iou
    columns = sums.frame.select(
        "label", "bin", "detections", "tp", *(pl.col(name).cast(pl.Float64) / 2.0**52 for name in ("score", "iou"))
    )
    got = {(row[0], row[1]): row[2:] for row in columns.iter_rows()}
    assert got.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_allclose(got[key], values, rtol=1e-12, atol=1e-12)


def reference_bin(score: float, rule: BinRule) -> int:
    """The bin by comparing with every edge."""
    if np.isnan(score):
        return rule.count
    edges = [k / rule.count for k in range(rule.count + 1)]
    if rule.lower_open:
        return max(sum(edge < score for edge in edges) - 1, 0)
    number = sum(edge <= score for edge in edges) - 1
    return rule.count - 1 if rule.last_closed and score == 1.0 else number
