"""A manifest: the images and objects of one source, as two tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from saod_ray.errors import SaodError
from saod_ray.files import is_plain

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

MAX_COORDINATE = 1e9  # pixels; what is beyond is a mistake in the file


@dataclass(frozen=True)
class Manifest:
    """The images and objects of a source, both in file order; columns as in `IMAGES` and `OBJECTS`."""

    images: pl.DataFrame
    objects: pl.DataFrame


@dataclass(frozen=True)
class Classes:
    """The use case's classes in label order: by rising category id, unless the use case names another order."""

    names: tuple[str, ...]
    category_ids: tuple[int, ...]

    def label_of(self) -> dict[int, int]:
        """The label of each category id."""
        return {category: label for label, category in enumerate(self.category_ids)}


def image_table(
    ids: Sequence[int],
    prefix: str,
    names: Sequence[str],
    widths: Sequence[int | None] | None = None,
    heights: Sequence[int | None] | None = None,
) -> pl.DataFrame:
    """The images of one source. `prefix` is put before file names, and `ids` become both image and source ids.

    Image names from annotations enter here and nowhere else. SaodError for a name that leads out of the data root.
    """
    for name in (prefix, *names):
        if not is_plain(name):
            raise SaodError(
                f"The image name {name[:200]!r} leads out of the data's root: name images relative to `images`, and that "
                "relative to `root`."
            )
    columns = {
        "image_id": ids,
        "source_id": ids,
        "file_name": [f"{prefix.rstrip('/')}/{name}" if prefix else name for name in names],
        "width": widths if widths is not None else [None] * len(ids),
        "height": heights if heights is not None else [None] * len(ids),
        "subset": [""] * len(ids),
    }
    return pl.DataFrame(columns, schema=IMAGES)


def object_table(
    image_ids: Sequence[int],
    labels: Sequence[int],
    boxes: Sequence[Sequence[float]] | np.ndarray,
    *,
    areas: Sequence[float] | None = None,
    crowd: Sequence[bool] | None = None,
    ids: Sequence[int] | None = None,
) -> pl.DataFrame:
    """Objects with `boxes` of shape (n, 4): x, y, width, height in pixels.

    By default areas are those of the boxes, no object is a crowd, and ids count from 0.
    """
    count = len(labels)
    box = np.asarray(boxes, np.float64).reshape(count, 4)
    columns = {
        "object_id": range(count) if ids is None else ids,
        "image_id": image_ids,
        "label": labels,
        **{axis: box[:, k] for k, axis in enumerate("xywh")},
        "area": box[:, 2] * box[:, 3] if areas is None else areas,
        "crowd": [False] * count if crowd is None else crowd,
    }
    return pl.DataFrame(columns, schema=OBJECTS)


def empty_object_table() -> pl.DataFrame:
    """No objects, as in a manifest of OOD images."""
    return pl.DataFrame(schema=OBJECTS)


def clean_boxes(boxes: Sequence[Sequence[float]] | np.ndarray, location: str) -> np.ndarray:
    """The boxes (x, y, width, height) of a published file as (n, 4) float64, with negative sizes set to 0.

    A box of size 0 matches nothing. SaodError if a coordinate is not finite or exceeds `MAX_COORDINATE`.
    """
    array = np.asarray(boxes, np.float64).reshape(-1, 4)
    wrong = ~(np.abs(array) <= MAX_COORDINATE).all(axis=1)
    if wrong.any():
        raise SaodError(
            f"{location} has the box {array[wrong][0].tolist()}: fix or remove it, or fetch the file again."
        )
    return np.column_stack([array[:, :2], np.maximum(array[:, 2:], 0)])


def first_images(manifest: Manifest, count: int) -> Manifest:
    """The first `count` images and their objects."""
    images = manifest.images.head(count)
    ids = images.select("image_id")
    return Manifest(images, manifest.objects.join(ids, on="image_id", how="semi", maintain_order="left"))


def concat_manifests(parts: Sequence[Manifest]) -> Manifest:
    """Concatenate manifests; images and objects are renumbered from 0."""
    images, objects = [], []
    start = 0
    for part in parts:
        stop = start + part.images.height
        number = part.images.select("image_id", number=pl.int_range(start, stop, dtype=pl.Int64))
        images.append(part.images.with_columns(image_id=number["number"], source_id=number["number"]))
        numbered = part.objects.join(number, on="image_id", how="inner", maintain_order="left")
        objects.append(numbered.with_columns(image_id="number").drop("number").sort("image_id", maintain_order=True))
        start = stop
    all_objects = pl.concat(objects)
    object_ids = pl.int_range(all_objects.height, dtype=pl.Int64)
    return Manifest(pl.concat(images), all_objects.with_columns(object_id=object_ids))
