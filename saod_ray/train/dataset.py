"""A use case's images and objects as mmdet trains on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from saod_ray.data.images import OWN_IMAGES, load
from saod_ray.data.manifest import Manifest
from saod_ray.detect import mmdetection  # noqa: F401  (makes mmdet importable)
from saod_ray.files import Folder

from mmdet.datasets.base_det_dataset import BaseDetDataset  # isort: skip
from mmdet.registry import DATASETS, TRANSFORMS  # isort: skip


def records(manifest: Manifest) -> list[dict[str, Any]]:
    """One record an image: its name, size, boxes, labels, and which of them are crowds, to be ignored."""
    things = manifest.objects.filter((pl.col("w") >= 1) & (pl.col("h") >= 1)).with_columns(
        box=pl.concat_list("x", "y", pl.col("x") + pl.col("w"), pl.col("y") + pl.col("h"))
    )
    grouped = things.group_by("image_id", maintain_order=True).agg("box", "label", "crowd")
    table = manifest.images.join(grouped, on="image_id", how="left", maintain_order="left")
    return table.select("image_id", "file_name", "width", "height", "box", "label", "crowd").to_dicts()


@DATASETS.register_module()
class ManifestDataset(BaseDetDataset):
    """A manifest's images; those without an object are left out where `filter_cfg` says so."""

    def __init__(self, found: list[dict[str, Any]], root: str, **settings: Any) -> None:
        self._found, self._root = found, root
        super().__init__(**settings)

    def load_data_list(self) -> list[dict[str, Any]]:
        """mmdet's description of every image."""
        return [self._described(each) for each in self._found]

    def _described(self, each: dict[str, Any]) -> dict[str, Any]:
        columns = zip(each["box"] or (), each["label"] or (), each["crowd"] or (), strict=True)
        return {
            "img_path": each["file_name"],
            "img_id": each["image_id"],
            "root": self._root,
            "height": each["height"],
            "width": each["width"],
            "instances": [
                {"bbox": box, "bbox_label": label, "ignore_flag": int(crowd)} for box, label, crowd in columns
            ],
        }

    def filter_data(self) -> list[dict[str, Any]]:
        """The images worth training on."""
        settings = self.filter_cfg or {}
        least = settings.get("min_size", 0)
        kept = [each for each in self.data_list if min(each["width"] or least, each["height"] or least) >= least]
        return [each for each in kept if each["instances"]] if settings.get("filter_empty_gt") else kept


@TRANSFORMS.register_module()
class ReadImage:
    """Pixels from a folder or bucket, in mmdet's order of channels."""

    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        """Fill in the image and its size."""
        name = results["img_path"]
        image = load(Folder(results["root"]), name, OWN_IMAGES)
        results["img"] = np.ascontiguousarray(image[..., ::-1])
        results["img_shape"] = results["ori_shape"] = image.shape[:2]
        results["height"], results["width"] = image.shape[:2]
        return results
