"""The photographs of frost that come with the package `imagecorruptions`, read without importing it."""

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
NAMES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")  # a sixth is there and never drawn
_MOST = 128 * 2**20  # bytes of resized textures kept

_kept: OrderedDict[tuple[int, int, int], Array] = OrderedDict()
_lock = threading.Lock()


def size_for(index: int, height: int, width: int) -> tuple[int, int]:
    """Height and width that a texture is enlarged to: by a tenth, or to a tenth more than covers the image."""
    rows, columns = _texture(index).shape[:2]
    scale = max(1, height / rows, width / columns) * 1.1
    return math.ceil(rows * scale), math.ceil(columns * scale)


def resized(index: int, height: int, width: int) -> Array:
    """A texture at the size that `size_for` gives, as RGB. Callers share it and must not change it."""
    key = (index, height, width)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    # Where two threads come here at once both compute the same pixels.
    texture = cv2.resize(_texture(index), (width, height), interpolation=cv2.INTER_CUBIC)
    texture.flags.writeable = False
    if texture.nbytes <= _MOST:
        with _lock:
            _kept[key] = texture
            while sum(each.nbytes for each in _kept.values()) > _MOST:
                _kept.popitem(last=False)
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
