"""An image of a test split with some detections of a detector on it, small."""

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
from saod_ray.report.preview import Cell, framed
from saod_ray.score.benchmark import Benchmark
from saod_ray.splits import SplitName

Array = np.ndarray
QUALITY = 70


class Detections(NamedTuple):
    """Detections of one image; boxes are x1, y1, x2, y2."""

    label: Array
    score: Array
    box: Array

    def select(self, keep: Array) -> Detections:
        """Those of a mask or of some indices."""
        return Detections(self.label[keep], self.score[keep], self.box[keep])


class Thumbnails:
    """The images of a store's test splits, as far as they lie below a root; `seed` is that of the corruptions."""

    def __init__(self, benchmark: Benchmark, root: str, seed: int, limits: ImageLimits = OTHERS_IMAGES) -> None:
        self._benchmark, self._store, self._seed = benchmark, benchmark.store, seed
        self._folder, self._limits = Folder(root), limits
        known = benchmark.store.description.manifests
        self._images: dict[str, pl.DataFrame] = {
            name: self._store.manifest(name).images.sort("image_id") for name in known if name != "val"
        }

    def file_name(self, split: str, position: int) -> str:
        """The file of an image."""
        return str(self._images[SplitName(split).source]["file_name"][position])

    def detections(self, detector: str, split: str, position: int) -> tuple[Detections, str | None]:
        """An image's detections by falling score, and the corruption that it drew."""
        image_id = int(self._benchmark.objects[SplitName(split).source].image_ids[position])
        for shard in self._store.shards(detector, split):
            rows = self._store.read_shard(detector, split, shard)
            found = np.flatnonzero(rows.image_id == image_id)
            if len(found):
                here = slice(rows.offsets[found[0]], rows.offsets[found[0] + 1])
                score = rows.columns["score"][here].astype(np.float64)
                all_of_it = Detections(rows.columns["label"][here], score, rows.columns["box"][here].astype(np.float64))
                return all_of_it.select(np.argsort(-score, kind="stable")), rows.corruption[int(found[0])]
        raise AssertionError(f"image {image_id} of {split} was seen a moment ago")

    def drawn(self, split: str, position: int, corruption: str | None, shown: Detections) -> str | None:
        """A data URI of the image with these boxes and scores; None where the image is not at hand."""
        pixels = self._pixels(split, position, corruption)
        if pixels is None:
            return None
        boxes = [
            (int(label), x, y, x2 - x, y2 - y) for label, (x, y, x2, y2) in zip(shown.label, shown.box, strict=True)
        ]
        classes = self._benchmark.classes
        texts = [f"{classes[label]} {score:.2f}" for label, score in zip(shown.label, shown.score, strict=True)]
        sink = io.BytesIO()
        framed(Cell(pixels, "", boxes, texts), classes).save(sink, "WEBP", quality=QUALITY)
        return "data:image/webp;base64," + base64.b64encode(sink.getvalue()).decode()

    def _pixels(self, split: str, position: int, corruption: str | None) -> Array | None:
        """The image as detectors saw it; None where it is absent, another one, or its corruption cannot be drawn again."""
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
