"""Fingerprints of detectors: digests of everything that detections depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from saod_ray.config import DetectorSpec
from saod_ray.detect.backend_class import source_file
from saod_ray.detect.entries import BACKENDS, Entry
from saod_ray.detect.mmdet_config import inference_settings, load_config
from saod_ray.detect.weight_files import find_weights
from saod_ray.errors import SaodError, join_truncated
from saod_ray.versions import public_version

FORMAT = 2  # of fingerprints: raise it when the same files give other detections
PACKAGES = {  # whose versions change detections, besides OpenCV, which decodes images; mmcv has two package names
    "mmdet": ("torch", "mmdet", "mmcv", "mmcv-lite"),
    "torchvision": ("torch", "torchvision"),
    "transformers": ("torch", "transformers"),
}


def fingerprint(entry: Entry, use_case_classes: Sequence[str], weights: Path) -> str:
    """A digest of backend, model, image preparation, options, classes, weights and package versions.

    Paths and training settings do not count. No model is built, and no code of a user's class is run if its source file
    can be found without that.
    """
    classes = _label_order(entry, use_case_classes)
    config = inference_settings(load_config(entry, len(classes))) if entry.backend == "mmdet" else None
    parts = [FORMAT, entry.backend, config, entry.options, classes, _digest(find_weights(entry, weights))]
    parts.append([public_version(name) for name in ("opencv-python", *PACKAGES.get(entry.backend, ()))])
    if entry.backend not in BACKENDS:
        parts.append(_digest(source_file(entry)))
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def describe(entry: Entry, use_case_classes: Sequence[str], weights: Path) -> DetectorSpec:
    """The `spec` that the detector will have, without building it."""
    classes = _label_order(entry, use_case_classes)
    return DetectorSpec(name=entry.name, classes=classes, fingerprint=fingerprint(entry, use_case_classes, weights))


def _label_order(entry: Entry, use_case_classes: Sequence[str]) -> tuple[str, ...]:
    """The detector's classes in label order. SaodError unless they are those of the use case."""
    classes = entry.classes or tuple(use_case_classes)
    missing = [name for name in use_case_classes if name not in classes]
    extra = [name for name in classes if name not in use_case_classes]
    if missing or extra:
        parts = [f"lacks {join_truncated(missing)}"] * bool(missing) + [f"has also {join_truncated(extra)}"] * bool(
            extra
        )
        raise SaodError(
            f"'{entry.name}' does not have the classes of the use case: it {' and '.join(parts)}: "
            "name its `classes` as the use case does, in the order of its labels."
        )
    return classes


def _digest(path: Path | None) -> list[tuple[str, str]]:
    """Digests of a file, or of the model files in a folder by name; empty for None."""
    if path is None:
        return []
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".json", ".safetensors"))
        return [(file.name, *_digest(file)[0][1:]) for file in files]
    with path.open("rb") as file:
        return [("", hashlib.file_digest(file, "blake2b").hexdigest())]
