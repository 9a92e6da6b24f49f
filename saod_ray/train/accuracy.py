"""The accuracy of a trained detector on images it was not trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from saod_ray.config import DetectorSpec
from saod_ray.data.images import OWN_IMAGES, load
from saod_ray.data.manifest import Manifest
from saod_ray.data.source_files import Progress
from saod_ray.detect.adapter import MmdetDetector
from saod_ray.detect.detections import Detections, Detector
from saod_ray.errors import SaodError
from saod_ray.files import Folder
from saod_ray.score.ap import accuracy
from saod_ray.score.objects import GroundTruth
from saod_ray.score.split import SplitDetections
from saod_ray.train.recipe import config_of
from saod_ray.train.settings import TrainSettings

BATCH_IMAGES = 32  # images in memory
NO_DETECTIONS = Detections(np.zeros(0, np.int16), np.zeros((0, 4), np.float32), np.zeros(0, np.float32))


def accuracy_of(
    settings: TrainSettings, weights: Path, val: Manifest, root: str, progress: Progress | None = None
) -> dict[str, Any]:
    """AP, AP50 and AP75 of the weights in a file, rounded to four decimals; undefined ones are left out."""
    spec = DetectorSpec(name=settings.detector, classes=settings.classes, fingerprint="")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = config_of(settings.config, len(settings.classes))
    detector = MmdetDetector(spec, config, weights, device, threads=None if device == "cuda" else 1)
    overall = accuracy(*detect_manifest(detector, val, root, progress), zero_id_misses=False).overall
    values = {"ap": overall.ap, "ap50": overall.ap50, "ap75": overall.ap75}
    return {name: round(value, 4) for name, value in values.items() if value is not None}


def detect_manifest(
    detector: Detector, manifest: Manifest, root: str, progress: Progress | None = None
) -> tuple[SplitDetections, GroundTruth]:
    """A detector's detections on a manifest's images, and their objects; an unreadable image has no detections."""
    images = manifest.images.sort("image_id")["file_name"].to_list()
    folder = Folder(root)
    detections: list[Detections] = []
    for start in range(0, len(images), BATCH_IMAGES):
        pixels = [_pixels(folder, name) for name in images[start : start + BATCH_IMAGES]]
        results = iter(detector.detect([image for image in pixels if image is not None]))
        detections += [NO_DETECTIONS if image is None else next(results) for image in pixels]
        if progress:
            progress(len(detections), len(images))
    objects = GroundTruth.from_manifest(manifest, len(detector.spec.classes))
    return _to_split(detections, objects), objects


def _pixels(folder: Folder, name: str) -> np.ndarray | None:
    try:
        return load(folder, name, OWN_IMAGES)
    except (SaodError, OSError):
        return None


def _to_split(detections: list[Detections], objects: GroundTruth) -> SplitDetections:
    label = np.concatenate([image.label for image in detections])
    box = np.concatenate([image.box for image in detections]).astype(np.float64)
    offsets = np.concatenate([[0], np.cumsum([len(image.label) for image in detections])])
    score = np.concatenate([image.score for image in detections]).astype(np.float64)
    return SplitDetections.from_boxes(
        np.arange(len(detections)), offsets, label, score, box, box[:, 2:] - box[:, :2], objects
    )
