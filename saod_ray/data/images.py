"""Image files: whether they are there and are images, and their pixels."""

from __future__ import annotations

import io
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np

from saod_ray.data.headers import exact_size, kind_of
from saod_ray.data.raw import Progress
from saod_ray.errors import SaodError, join_truncated
from saod_ray.files import Folder

PNG = b"\x89PNG\r\n\x1a\n"
MAX_PIXELS = 178_956_970  # of an image; decoded it takes half a gigabyte
MAX_BYTES = 1 << 30  # of an image file
READERS = 16  # threads that wait for files at once
_PILLOW = threading.Lock()  # Pillow's limit is one for the process
cv2.utils.logging.setLogLevel(0)  # what OpenCV complains of is said by whoever asked for the image


def check(folder: Folder, names: list[str], what: str, progress: Progress | None = None) -> None:
    """Refuse images that are not there, or that do not begin as an image does."""
    absent, strange = [], []
    with ThreadPoolExecutor(READERS) as readers:
        verdicts = readers.map(partial(_looks_like_an_image, folder), names)
        for number, (name, verdict) in enumerate(zip(names, verdicts, strict=True), 1):
            if verdict is None:
                absent.append(name)
            elif not verdict:
                strange.append(name)
            if progress:
                progress(number, len(names))
    remedy = "finish the download, or build with --unchecked to count them as failed images"
    for faulty, verb in ((absent, "not there"), (strange, "no images")):
        if faulty:
            raise SaodError(
                f"{len(faulty):,} of {len(names):,} image files of {what} are {verb} below {folder.uri} "
                f"({join_truncated(faulty)}): {remedy}."
            )


def _looks_like_an_image(folder: Folder, name: str) -> bool | None:
    """By its first bytes; None when there is no such file."""
    try:
        head = folder.head(name, 16)
    except FileNotFoundError:
        return None
    return kind_of(head) not in (None, "GIF")


class UnknownFormatError(SaodError):
    """Bytes that are not an image of a format that is read here."""


class TooManyPixelsError(SaodError):
    """An image that is larger than the limit."""


class ImageLimits(NamedTuple):
    """What image files may be: how many pixels they have, and whether links may lead out of the data's root."""

    max_pixels: int = MAX_PIXELS
    follow_links: bool = False


OTHERS_IMAGES = ImageLimits()
OWN_IMAGES = ImageLimits(follow_links=True)


def load(folder: Folder, name: str, limits: ImageLimits = OTHERS_IMAGES, label: str | None = None) -> np.ndarray:
    """RGB pixels of an image file below a folder; errors call it `label`.

    The name may come from anyone: it must lead to a regular file inside the folder. FileNotFoundError when there is no
    such file.
    """
    data = folder.read_inside(name, follow_links=limits.follow_links, max_bytes=MAX_BYTES)
    return decode(data, name if label is None else label, limits.max_pixels)


def decode(data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """RGB, uint8, of a JPEG, PNG, BMP, TIFF, PNM, WebP or GIF: gray, with alpha, CMYK, 16 bits; turned as EXIF says.

    This is the only place that decodes images. An image of more than `max_pixels` is refused before its pixels are made:
    OpenCV decodes only files whose header has one meaning, and Pillow measures the others itself.
    """
    kind = kind_of(data[:16])
    if kind is None:
        raise UnknownFormatError(f"{name} is not an image that can be read (of no known format): fetch it again.")
    size = exact_size(data, kind)
    if size is None:
        return _decode_slowly(data, name, kind, max_pixels)
    _refuse_large(name, *size, max_pixels)
    try:
        pixels = None if _claims_too_much(data) else cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    except cv2.error:
        pixels = None
    return np.asarray(pixels) if pixels is not None else _decode_slowly(data, name, kind, max_pixels)


def _refuse_large(name: str, width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise TooManyPixelsError(
            f"{name} has {width:,} × {height:,} pixels, more than {max_pixels:,}: make it smaller, or raise --max-pixels."
        )


def _claims_too_much(data: bytes) -> bool:
    """Whether a chunk of a PNG says that it is longer than the file: OpenCV would make room for all that it says."""
    place = len(PNG)
    while data.startswith(PNG) and place < len(data):
        kind = data[place + 4 : place + 8]
        place += 12 + int.from_bytes(data[place : place + 4], "big")  # length, kind, content, checksum
        if kind == b"IEND":
            break  # what comes after the picture is none of its chunks
    return place > len(data)


def _decode_slowly(data: bytes, name: str, kind: str, max_pixels: int) -> np.ndarray:
    """What OpenCV does not read, Pillow may; it measures and decodes as this one format."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with _opened(data, kind) as picture:
            width, height = picture.size
            _refuse_large(name, width, height, max_pixels)
            return np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    except UnidentifiedImageError:
        raise UnknownFormatError(
            f"{name} is not an image that can be read (its header is not whole): fetch it again."
        ) from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise SaodError(f"{name} is not an image that can be read ({error}): fetch it again.") from None


def _opened(data: bytes, kind: str) -> Any:
    """An image whose header is read and whose pixels are not; Pillow's own limit, which may be below ours, is off."""
    from PIL import Image

    with _PILLOW:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(io.BytesIO(data), formats=[kind])
        finally:
            Image.MAX_IMAGE_PIXELS = before
