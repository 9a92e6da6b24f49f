"""Backends: detectors from models of other libraries. To add one, copy `torchvision.py` and list it in `entries.py`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from saod_ray.errors import SaodError

MAX_DETECTIONS = 100  # per image, as in the paper


def import_library(name: str) -> Any:
    """Import a library that only one backend needs. SaodError says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SaodError(f"{name} cannot be imported ({error}): pip install 'saod-ray[{name}]'.") from error


def batches(images: Sequence[np.ndarray], size: int) -> Iterator[list[int]]:
    """Batches of indices of images of the same size, at most `size` per batch.

    Images of the same size are not padded, so that results do not depend on the batch.

    >>> list(batches([np.zeros(3), np.zeros(2), np.zeros(3), np.zeros(3)], 2))
    [[1], [0, 2], [3]]
    """
    order = sorted(range(len(images)), key=lambda k: images[k].shape)
    for _, same in groupby(order, key=lambda k: images[k].shape):
        indices = list(same)
        yield from (indices[start : start + size] for start in range(0, len(indices), size))


def check_labels(detector: str, labels: Sequence[int], classes: Sequence[str]) -> list[int]:
    """The option `labels`, the model's label of each class. SaodError unless they are distinct integers, one per class."""
    are_valid = all(isinstance(label, int) and label >= 0 for label in labels)
    if not are_valid or len(set(labels)) < len(labels) or len(labels) != len(classes):
        raise SaodError(
            f"'{detector}': the option `labels` must have a number for each of the {len(classes)} classes, in their order."
        )
    return list(labels)
