"""Image files: whether they are there and are images, and their pixels."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import cv2
import numpy as np

from saod_ray.data.raw import Progress
from saod_ray.errors import SaodError, some
from saod_ray.files import Folder

# JPEG, PNG, BMP, TIFF (both byte orders, and BigTIFF), PNM; WebP is known by two marks
SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"P3", b"P5", b"P6")
PNG = SIGNATURES[1]
READERS = 16  # threads that wait for files at once
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
    for found, verb in ((absent, "not there"), (strange, "no images")):
        if found:
            raise SaodError(
                f"{len(found):,} of {len(names):,} image files of {what} are {verb} below {folder.uri} "
                f"({some(found)}): {remedy}."
            )


def _looks_like_an_image(folder: Folder, name: str) -> bool | None:
    """By its first bytes; None when there is no such file."""
    try:
        head = folder.head(name, 16)
    except FileNotFoundError:
        return None
    return head.startswith(SIGNATURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def decode(data: bytes, name: str) -> np.ndarray:
    """RGB, uint8, of any picture OpenCV or Pillow reads: gray, with alpha, CMYK, 16 bits; turned as EXIF says."""
    try:
        whole = bool(data) and not _claims_too_much(data)
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB) if whole else None
    except cv2.error:
        pixels = None
    return np.asarray(pixels) if pixels is not None else _decode_slowly(data, name)


def _claims_too_much(data: bytes) -> bool:
    """Whether a chunk of a PNG says that it is longer than the file: OpenCV would make room for all that it says."""
    place = len(PNG)
    while data.startswith(PNG) and place < len(data):
        kind = data[place + 4 : place + 8]
        place += 12 + int.from_bytes(data[place : place + 4], "big")  # length, kind, content, checksum
        if kind == b"IEND":
            break  # what comes after the picture is none of its chunks
    return place > len(data)


def _decode_slowly(data: bytes, name: str) -> np.ndarray:
    """What OpenCV does not read, Pillow may."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as picture:
            return np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    except UnidentifiedImageError:
        raise SaodError(f"{name} is not an image that can be read (of no known format): fetch it again.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise SaodError(f"{name} is not an image that can be read ({error}): fetch it again.") from None
