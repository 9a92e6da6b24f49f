"""From a range of a manifest to pixels: read, decode, and blank or corrupt. Runs as a task, once for all detectors."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from saod_ray.corrupt import blank, corrupt, draw
from saod_ray.data.images import decode
from saod_ray.errors import SaodError
from saod_ray.files import BadNameError, Folder

TRIES = 4  # of reading a file; a missing one is missing at once, and so is a name that no file can have
PAUSE = 0.5  # seconds before the second try, doubled for each after it


class Wanted(NamedTuple):
    """An image that is to be prepared; `boxes` (x, y, w, h) are blanked."""

    image_id: int
    file_name: str
    boxes: np.ndarray | None


class Picture(NamedTuple):
    """An image as detectors see it, or why there is none."""

    image_id: int
    pixels: np.ndarray | None
    corruption: str | None
    error: str | None


def prepare(root: str, wanted: list[Wanted], severity: int, seed: int) -> tuple[int, list[Picture]]:
    """How many images are good, and all of them in order; a bad one is an error that goes no further."""
    import cv2

    cv2.setNumThreads(1)
    folder = Folder(root)
    pictures = [_prepared(folder, each, severity, seed) for each in wanted]
    return sum(picture.error is None for picture in pictures), pictures


def _prepared(folder: Folder, wanted: Wanted, severity: int, seed: int) -> Picture:
    corruption = draw(seed, wanted.image_id, severity) if severity else None
    try:
        pixels = decode(_read(folder, wanted.file_name), wanted.file_name)
        if wanted.boxes is not None:
            pixels = blank(pixels, wanted.boxes)
        if corruption is not None:
            pixels = corrupt(pixels, corruption, severity, seed, wanted.image_id)
    except FileNotFoundError:
        return Picture(wanted.image_id, None, corruption, f"There is no file {wanted.file_name}.")
    except SaodError as error:
        said = str(error).replace(folder.shown(wanted.file_name), wanted.file_name)  # wherever the data lies
        return Picture(wanted.image_id, None, corruption, " ".join(said.split()))
    except Exception as error:  # what decoding or corrupting raises is about this image
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return Picture(wanted.image_id, None, corruption, f"{wanted.file_name} cannot be prepared ({reason}).")
    return Picture(wanted.image_id, pixels, corruption, None)


def _read(folder: Folder, name: str) -> bytes:
    for number in range(TRIES):
        try:
            return folder.read(name)
        except (FileNotFoundError, BadNameError):
            raise
        except (OSError, SaodError):
            if number == TRIES - 1:
                raise
            time.sleep(PAUSE * 2**number)
    raise AssertionError
