"""The frost photographs in the package `imagecorruptions`, which is not imported."""

from __future__ import annotations

import importlib.util
import math
import threading
from collections import OrderedDict
from functools import cache
from pathlib import Path

import cv2
import numpy as np

from saod_ray.errors import SaodError

Array = np.ndarray
NAMES = (
    "frost1.png",
    "frost2.png",
    "frost3.png",
    "frost4.jpg",
    "frost5.jpg",
)  # imagecorruptions has a sixth that it never draws
_MAX_CACHE_BYTES = 128 * 2**20

_cache: OrderedDict[tuple[int, int, int], Array] = OrderedDict()
_lock = threading.Lock()


def size_for(index: int, height: int, width: int) -> tuple[int, int]:
    """Height and width of the resized texture: 1.1 times its own size, or 1.1 times what covers the image."""
    rows, columns = _texture(index).shape[:2]
    scale = max(1, height / rows, width / columns) * 1.1
    return math.ceil(rows * scale), math.ceil(columns * scale)


def resized(index: int, height: int, width: int) -> Array:
    """A texture resized to the result of `size_for`, RGB. The array is cached, shared and read-only."""
    key = (index, height, width)
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    # two threads may both compute the texture: the pixels are the same
    texture = cv2.resize(_texture(index), (width, height), interpolation=cv2.INTER_CUBIC)
    texture.flags.writeable = False
    if texture.nbytes <= _MAX_CACHE_BYTES:
        with _lock:
            _cache[key] = texture
            while sum(image.nbytes for image in _cache.values()) > _MAX_CACHE_BYTES:
                _cache.popitem(last=False)
    return texture


@cache
def _texture(index: int) -> Array:
    path = _folder() / NAMES[index]
    texture = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
    if texture is None:
        raise SaodError(
            f"The frost texture {path} cannot be read; run `pip install --force-reinstall imagecorruptions`."
        )
    return texture


def _folder() -> Path:
    spec = importlib.util.find_spec("imagecorruptions")
    if spec is None or spec.origin is None:
        raise SaodError(
            "The corruption 'frost' uses the photographs of the package imagecorruptions, which is not installed; run `pip install imagecorruptions`."
        )
    return Path(spec.origin).parent / "frost"
