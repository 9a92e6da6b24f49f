"""Results as polars frames."""

from __future__ import annotations

import msgspec
import polars as pl

from saod_ray.errors import SaodError
from saod_ray.score.metrics import MAIN, custom_columns
from saod_ray.score.results import BenchmarkResult, DetectorResult


def leaderboard(results: BenchmarkResult) -> pl.DataFrame:
    """One row per detector, best DAQ first; one column per metric of the main table, then the custom ones."""
    detectors = results.ranked()
    custom = {name: metric for result in detectors.values() for name, metric in result.custom.items()}
    columns: dict[str, list[str] | list[float | None]] = {"detector": list(detectors)}
    for metric in (*MAIN, *custom_columns(custom)):
        columns[metric.title] = [metric.value(result) for result in detectors.values()]
    return pl.DataFrame(columns, schema={name: pl.String if name == "detector" else pl.Float64 for name in columns})


def per_class(result: DetectorResult) -> pl.DataFrame:
    """One row per class, with the class's detection threshold and the custom metrics that have a value per class."""
    rows = [
        {"class": name, **msgspec.structs.asdict(row), "threshold": result.detection_thresholds[name]}
        for name, row in result.classes.items()
    ]
    numbers = ("laece", "lrp", "lrp_loc", "lrp_fp", "lrp_fn", "ap", "threshold")
    counts = {"class": pl.String, "objects": pl.Int64, "detections": pl.Int64}
    frame = pl.DataFrame(rows, schema={**counts, **dict.fromkeys(numbers, pl.Float64)})
    custom = {name: metric.per_class for name, metric in result.custom.items() if isinstance(metric.per_class, dict)}
    columns = [
        pl.Series(name, [values.get(label) for label in frame["class"]], pl.Float64) for name, values in custom.items()
    ]
    return frame.with_columns(columns)


def reliability(result: DetectorResult, part: str) -> pl.DataFrame:
    """One row per class and non-empty bin: number of detections, mean score and mean IoU."""
    if part not in ("id", "shift"):
        raise SaodError(f"'{part}' has no reliability diagram: use id or shift.")
    schema = {"class": pl.String, "bin": pl.Int64, "detections": pl.Int64, "score": pl.Float64, "iou": pl.Float64}
    frames = [
        pl.DataFrame({"class": [name] * len(bins.bin), **msgspec.structs.asdict(bins)}, schema=schema)
        for name, bins in result.reliability.get(part, {}).items()
    ]
    return pl.concat([pl.DataFrame(schema=schema), *frames])
