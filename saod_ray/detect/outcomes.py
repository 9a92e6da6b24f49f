"""Runs a detector on images so that an error concerns only the image that causes it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from saod_ray.detect.detections import Detections, Detector
from saod_ray.errors import SaodError

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_POISONED = "CUDA error"  # in torch's message after which this process cannot use the GPU any more
_MATRICES = ("box", "variance")


class PoisonedError(SaodError):
    """The process cannot use its GPU any more: all further images would fail too."""


def outcomes(detector: Detector, images: list[np.ndarray], batch_size: int) -> list[Detections | str]:
    """For each image its detections in the precision of a shard, or the reason why the detector fails on it alone.

    The detector gets at most `batch_size` images at a time. Batches depend only on the list of images. PoisonedError if
    the GPU cannot be used any more.
    """
    results: dict[int, Detections | str] = {}
    for batch in shape_batches([image.shape for image in images], batch_size):
        results.update(zip(batch, _batch_outcomes(detector, [images[k] for k in batch]), strict=True))
    return [results[k] for k in range(len(images))]


def shape_batches(shapes: Sequence[tuple[int, ...]], batch_size: int) -> list[list[int]]:
    """Batches of positions of images with the same shape; shapes are in order of first appearance.

    >>> shape_batches([(4, 4, 3), (2, 2, 3), (4, 4, 3), (4, 4, 3)], 2)
    [[0, 2], [3], [1]]
    """
    positions: dict[tuple[int, ...], list[int]] = {}
    for position, shape in enumerate(shapes):
        positions.setdefault(shape, []).append(position)
    return [group[k : k + batch_size] for group in positions.values() for k in range(0, len(group), batch_size)]


def _batch_outcomes(detector: Detector, images: list[np.ndarray]) -> list[Detections | str]:
    try:
        detections = detector.detect(images)
        if len(detections) != len(images):
            raise ValueError(f"{len(detections)} results for {len(images)} images")
        return [_check_detections(result, len(detector.spec.classes)) for result in detections]
    except Exception as error:  # any error may be due to one image: try each alone
        message = sentence(error)
        if _POISONED in message:
            raise PoisonedError(
                f"This process cannot use its GPU any more ({message}): run the same command to resume."
            ) from error
        if len(images) == 1:
            return [message]
    return [outcome for image in images for outcome in _batch_outcomes(detector, [image])]


def sentence(error: Exception) -> str:
    """An exception as one line, without memory addresses: the same failure gives the same row in every process."""
    return _ADDRESS.sub("0x…", " ".join(f"{type(error).__name__}: {error}".split()))


def _check_detections(result: Detections, classes: int) -> Detections | str:
    """Detections in the types of a shard, or what is wrong with them."""
    count = len(result.score)
    arrays = {name: np.asarray(value, np.float32) for name, value in vars(result).items() if value is not None}
    for name, array in arrays.items():
        if array.shape != ((count, 4) if name in _MATRICES else (count,)):
            return f"The detector gave {name} of shape {array.shape} for {count} scores."
    if not (np.isfinite(arrays["box"]).all() and np.isfinite(arrays["score"]).all()):
        return "The detector gave a box or a score that is no number."
    label = np.asarray(result.label).astype(np.int16)
    if ((label < 0) | (label >= classes)).any():
        return f"The detector gave a label that is not below {classes}."
    return Detections(**(arrays | {"label": label}))
