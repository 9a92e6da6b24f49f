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


FARTHEST = 1e9  # of a coordinate, in pixels


@dataclass(frozen=True)
class Manifest:
    """The images of a source in file order, and its objects in file order."""

    images: pl.DataFrame
    objects: pl.DataFrame


@dataclass(frozen=True)
class Classes:
    """The use case's classes, by rising category id unless it names them in another order."""

    names: tuple[str, ...]
    category_ids: tuple[int, ...]

    def label_of(self) -> dict[int, int]:
        """Category id → label."""
        return {category: label for label, category in enumerate(self.category_ids)}


def image_table(
    ids: Sequence[int],
    prefix: str,
    names: Sequence[str],
    widths: Sequence[int | None] | None = None,
    heights: Sequence[int | None] | None = None,
) -> pl.DataFrame:
    """Images of one source by their ids there; file names get the prefix.

    This is the only place that takes names from annotations. One that leads out of the data's root is refused.
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
    areas: Sequence[float] | None = None,
    crowd: Sequence[bool] | None = None,
    ids: Sequence[int] | None = None,
) -> pl.DataFrame:
    """Objects with boxes of x, y, w, h; without areas of their own these are the boxes'."""
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


def sane(boxes: Sequence[Sequence[float]] | np.ndarray, file: str) -> np.ndarray:
    """Boxes of a published file: a size below 0 becomes 0 and matches nothing; what no image can hold is refused."""
    found = np.asarray(boxes, np.float64).reshape(-1, 4)
    wrong = ~(np.abs(found) <= FARTHEST).all(axis=1)
    if wrong.any():
        raise SaodError(f"{file} has the box {found[wrong][0].tolist()}: mend or remove it, or fetch the file again.")
    return np.column_stack([found[:, :2], np.maximum(found[:, 2:], 0)])


def first(manifest: Manifest, count: int) -> Manifest:
    """The first images and their objects."""
    images = manifest.images.head(count)
    kept = images.select("image_id")
    return Manifest(images, manifest.objects.join(kept, on="image_id", how="semi", maintain_order="left"))


def joined(parts: Sequence[Manifest]) -> Manifest:
    """Manifests one after the other, images and objects numbered anew from 0 in this order."""
    images, objects = [], []
    before = 0
    for part in parts:
        count = part.images.height
        number = part.images.select("image_id", number=pl.int_range(before, before + count, dtype=pl.Int64))
        images.append(part.images.with_columns(image_id=number["number"], source_id=number["number"]))
        numbered = part.objects.join(number, on="image_id", how="inner", maintain_order="left")
        objects.append(numbered.with_columns(image_id="number").drop("number").sort("image_id", maintain_order=True))
        before += count
    together = pl.concat(objects)
    return Manifest(pl.concat(images), together.with_columns(object_id=pl.int_range(together.height, dtype=pl.Int64)))
