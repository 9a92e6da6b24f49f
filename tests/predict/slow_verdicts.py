"""What a self-aware detector must say, worked out one detection at a time from shards and the numbers in its file."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

import numpy as np
import reference

from saod_ray.splits import SplitName
from saod_ray.store.store import Store

Row = dict[str, Any]


def expected(store: Store, detector: str, split: str, file: Row) -> dict[str, Row]:
    """File name → verdict as `Verdict.to_json` has it, with NaN for a score that is not defined."""
    names = dict(store.manifest(SplitName(split).source).images.select("image_id", "file_name").iter_rows())
    return {names[image]: verdict(rows, file) for image, rows in detections(store, detector, split).items()}


def detections(store: Store, detector: str, split: str) -> dict[int, list[Row]]:
    """Image id → its detections in Python's numbers."""
    out: dict[int, list[Row]] = {}
    for shard in store.shards(detector, split):
        rows = store.read_shard(detector, split, shard)
        for k, image in enumerate(rows.image_id.tolist()):
            here = range(rows.offsets[k], rows.offsets[k + 1])
            out[image] = [{name: column[d].tolist() for name, column in rows.columns.items()} for d in here]
    return out


def verdict(rows: list[Row], file: Row) -> Row:
    settings = file["settings"]
    valued = [row | {"value": value(row, settings["uncertainty"], file["ranges"])} for row in rows]
    u = reference.image_uncertainty(valued, "value", settings["aggregate"])
    accepted = reference.accepted(u, bool(rows), file["image_threshold"], settings["conventions"])
    detections_out = []
    for row in rows if accepted else []:
        name = file["classes"][row["label"]]
        limit = file["detection_thresholds"][name]
        if limit is not None and row["score"] >= limit:
            detections_out.append(
                {"class": name, "score": calibrated(row["score"], file["calibrators"][name]), "box": row["box"]}
            )
    uncertainty = None if u == reference.NO_DETECTION else u
    return {
        "accepted": accepted,
        "uncertainty": uncertainty,
        "threshold": file["image_threshold"],
        "detections": detections_out,
    }


def value(row: Row, kind: str, ranges: Any) -> float:
    if kind == "score":
        return 1 - row["score"]
    if kind == "determinant":
        return math.prod(row["variance"])
    if kind == "trace":
        return math.fsum(row["variance"])
    if kind in ("entropy", "ds", "avg-entropy", "max-class-entropy"):
        return row[kind.replace("-", "_")]
    gaussian = 2 + 2 * math.log(2 * math.pi) + sum(math.log(variance) for variance in row["variance"]) / 2
    if kind == "gaussian-entropy":
        return gaussian
    if kind == "joint-entropy":
        return row["entropy"] + gaussian
    if kind == "joint-entropy-balanced":
        return 4 * row["entropy"] + gaussian
    (low, high), (gaussian_low, gaussian_high) = ranges
    return (row["entropy"] - low) / (high - low) + (gaussian - gaussian_low) / (gaussian_high - gaussian_low)


def calibrated(score: float, function: Row | None) -> float:
    if function is None:
        return score
    if function["type"] == "linear":
        return min(max(function["intercept"] + function["slope"] * score, 0.0), 1.0)
    if function["type"] == "isotonic":
        return interpolated(score, function)
    if function["type"] == "histogram":
        falling = list(function["edges"])
        lower = next((k for k, edge in enumerate(falling) if score > edge), len(falling) - 1)
        return function["values"][min(max(lower - 1, 0), len(function["values"]) - 1)]
    p = min(max(score, 1e-12), 1 - 1e-12)
    return 1 / (1 + math.exp(-(function["slope"] * math.log(p / (1 - p)) + function["intercept"])))


def interpolated(score: float, function: Row) -> float:
    x, y = function["x"], function["y"]
    if len(x) == 1:
        return y[0]
    if not x[0] <= score <= x[-1]:
        return (y[0] if score < x[0] else y[-1]) if function["clip"] else math.nan
    k = bisect_right(x, score) - 1
    if k == len(x) - 1:
        return y[-1]
    return (y[k + 1] - y[k]) / (x[k + 1] - x[k]) * (score - x[k]) + y[k]


def same(actual: Row, expected_verdict: Row, exact: bool) -> None:
    """Verdicts and boxes are equal; numbers to the last bit where `exact`, else within what rounding leaves open."""
    near = (lambda a, b: a == b) if exact else (lambda a, b: math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12))
    assert actual["accepted"] == expected_verdict["accepted"] and actual["threshold"] == expected_verdict["threshold"]
    assert (actual["uncertainty"] is None) == (expected_verdict["uncertainty"] is None)
    assert actual["uncertainty"] is None or near(actual["uncertainty"], expected_verdict["uncertainty"])
    actual_detections, expected_detections = actual["detections"], expected_verdict["detections"]
    assert [(d["class"], d["box"]) for d in actual_detections] == [(d["class"], d["box"]) for d in expected_detections]
    for a, b in zip(actual_detections, expected_detections, strict=True):
        assert np.isnan(b["score"]) if a["score"] is None else near(a["score"], b["score"])
