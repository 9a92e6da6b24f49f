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
    """One record per image: its name, size, boxes (x1, y1, x2, y2 in pixels), labels, and which objects are crowds.

    Objects of less than a pixel in width or height are left out.
    """
    objects = manifest.objects.filter((pl.col("w") >= 1) & (pl.col("h") >= 1)).with_columns(
        box=pl.concat_list("x", "y", pl.col("x") + pl.col("w"), pl.col("y") + pl.col("h"))
    )
    grouped = objects.group_by("image_id", maintain_order=True).agg("box", "label", "crowd")
    table = manifest.images.join(grouped, on="image_id", how="left", maintain_order="left")
    return table.select("image_id", "file_name", "width", "height", "box", "label", "crowd").to_dicts()


@DATASETS.register_module()
class ManifestDataset(BaseDetDataset):
    """A manifest's images, filtered by `filter_cfg` as mmdet's datasets are: `min_size`, `filter_empty_gt`."""

    def __init__(self, image_records: list[dict[str, Any]], root: str, **settings: Any) -> None:
        self._records, self._root = image_records, root
        super().__init__(**settings)

    def load_data_list(self) -> list[dict[str, Any]]:
        """mmdet's description of every image."""
        return [self._data_info(record) for record in self._records]

    def _data_info(self, record: dict[str, Any]) -> dict[str, Any]:
        objects = zip(record["box"] or (), record["label"] or (), record["crowd"] or (), strict=True)
        return {
            "img_path": record["file_name"],
            "img_id": record["image_id"],
            "root": self._root,
            "height": record["height"],
            "width": record["width"],
            "instances": [
                {"bbox": box, "bbox_label": label, "ignore_flag": int(crowd)} for box, label, crowd in objects
            ],
        }

    def filter_data(self) -> list[dict[str, Any]]:
        """The images worth training on."""
        settings = self.filter_cfg or {}
        min_size = settings.get("min_size", 0)
        infos = [
            info for info in self.data_list if min(info["width"] or min_size, info["height"] or min_size) >= min_size
        ]
        return [info for info in infos if info["instances"]] if settings.get("filter_empty_gt") else infos


@TRANSFORMS.register_module()
class ReadImage:
    """Reads an image from a folder or bucket, with channels in BGR order as mmdet expects."""

    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        """Fill in the image and its size."""
        name = results["img_path"]
        image = load(Folder(results["root"]), name, OWN_IMAGES)
        results["img"] = np.ascontiguousarray(image[..., ::-1])
        results["img_shape"] = results["ori_shape"] = image.shape[:2]
        results["height"], results["width"] = image.shape[:2]
        return results
