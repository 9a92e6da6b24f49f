"""The ground truth of a source as arrays, in the order that matching needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from saod_ray.data.manifest import Manifest

Array = np.ndarray
# all, small, medium, large: an area on a border belongs to both ranges, as in pycocotools
AREA_RANGES = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))


@dataclass(frozen=True)
class GroundTruth:
    """The images and objects of val, id or ood.

    The objects of image i are at start[i] to start[i + 1]: non-crowd objects first, otherwise in file order.
    """

    image_ids: Array  # (images,) int64, ascending; elsewhere images are positions in this array
    start: Array  # (images + 1,) int64
    label: Array  # (objects,) int16
    box: Array  # (objects, 4) float64: x1, y1, x2, y2 in pixels
    size: Array  # (objects, 2) float64: width, height in pixels
    crowd: Array  # (objects,) bool
    zero_id: Array  # (objects,) bool: whether the annotation id is 0
    area: Array  # (objects,) uint8: bits of area ranges, see `area_bits`
    rank: Array  # (objects,) int64: position in the file
    subset: Array  # (images,) int16: number of the OOD subset, in the order of the use case
    classes: int  # number of classes

    @classmethod
    def from_manifest(cls, manifest: Manifest, classes: int, subsets: Sequence[str] = ()) -> GroundTruth:
        """Join the objects with their images, in ascending order of image ids."""
        import polars as pl

        images = manifest.images.select("image_id", "subset").sort("image_id").with_row_index("position")
        number = {name: k for k, name in enumerate(subsets)}
        table = (
            manifest.objects.with_row_index("rank")
            .join(images.select("image_id", "position"), on="image_id", how="inner", maintain_order="left")
            .sort("position", "crowd", maintain_order=True)
            .with_columns(x2=pl.col("x") + pl.col("w"), y2=pl.col("y") + pl.col("h"))
        )
        return cls(
            image_ids=images["image_id"].to_numpy(),
            start=np.searchsorted(table["position"].to_numpy(), np.arange(images.height + 1)),
            label=np.array(table["label"]),
            box=np.array(table.select("x", "y", "x2", "y2"), order="C"),
            size=np.array(table.select("w", "h"), order="C"),
            crowd=np.array(table["crowd"]),
            zero_id=np.array(table["object_id"] == 0),
            area=area_bits(table["area"].to_numpy()),
            rank=np.array(table["rank"], np.int64),
            subset=np.array([number.get(name, 0) for name in images["subset"]], np.int16),
            classes=classes,
        )

    def counts(self, images: Array) -> Array:
        """The number of non-crowd objects per class, (classes,), on these images (positions)."""
        return np.bincount(self.label[self.on(images) & ~self.crowd], minlength=self.classes)

    def on(self, images: Array) -> Array:
        """A mask (objects,) of the objects on these images (positions)."""
        is_selected = np.zeros(len(self.image_ids), bool)
        is_selected[images] = True
        return np.repeat(is_selected, np.diff(self.start))

    def annotated(self) -> Array:
        """A mask (images,) of the images that have an annotation, crowds included."""
        return np.diff(self.start) > 0


def area_bits(area: Array) -> Array:
    """The area ranges that contain an area, as bits: bit k is AREA_RANGES[k].

    >>> area_bits(np.array([5.0, 1024.0, 1e6])).tolist()
    [3, 7, 9]
    """
    bits = np.zeros(len(area), np.uint8)
    for bit, (low, high) in enumerate(AREA_RANGES):
        bits |= ((area >= low) & (area <= high)).astype(np.uint8) << bit
    return bits
