"""Builds detectors: imports the backend's class, and calls it with its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saod_ray.config import DetectorSpec
from saod_ray.detect.backend_class import import_class
from saod_ray.detect.entries import Entry
from saod_ray.detect.fingerprints import describe
from saod_ray.detect.mmdet_config import load_config
from saod_ray.detect.weight_files import find_weights
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.detect.detections import Detector


def build(
    entry: Entry,
    use_case_classes: Sequence[str],
    weights: Path,
    device: str = "cpu",
    batch_size: int = 2,
    threads: int | None = None,
) -> Detector:
    """The detector with its weights loaded, on a device.

    `threads` is passed only to classes that have such a parameter. Settings that change detections, such as `half`, are
    options of the entry, so that the fingerprint covers them. SaodError if the class does not accept its options or does
    not make a detector.
    """
    spec = describe(entry, use_case_classes, weights)
    arguments = {
        "spec": spec,
        "checkpoint": find_weights(entry, weights),
        "device": device,
        "batch_size": batch_size,
    }
    if entry.backend == "mmdet":
        arguments["config"] = load_config(entry, len(spec.classes))
    backend = import_class(entry)
    signature = inspect.signature(backend)
    arguments |= ({"threads": threads} if "threads" in signature.parameters else {}) | entry.options
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise SaodError(f"'{entry.name}': {entry.backend} {error}: fix its `options`.") from error
    return _check_detector(entry, backend(**arguments))


def _check_detector(entry: Entry, instance: Any) -> Detector:
    if not callable(getattr(instance, "detect", None)) or not isinstance(getattr(instance, "spec", None), DetectorSpec):
        raise SaodError(
            f"'{entry.name}': {entry.backend} is not a detector: give it `detect(images)`, and keep the `spec` that it gets."
        )
    detector: Detector = instance
    return detector
