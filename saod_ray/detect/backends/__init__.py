"""Detectors of other libraries behind the detector protocol."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from saod_ray.errors import SaodError

MOST = 100  # detections of an image, as in the paper


def library(name: str) -> Any:
    """A library that only one backend needs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SaodError(f"{name} cannot be imported ({error}): pip install 'saod-ray[{name}]'.") from None


def batches(images: Sequence[np.ndarray], size: int) -> Iterator[list[int]]:
    """Numbers of images of one size, at most so many together, so that what is beside an image does not matter.

    >>> list(batches([np.zeros(3), np.zeros(2), np.zeros(3), np.zeros(3)], 2))
    [[1], [0, 2], [3]]
    """
    order = sorted(range(len(images)), key=lambda k: images[k].shape)
    for _, same in groupby(order, key=lambda k: images[k].shape):
        numbers = list(same)
        yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


def check_labels(detector: str, labels: Sequence[int], classes: Sequence[str]) -> list[int]:
    """The option `labels`: for each class the label that the model has for it."""
    whole = all(isinstance(label, int) and label >= 0 for label in labels)
    if not whole or len(set(labels)) < len(labels) or len(labels) != len(classes):
        raise SaodError(
            f"'{detector}': the option `labels` must have a number for each of the {len(classes)} classes, in their order."
        )
    return list(labels)
