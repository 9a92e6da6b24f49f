"""Thumbnails of test images with detections drawn on them."""

from __future__ import annotations

import base64
import io
from typing import NamedTuple

import numpy as np
import polars as pl

from saod_ray.corrupt import corrupt, draw
from saod_ray.data.images import OTHERS_IMAGES, ImageLimits, load
from saod_ray.errors import SaodError
from saod_ray.files import Folder
from saod_ray.report.preview import CaptionedImage, draw_boxes
from saod_ray.score.benchmark import Benchmark
from saod_ray.splits import SplitName

Array = np.ndarray
QUALITY = 70  # of WebP


class ImageDetections(NamedTuple):
    """Detections on one image."""

    label: Array  # (n,) int16
    score: Array  # (n,) float64
    box: Array  # (n, 4) float64, x1 y1 x2 y2 in pixels

    def select(self, keep: Array) -> ImageDetections:
        """The detections of a mask or of indices."""
        return ImageDetections(self.label[keep], self.score[keep], self.box[keep])


class Thumbnails:
    """Thumbnails of a store's test images, whose files are in the folder `root`; `seed` is that of the corruptions."""

    def __init__(self, benchmark: Benchmark, root: str, seed: int, limits: ImageLimits = OTHERS_IMAGES) -> None:
        self._benchmark, self._store, self._seed = benchmark, benchmark.store, seed
        self._folder, self._limits = Folder(root), limits
        self._images: dict[str, pl.DataFrame] = {
            source: self._store.manifest(source).images.sort("image_id")
            for source in benchmark.store.description.manifests
            if source != "val"
        }

    def file_name(self, split: str, position: int) -> str:
        """The file name of the image at a position of the manifest."""
        return str(self._images[SplitName(split).source]["file_name"][position])

    def detections(self, detector: str, split: str, position: int) -> tuple[ImageDetections, str | None]:
        """An image's detections by descending score, and its corruption."""
        image_id = int(self._benchmark.objects[SplitName(split).source].image_ids[position])
        for shard in self._store.shards(detector, split):
            rows = self._store.read_shard(detector, split, shard)
            for row in np.flatnonzero(rows.image_id == image_id).tolist():
                part = slice(rows.offsets[row], rows.offsets[row + 1])
                label, score, box = (rows.columns[name][part] for name in ("label", "score", "box"))
                detections = ImageDetections(label, score.astype(np.float64), box.astype(np.float64))
                return detections.select(np.argsort(-detections.score, kind="stable")), rows.corruption[row]
        raise AssertionError(f"image {image_id} of {split} has a position but no row")

    def data_uri(self, split: str, position: int, corruption: str | None, detections: ImageDetections) -> str | None:
        """The image with these detections as a data URI; None if the image is not available."""
        pixels = self._pixels(split, position, corruption)
        if pixels is None:
            return None
        boxes = [
            (int(label), x, y, x2 - x, y2 - y)
            for label, (x, y, x2, y2) in zip(detections.label, detections.box, strict=True)
        ]
        classes = self._benchmark.classes
        pairs = zip(detections.label, detections.score, strict=True)
        texts = [f"{classes[label]} {score:.2f}" for label, score in pairs]
        sink = io.BytesIO()
        draw_boxes(CaptionedImage(pixels, "", boxes, texts), classes).save(sink, "WEBP", quality=QUALITY)
        return "data:image/webp;base64," + base64.b64encode(sink.getvalue()).decode()

    def _pixels(self, split: str, position: int, corruption: str | None) -> Array | None:
        """The image as detectors saw it: (height, width, 3) uint8, RGB.

        None if the file is missing or of another size, or if the seed gives another corruption than the recorded one.
        """
        row = self._images[SplitName(split).source].row(position, named=True)
        try:
            pixels = load(self._folder, row["file_name"], self._limits)
        except (FileNotFoundError, SaodError):
            return None
        if None not in (row["width"], row["height"]) and pixels.shape[:2] != (row["height"], row["width"]):
            return None
        severity = SplitName(split).severity
        if not severity:
            return pixels
        if corruption is None or draw(self._seed, row["image_id"], severity) != corruption:
            return None
        return corrupt(pixels, corruption, severity, self._seed, row["image_id"])
