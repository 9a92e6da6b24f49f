"""A store's detections, images and objects as polars frames.

Shards are read with pyarrow, which checks every page, in sequence and only when a frame is collected. Polars uses the
arrays without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from saod_ray.errors import SaodError
from saod_ray.splits import SplitName
from saod_ray.store.ledger import Shard
from saod_ray.store.rows import OPTIONAL, UNCERTAINTIES, Rows

if TYPE_CHECKING:
    from saod_ray.store.store import Store

CORNERS = ("x1", "y1", "x2", "y2")
VARIANCES = ("variance_x", "variance_y", "variance_w", "variance_h")
ShardFrame = Callable[[Shard, Sequence[str]], pl.DataFrame]


def frame_over(arrays: Mapping[str, np.ndarray]) -> pl.DataFrame:
    """A frame over one-dimensional arrays of numbers; contiguous arrays are not copied."""
    columns = {name: _arrow(values) for name, values in arrays.items()}
    frame = pl.from_arrow(pa.Table.from_arrays(list(columns.values()), names=list(columns)))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _arrow(values: np.ndarray) -> pa.Array:
    """An Arrow array on the same memory. `pa.array` would import pandas."""
    flat = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])


def class_type(store: Store) -> pl.Enum:
    """The polars type of a column of class names."""
    return pl.Enum(store.description.classes)


def shards_of(store: Store, detector: str, split: str) -> list[Shard]:
    """The shards of a split; SaodError if there are none."""
    shards = store.shards(detector, split)
    if not shards:
        raise SaodError(
            f"'{detector}' in {store.uri} has no detections on {split}: add them with "
            f"`{store.completion_command(detector, split)}`."
        )
    return shards


def detection_schema(store: Store, detector: str, split: str) -> dict[str, pl.DataType]:
    """The columns of a split's detections, with the uncertainties that the detector has."""
    sample = next((shard for shard in shards_of(store, detector, split) if shard.detections), None)
    stored = store.read_shard(detector, split, sample, OPTIONAL).columns if sample is not None else {}
    schema: dict[str, pl.DataType] = {
        "image_id": pl.Int64(),
        "file_name": pl.String(),
        "class": class_type(store),
        "label": pl.Int16(),
        **{name: pl.Float64() for name in (*CORNERS, "score")},
        **{name: pl.Float64() for name in UNCERTAINTIES if name in stored},
    }
    return schema | {name: pl.Float64() for name in VARIANCES if "variance" in stored}


def detections(store: Store, detector: str, split: str) -> pl.LazyFrame:
    """One row per detection in the order of the shards: boxes in pixels, uncalibrated scores."""
    frames = DetectionFrames(store, detector, split)
    return lazy_shards(shards_of(store, detector, split), frames.schema, frames.shard_frame)


def lazy_shards(shards: Sequence[Shard], schema: dict[str, pl.DataType], shard_frame: ShardFrame) -> pl.LazyFrame:
    """A lazy frame over shards. `shard_frame` reads one shard, with at least the columns that are needed."""

    def scan(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        projected = list(schema) if with_columns is None else with_columns
        needed = list(dict.fromkeys([*projected, *(predicate.meta.root_names() if predicate is not None else ())]))
        remaining = n_rows
        for shard in shards:
            if remaining is not None and remaining <= 0:
                return
            frame = shard_frame(shard, needed)
            if predicate is not None:
                frame = frame.filter(predicate)
            frame = frame.select(projected) if remaining is None else frame.select(projected).head(remaining)
            remaining = None if remaining is None else remaining - frame.height
            yield frame

    return register_io_source(io_source=scan, schema=pl.Schema(schema), is_pure=True)


class DetectionFrames:
    """Reads the shards of one split as frames."""

    def __init__(self, store: Store, detector: str, split: str) -> None:
        self._store, self._detector, self._split = store, detector, split
        self.schema = detection_schema(store, detector, split)
        self._images = store.manifest(SplitName(split).source).images.select("image_id", "file_name")

    def shard_frame(self, shard: Shard, columns: Sequence[str]) -> pl.DataFrame:
        """The detections of a shard in its order, with at least these columns of the schema."""
        rows = self._store.read_shard(self._detector, self._split, shard, _stored_columns(columns))
        frame = frame_over(_arrays(rows, columns))
        if "file_name" in columns:
            frame = frame.join(self._images, on="image_id", how="left", maintain_order="left")
        if "class" in columns:
            names = pl.Series("class", self._store.description.classes, class_type(self._store))
            frame = frame.with_columns(names.gather(frame["label"].cast(pl.UInt32)).alias("class"))
        absent = [name for name in self.schema if name in columns and name not in frame.columns]
        floats = [name for name, kind in self.schema.items() if kind == pl.Float64 and name in frame.columns]
        return frame.with_columns(
            *(pl.lit(None, self.schema[name]).alias(name) for name in absent), pl.col(floats).cast(pl.Float64)
        )


def _stored_columns(columns: Sequence[str]) -> list[str]:
    """The list columns of a shard that these columns are computed from; `label` is always read, for the offsets."""
    stored = {"label"} | {name for name in columns if name in ("score", *UNCERTAINTIES)}
    stored |= {"box"} if set(CORNERS) & set(columns) else set()
    stored |= {"variance"} if set(VARIANCES) & set(columns) else set()
    return sorted(stored)


def _arrays(rows: Rows, columns: Sequence[str]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {"image_id": np.repeat(rows.image_id, np.diff(rows.offsets))}
    for name, values in rows.columns.items():
        parts = {"box": CORNERS, "variance": VARIANCES}.get(name)
        if parts is None:
            arrays[name] = values
        else:
            arrays |= {part: values[:, k] for k, part in enumerate(parts) if part in columns}
    return arrays


def objects(store: Store, source: str) -> pl.DataFrame:
    """One row per object of val, id or ood in file order; boxes are x1, y1, x2, y2 in pixels."""
    manifest = store.manifest(source)
    names = pl.Series("class", store.description.classes, class_type(store))
    table = manifest.objects.join(
        manifest.images.select("image_id", "file_name"), on="image_id", how="left", maintain_order="left"
    )
    return table.select(
        "object_id",
        "image_id",
        "file_name",
        names.gather(table["label"].cast(pl.UInt32)).alias("class"),
        "label",
        x1="x",
        y1="y",
        x2=pl.col("x") + pl.col("w"),
        y2=pl.col("y") + pl.col("h"),
        area="area",
        crowd="crowd",
    )


def images(store: Store, detector: str, split: str) -> pl.DataFrame:
    """One row per image of a split in ascending order of ids: file, size, status and number of detections.

    Missing images are left out.
    """
    tables = []
    for shard in shards_of(store, detector, split):
        rows = store.read_shard(detector, split, shard)
        tables.append(
            pl.DataFrame(
                {
                    "image_id": rows.image_id,
                    "status": pl.Series(rows.status, dtype=pl.String),
                    "error": pl.Series(rows.error, dtype=pl.String),
                    "corruption": pl.Series(rows.corruption, dtype=pl.String),
                    "detections": np.diff(rows.offsets),
                }
            )
        )
    manifest = store.manifest(SplitName(split).source).images.select(
        "image_id", "file_name", "width", "height", "subset"
    )
    return manifest.join(pl.concat(tables), on="image_id", how="inner").sort("image_id")
