"""Detections as a shard takes them, or why there are none: what a detector raises is about the image at fault alone."""

from __future__ import annotations

import re

import numpy as np

from saod_ray.detect.detections import Detections, Detector
from saod_ray.errors import SaodError

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_POISONED = "CUDA error"  # what torch says when nothing can be done on the GPU any more by this process
_MATRICES = ("box", "variance")


class PoisonedError(SaodError):
    """The process cannot use its GPU any more: every image after this one would fail, too."""


def outcomes(detector: Detector, images: list[np.ndarray], batch_size: int) -> list[Detections | str]:
    """Detections in the precision of a shard, or for an image that the detector raises on even when alone, a sentence.

    The detector never sees more images at once than `batch_size`, whatever it would do with them.
    """
    batches = [images[k : k + batch_size] for k in range(0, len(images), batch_size)]
    return [outcome for batch in batches for outcome in _of_batch(detector, batch)]


def _of_batch(detector: Detector, images: list[np.ndarray]) -> list[Detections | str]:
    try:
        found = detector.detect(images)
        if len(found) != len(images):
            raise ValueError(f"{len(found)} results for {len(images)} images")
        return [_checked(each, len(detector.spec.classes)) for each in found]
    except Exception as error:  # whatever a detector raises is about its images until each was tried alone
        said = sentence(error)
        if _POISONED in said:
            raise PoisonedError(
                f"The GPU is of no more use to this process ({said}): run the same command again."
            ) from None
        if len(images) == 1:
            return [said]
    return [outcome for image in images for outcome in _of_batch(detector, [image])]


def sentence(error: Exception) -> str:
    """An exception without what differs from process to process, so that the same failure is the same row."""
    return _ADDRESS.sub("0x…", " ".join(f"{type(error).__name__}: {error}".split()))


def _checked(found: Detections, classes: int) -> Detections | str:
    """Detections as a shard takes them, or what is wrong with them."""
    count = len(found.score)
    arrays = {name: np.asarray(value, np.float32) for name, value in vars(found).items() if value is not None}
    for name, array in arrays.items():
        if array.shape != ((count, 4) if name in _MATRICES else (count,)):
            return f"The detector gave {name} of shape {array.shape} for {count} scores."
    if not (np.isfinite(arrays["box"]).all() and np.isfinite(arrays["score"]).all()):
        return "The detector gave a box or a score that is no number."
    label = np.asarray(found.label).astype(np.int16)
    if not np.isin(label, range(classes)).all():
        return f"The detector gave a label that is not below {classes}."
    return Detections(**(arrays | {"label": label}))
