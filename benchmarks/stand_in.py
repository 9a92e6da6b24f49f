"""A stand-in detector with a configurable cost, and generated photographs for it; used by benchmarks.stream."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import cv2
import numpy as np

from benchmarks.measure import workspace
from saod_ray.config import DetectorSpec
from saod_ray.detect.detections import Detections
from tests.corrupt import pictures

DIFFERENT = 32  # generated images; all others are hard links to these


class StandIn:
    """Takes `ms` milliseconds per image, waiting (as for a GPU) or computing, and returns one detection."""

    def __init__(
        self,
        spec: DetectorSpec,
        checkpoint: Path | None,
        device: str,
        batch_size: int,
        ms: float,
        computes: bool,
        start_seconds: float = 0.0,
    ) -> None:
        time.sleep(start_seconds)
        self.spec, self._seconds, self._computes = spec, ms / 1e3, computes
        self._one = Detections(np.zeros(1, np.int16), np.array([[1, 1, 9, 9]], np.float32), np.array([0.5], np.float32))

    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        """The same detection for every image."""
        if self._computes:
            until = time.thread_time() + self._seconds * len(images)
            rows = images[0][:16]  # takes a few microseconds, so that the time is hardly exceeded
            while time.thread_time() < until:
                rows.sum()
        elif self._seconds:
            time.sleep(self._seconds * len(images))
        return [self._one] * len(images)


def tables(kind: str, count: int, ms: float, computes: bool, start_seconds: float = 0.0) -> str:
    """One TOML file per detector, so that each can run alone."""
    slow = f", start_seconds = {start_seconds:.1f}" if start_seconds else ""
    paths = []
    for k in range(count):
        path = workspace("stream") / f"{kind}-{k}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        options = f"options = {{ ms = {ms:.3f}, computes = {str(computes).lower()}{slow} }}"
        path.write_text(f'[{kind}-{k}]\nbackend = "benchmarks.stand_in:StandIn"\n{options}\n')
        paths.append(str(path))
    return ",".join(paths)


def photographs(name: str, count: int, width: int, height: int) -> str:
    """The path of a use case with `count` generated JPEGs, of which at most 32 differ. It is generated once per count."""
    place = workspace("stream") / f"{name}-{count}"
    if not (place / "use-case.toml").exists():
        shutil.rmtree(place, ignore_errors=True)
        (place / "images").mkdir(parents=True)
        for k in range(count):
            target = place / "images" / f"{k:06d}.jpg"
            if k < DIFFERENT:
                cv2.imwrite(str(target), pictures.photograph(height, width, k))
            else:
                os.link(place / "images" / f"{k % DIFFERENT:06d}.jpg", target)
        size = {"width": width, "height": height}
        images = [{"id": k + 1, "file_name": f"{k:06d}.jpg", **size} for k in range(count)]
        for source, listed_images in (("val", images[:1]), ("id", images)):
            objects = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "area": 81, "iscrowd": 0}]
            value = {"images": listed_images, "annotations": objects, "categories": [{"id": 1, "name": "thing"}]}
            (place / f"{source}.json").write_text(json.dumps(value))
        tables = [f'[splits.{source}]\nannotations = "{source}.json"\nimages = "images"' for source in ("val", "id")]
        (place / "use-case.toml").write_text("\n".join([f'name = "{name}"', *tables, "severities = [3]\n"]))
    return str(place / "use-case.toml")
