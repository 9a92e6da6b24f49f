"""How good a trained detector is on the images it was not trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from saod_ray.config import DetectorSpec
from saod_ray.data.images import decode
from saod_ray.data.manifest import Manifest
from saod_ray.data.raw import Progress
from saod_ray.detect.adapter import MmdetDetector
from saod_ray.detect.detections import Detections, Detector
from saod_ray.files import Folder
from saod_ray.score.ap import accuracy
from saod_ray.score.matching import overlaps
from saod_ray.score.objects import Objects, area_bits
from saod_ray.score.split import Split
from saod_ray.train.recipe import config_of
from saod_ray.train.settings import Settings

AT_ONCE = 32  # images in memory


def accuracy_of(settings: Settings, weights: Path, val: Manifest, root: str) -> dict[str, Any]:
    """AP, AP50 and AP75 of the weights as they were written."""
    spec = DetectorSpec(name=settings.detector, classes=settings.classes, fingerprint="")
    detector = MmdetDetector(spec, config_of(settings.config, len(settings.classes)), weights, threads=1)
    figures = accuracy(*detected(detector, val, root), zero_id_misses=False)
    return {name: round(figures[name], 4) for name in ("ap", "ap50", "ap75")}


def detected(
    detector: Detector, manifest: Manifest, root: str, progress: Progress | None = None
) -> tuple[Split, Objects]:
    """A detector's detections on a manifest's images, and the objects there."""
    images = manifest.images.sort("image_id")["file_name"].to_list()
    folder, found = Folder(root), []
    for start in range(0, len(images), AT_ONCE):
        names = images[start : start + AT_ONCE]
        found += detector.detect([decode(folder.read(name), name) for name in names])
        if progress:
            progress(len(found), len(images))
    objects = Objects.of(manifest, len(detector.spec.classes))
    return _split(found, objects), objects


def _split(found: list[Detections], objects: Objects) -> Split:
    label = np.concatenate([each.label for each in found])
    box = np.concatenate([each.box for each in found]).astype(np.float64)
    offsets = np.concatenate([[0], np.cumsum([len(each.label) for each in found])])
    images, size = np.arange(len(found)), box[:, 2:] - box[:, :2]
    ground = (objects.start, objects.label, objects.box, objects.size, objects.crowd)
    detection, thing, iou = overlaps(images, offsets, label, box, size, *ground)
    return Split(
        images=images,
        offsets=offsets,
        label=label,
        score=np.concatenate([each.score for each in found]).astype(np.float64),
        area=area_bits(size[:, 0] * size[:, 1]),
        pair_start=np.concatenate([[0], np.cumsum(np.bincount(detection, minlength=len(label)))]),
        pair_object=thing,
        pair_iou=iou,
    )
