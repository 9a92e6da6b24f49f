"""Image files: checking that they exist and are images, and decoding them."""

from __future__ import annotations

import io
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np

from saod_ray.data.headers import exact_size, image_format
from saod_ray.data.source_files import Progress
from saod_ray.errors import SaodError, join_truncated
from saod_ray.files import Folder

PNG = b"\x89PNG\r\n\x1a\n"
MAX_PIXELS = 178_956_970  # per image; decoded it takes half a gigabyte
MAX_BYTES = 1 << 30  # per image file
READERS = 16  # threads that wait for files at once
_PILLOW = threading.Lock()  # Pillow's pixel limit is a global variable
cv2.utils.logging.setLogLevel(0)  # the caller reports what is wrong with an image


def check(folder: Folder, names: list[str], what: str, progress: Progress | None = None) -> None:
    """Raise SaodError if image files are missing, or do not begin like an image; errors call them files of `what`."""
    missing, invalid = [], []
    with ThreadPoolExecutor(READERS) as readers:
        results = readers.map(partial(_looks_like_an_image, folder), names)
        for number, (name, is_image) in enumerate(zip(names, results, strict=True), 1):
            if is_image is None:
                missing.append(name)
            elif not is_image:
                invalid.append(name)
            if progress:
                progress(number, len(names))
    remedy = "finish the download, or build with --unchecked to count them as failed images"
    for faulty, problem in ((missing, "missing"), (invalid, "not images")):
        if faulty:
            raise SaodError(
                f"{len(faulty):,} of {len(names):,} image files of {what} are {problem} below {folder.uri} "
                f"({join_truncated(faulty)}): {remedy}."
            )


def _looks_like_an_image(folder: Folder, name: str) -> bool | None:
    """Judged by its first bytes; None if there is no such file."""
    try:
        head = folder.head(name, 16)
    except FileNotFoundError:
        return None
    return image_format(head) not in (None, "GIF")


class UnknownFormatError(SaodError):
    """The bytes are not an image of a supported format."""


class TooManyPixelsError(SaodError):
    """The image has more pixels than allowed."""


class ImageLimits(NamedTuple):
    """Which image files are accepted: the most pixels, and whether links may lead out of the data root."""

    max_pixels: int = MAX_PIXELS
    follow_links: bool = False


OTHERS_IMAGES = ImageLimits()  # files that may come from anyone
OWN_IMAGES = ImageLimits(follow_links=True)  # files that the user put there


def load(folder: Folder, name: str, limits: ImageLimits = OTHERS_IMAGES, label: str | None = None) -> np.ndarray:
    """The pixels of an image file below a folder, (height, width, 3) uint8 RGB; errors call it `label`.

    The name may come from anyone: BadNameError unless it leads to a regular file inside the folder. FileNotFoundError
    if there is no such file, and SaodError if it cannot be decoded.
    """
    data = folder.read_inside(name, follow_links=limits.follow_links, max_bytes=MAX_BYTES)
    return decode(data, name if label is None else label, limits.max_pixels)


def decode(data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode a JPEG, PNG, BMP, TIFF, PNM, WebP or GIF to (height, width, 3) uint8 RGB, rotated as its EXIF tag says.

    Grey, CMYK, 16-bit images and images with alpha are converted. All images are decoded here. TooManyPixelsError is
    raised before memory for the pixels is allocated: OpenCV only gets files whose header all decoders read alike, and
    Pillow measures the others itself. UnknownFormatError or SaodError if the bytes cannot be decoded.
    """
    format = image_format(data[:16])
    if format is None:
        raise UnknownFormatError(f"{name} is not an image that can be read (of no known format): fetch it again.")
    size = exact_size(data, format)
    if size is None:
        return _decode_with_pillow(data, name, format, max_pixels)
    _check_pixels(name, *size, max_pixels)
    try:
        pixels = (
            None if _has_oversized_chunk(data) else cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        )
    except cv2.error:
        pixels = None
    return np.asarray(pixels) if pixels is not None else _decode_with_pillow(data, name, format, max_pixels)


def _check_pixels(name: str, width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise TooManyPixelsError(
            f"{name} has {width:,} × {height:,} pixels, more than {max_pixels:,}: make it smaller, or raise --max-pixels."
        )


def _has_oversized_chunk(data: bytes) -> bool:
    """Whether a chunk of a PNG claims to be longer than the file: OpenCV would allocate the claimed length."""
    position = len(PNG)
    while data.startswith(PNG) and position < len(data):
        chunk = data[position + 4 : position + 8]
        position += 12 + int.from_bytes(data[position : position + 4], "big")  # length, name, content, checksum
        if chunk == b"IEND":
            break  # bytes after the last chunk do not matter
    return position > len(data)


def _decode_with_pillow(data: bytes, name: str, format: str, max_pixels: int) -> np.ndarray:
    """Decode a file that OpenCV does not read; Pillow tries this format only."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with _open_with_pillow(data, format) as picture:
            width, height = picture.size
            _check_pixels(name, width, height, max_pixels)
            return np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    except UnidentifiedImageError:
        raise UnknownFormatError(
            f"{name} is not an image that can be read (its header is not whole): fetch it again."
        ) from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise SaodError(f"{name} is not an image that can be read ({error}): fetch it again.") from error


def _open_with_pillow(data: bytes, format: str) -> Any:
    """Read an image's header but not its pixels, with Pillow's own pixel limit switched off."""
    from PIL import Image

    with _PILLOW:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(io.BytesIO(data), formats=[format])
        finally:
            Image.MAX_IMAGE_PIXELS = before
