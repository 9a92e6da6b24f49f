"""Parsing and checking of COCO result lists, one block of detections at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as paj

from saod_ray.errors import SaodError, join_truncated
from saod_ray.store.rows import UNCERTAINTIES, Array

_SCHEMA = pa.schema(
    {
        "image_id": pa.int64(),
        "category_id": pa.int64(),
        "bbox": pa.list_(pa.float64()),
        "score": pa.float64(),
        "uncertainty": pa.list_(pa.float64()),
        "variance": pa.list_(pa.float64()),
    }
)
FARTHEST = 1e9  # largest coordinate in pixels, so that sums and areas are finite
LARGEST = {"uncertainty": 1e9, "variance": 1e12}  # not above 1e12, the uncertainty of an image without detections
_PARSE = paj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")


@dataclass(frozen=True)
class Block:
    """Consecutive detections of a file as columns. Optional columns that the file lacks have width 0."""

    image_id: Array  # (n,) int64
    category_id: Array  # (n,) int64
    bbox: Array  # (n, 4) float64: x, y, width, height in pixels
    score: Array  # (n,) float64
    uncertainty: Array  # (n, 0 to 4) float64, in the order of UNCERTAINTIES
    variance: Array  # (n, 0 or 4) float64


def parse(block: bytes, first: int, file: str) -> Block:
    """Parse a newline-delimited block whose first detection is number `first` of the file.

    SaodError names the first detection that is not valid.
    """
    try:
        options = paj.ReadOptions(use_threads=False, block_size=len(block) + 1)
        table = paj.read_json(pa.BufferReader(block), options, _PARSE)
    except pa.ArrowException as error:
        raise _explain(block, first, file, str(error).splitlines()[0]) from error
    if any(table[name].null_count for name in ("image_id", "category_id", "bbox", "score")):
        raise _explain(block, first, file, "a value is missing")
    try:
        columns = Block(
            image_id=table["image_id"].to_numpy(),
            category_id=table["category_id"].to_numpy(),
            bbox=_matrix(table["bbox"]),
            score=table["score"].to_numpy(),
            uncertainty=_matrix(table["uncertainty"]),
            variance=_matrix(table["variance"]),
        )
    except ValueError as error:
        raise _explain(block, first, file, str(error)) from error
    if not _has_valid_shapes(columns) or not _has_valid_values(columns):
        raise _explain(block, first, file, "a value is out of range")
    return columns


def _matrix(column: pa.ChunkedArray) -> Array:
    """A list column as a matrix; ValueError if the lengths of the lists differ."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.chunk(0)
    if lists.null_count == len(lists):
        return np.empty((len(lists), 0))
    lengths = np.unique(lists.value_lengths().fill_null(-1).to_numpy())
    flat = lists.flatten()
    if len(lengths) > 1 or flat.null_count:
        raise ValueError("lists differ in length")
    values: Array = flat.to_numpy().reshape(len(lists), int(lengths[0]))
    return values


def _has_valid_shapes(x: Block) -> bool:
    return x.bbox.shape[1] == 4 and x.variance.shape[1] in (0, 4) and x.uncertainty.shape[1] <= len(UNCERTAINTIES)


def _has_valid_values(x: Block) -> bool:
    # comparisons with NaN are false
    bounded = all(bool((np.abs(getattr(x, name)) <= limit).all()) for name, limit in LARGEST.items())
    return bool(
        bounded
        and (np.abs(x.bbox) <= FARTHEST).all()
        and (x.bbox[:, 2:] >= 0).all()
        and (x.score >= 0).all()
        and (x.score <= 1).all()
        and (x.variance >= 0).all()
    )


def _explain(block: bytes, first: int, file: str, reason: str) -> SaodError:
    """Find the detection of a block that is not valid, and what is wrong with it. Slow."""
    columns: dict[str, int] = {}
    for number, line in enumerate((part for part in block.split(b"\n") if part.strip()), first):
        try:
            detection = json.loads(line)
        except (ValueError, RecursionError) as error:
            return SaodError(f"{file}: detection {number} is not JSON ({error}): correct the file and import again.")
        fault = _fault(detection, columns)
        if fault:
            image = f" of image {detection['image_id']}" if "image_id" in detection else ""
            return SaodError(f"{file}: detection {number}{image} {fault}: correct or remove it and import again.")
    return SaodError(
        f"{file} cannot be read as COCO results near detection {first} ({reason}): correct the file and import again."
    )


def _fault(detection: dict[str, Any], columns: dict[str, int]) -> str | None:
    """What is wrong with a detection, or None. `columns` collects the lengths of the optional lists."""
    for key in ("image_id", "category_id"):
        value = detection.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
            return (
                f"needs a whole number as {key} but has {_truncated_repr(value)}"
                if key in detection
                else f"has no {key}"
            )
    score: Any = detection.get("score")
    box: Any = detection.get("bbox")
    if not _is_number(score):
        return f"needs a number as score but has {_truncated_repr(score)}" if "score" in detection else "has no score"
    if not 0 <= score <= 1:
        return f"has the score {_truncated_repr(score)}, which is not in [0, 1]"
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
        return f"needs a bbox of four numbers but has {_truncated_repr(box)}" if "bbox" in detection else "has no bbox"
    if not all(abs(value) <= FARTHEST for value in box):
        return f"has the bbox {_truncated_repr(box)}, which has a number that is not finite or beyond a billion"
    if box[2] < 0 or box[3] < 0:
        return f"has the bbox {_truncated_repr(box)}, whose width or height is negative"
    for key, limit in (("uncertainty", len(UNCERTAINTIES)), ("variance", 4)):
        values = detection.get(key) or []
        if not isinstance(values, list) or not all(_is_number(v) and abs(v) <= LARGEST[key] for v in values):
            return f"needs numbers of at most {LARGEST[key]:g} as {key} but has {_truncated_repr(values)}"
        if key == "variance" and (len(values) not in (0, 4) or min(values, default=0) < 0):
            return f"needs four numbers of at least 0 as variance but has {_truncated_repr(values)}"
        if len(values) > limit:
            return f"has {len(values)} values of {key}, and at most {limit} are known ({join_truncated(UNCERTAINTIES)})"
        if columns.setdefault(key, len(values)) != len(values):
            return f"has {len(values)} values of {key} where earlier detections have {columns[key]}"
    return None


def _truncated_repr(value: object) -> str:
    """The repr of a value, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
