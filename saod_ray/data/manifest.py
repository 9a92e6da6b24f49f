"""A manifest: the images and objects of one source, as two tables."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

IMAGES = {
    "image_id": pl.Int64,
    "source_id": pl.Int64,
    "file_name": pl.String,
    "width": pl.Int32,
    "height": pl.Int32,
    "subset": pl.String,
}
OBJECTS = {
    "object_id": pl.Int64,
    "image_id": pl.Int64,
    "label": pl.Int16,
    "x": pl.Float64,
    "y": pl.Float64,
    "w": pl.Float64,
    "h": pl.Float64,
    "area": pl.Float64,
    "crowd": pl.Boolean,
}


@dataclass(frozen=True)
class Manifest:
    """The images of a source in file order, and its objects in file order."""

    images: pl.DataFrame
    objects: pl.DataFrame
