"""Which arrays are images, and their conversion to RGB."""

from __future__ import annotations

import numpy as np

from saod_ray.errors import SaodError

Array = np.ndarray


def as_rgb(array: Array) -> Array:
    """Convert grey (one channel or none), RGB or RGBA of 8 or 16 bits to (height, width, 3) uint8.

    Contiguous, writeable RGB bytes are returned without a copy. A fourth channel is dropped, and of 16 bits the upper
    eight are kept, as OpenCV does when it reads such a file. SaodError for any other array.

    >>> as_rgb(np.array([[0, 258, 65535]], np.uint16)).tolist()
    [[[0, 0, 0], [1, 1, 1], [255, 255, 255]]]
    """
    if not isinstance(array, np.ndarray):
        raise SaodError(f"An image must be a numpy array, not a {type(array).__name__}.")
    array = np.asarray(array)  # a matrix or masked array becomes a plain array
    channels = 1 if array.ndim == 2 else array.shape[2] if array.ndim == 3 else 0
    if array.dtype not in (np.uint8, np.uint16) or channels not in (1, 3, 4) or 0 in array.shape:
        raise SaodError(
            "An image must be height × width, with 1, 3 or 4 channels of uint8 or uint16, but this one has the shape "
            f"{array.shape} and the type {array.dtype}."
        )
    if array.dtype == np.uint16:
        array = (array >> 8).astype(np.uint8)
    if channels == 1:
        return np.repeat(array.reshape(*array.shape[:2], 1), 3, axis=2)
    return np.require(array[:, :, :3], requirements=["C", "W"])  # the kernels are compiled for such arrays
