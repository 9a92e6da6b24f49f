"""From a manifest's rows to pixels: read, decode, and blank or corrupt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np

from saod_ray.data.images import MAX_BYTES, MAX_PIXELS, decode
from saod_ray.errors import SaodError
from saod_ray.files import BadNameError, Folder

READ_ATTEMPTS = 4  # per file; a missing file and an impossible name fail at once
FIRST_PAUSE = 0.5  # seconds before the second attempt, doubled for each later one


class ImageRequest(NamedTuple):
    """An image to prepare. `boxes` (x, y, width, height in pixels) are blanked."""

    image_id: int
    file_name: str
    boxes: list[tuple[float, float, float, float]] | None = None


class PrepareOptions(NamedTuple):
    """Where images are, how they are corrupted, and which ones are refused."""

    root: str
    seed: int = 0
    max_pixels: int = MAX_PIXELS
    follow_links: bool = False  # links may lead out of the root
    is_any_path: bool = False  # names are paths that the user typed, and may lead anywhere


class PreparedImage(NamedTuple):
    """An image as detectors see it: `pixels` is (height, width, 3) uint8 RGB, or None with the reason in `error`."""

    image_id: int
    pixels: np.ndarray | None
    corruption: str | None = None
    error: str | None = None


def prepare(options: PrepareOptions, requests: Sequence[ImageRequest], severity: int = 0) -> list[PreparedImage]:
    """Prepare images below a root, in order. An image that cannot be prepared carries an error instead of pixels."""
    cv2.setNumThreads(1)  # parallelism belongs to the engine
    folder = Folder(options.root)
    return [_prepare_image(folder, request, severity, options) for request in requests]


def failed_image(request: ImageRequest, severity: int, seed: int, error: str) -> PreparedImage:
    """A prepared image without pixels, with the reason."""
    return PreparedImage(request.image_id, None, _draw_corruption(request, severity, seed), error)


def _draw_corruption(request: ImageRequest, severity: int, seed: int) -> str | None:
    """The name of the image's corruption; None at severity 0."""
    if not severity:
        return None
    from saod_ray.corrupt import draw  # slow to import, and not every split needs it

    return draw(seed, request.image_id, severity)


def _prepare_image(folder: Folder, request: ImageRequest, severity: int, options: PrepareOptions) -> PreparedImage:
    image_id, name, boxes = request
    corruption = _draw_corruption(request, severity, options.seed)
    try:
        pixels = decode(_read_with_retries(folder, name, options), name, options.max_pixels)
        if boxes is not None:
            from saod_ray.corrupt import blank

            pixels = blank(pixels, np.asarray(boxes, np.float64))
        if corruption is not None:
            from saod_ray.corrupt import corrupt

            pixels = corrupt(pixels, corruption, severity, options.seed, image_id)
    except FileNotFoundError:
        return PreparedImage(image_id, None, corruption, f"There is no file {name}.")
    except SaodError as error:
        message = str(error).replace(folder.display_path(name), name)  # the same row wherever the data folder is
        return PreparedImage(image_id, None, corruption, " ".join(message.split()))
    except Exception as error:  # whatever decoding or corruption raises concerns this image alone
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return PreparedImage(image_id, None, corruption, f"{name} cannot be prepared ({reason}).")
    return PreparedImage(image_id, pixels, corruption)


def _read_with_retries(folder: Folder, name: str, options: PrepareOptions) -> bytes:
    for attempt in range(READ_ATTEMPTS):
        try:
            if options.is_any_path:
                return folder.read(name)
            return folder.read_inside(name, follow_links=options.follow_links, max_bytes=MAX_BYTES)
        except (FileNotFoundError, BadNameError):
            raise
        except (OSError, SaodError):
            if attempt == READ_ATTEMPTS - 1:
                raise
            time.sleep(FIRST_PAUSE * 2**attempt)
    raise AssertionError
