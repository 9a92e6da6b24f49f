"""From the body of a request to pixels, or to a refusal with the status that HTTP has for it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image

from saod_ray.data.images import decode
from saod_ray.errors import SaodError

FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "PPM", "WEBP", "GIF")  # none that runs another program
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]+)"|([^\s;"]+))', re.IGNORECASE)
_FILE = re.compile(rb";\s*filename\*?=", re.IGNORECASE)


class RefusedError(Exception):
    """A request that gets another answer than a verdict."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers


def image_of(content_type: str, body: bytes) -> bytes:
    """The bytes of the image: all of the body, or the one file of a form."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        body = _file_of(content_type, body)
    elif not kind.startswith("image/") and kind != "application/octet-stream":
        raise RefusedError(
            415,
            f"The content type '{kind}' is none of an image: send the file itself with image/jpeg, image/png or "
            "application/octet-stream, or one file in multipart/form-data.",
        )
    if not body:
        raise RefusedError(400, "There is no image in the request: send one as its body.")
    return body


def _file_of(content_type: str, body: bytes) -> bytes:
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise RefusedError(400, "The form's content type names no boundary: let your HTTP library write it.")
    # RFC 2046: each part begins after a line break and the boundary, and the last boundary ends with two dashes
    line = b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1", "replace")
    parts = (b"\r\n" + body).split(line)[1:]
    split = [part.partition(b"\r\n\r\n") for part in parts if not part.startswith(b"--")]
    files = [content for head, _, content in split if _FILE.search(head)]
    if len(files) != 1:
        raise RefusedError(400, f"The form has {len(files)} files: send one image a request.")
    return files[0]


def pixels_of(data: bytes, max_pixels: int) -> np.ndarray:
    """An image's pixels; its header is asked for the size before any are made."""
    with _no_other_limit():
        width, height = _size(data)
        if width * height > max_pixels:
            raise RefusedError(
                413, f"The image has {width:,} × {height:,} pixels, more than {max_pixels:,}: send a smaller one."
            )
        try:
            return decode(data, "The image")
        except SaodError as error:
            raise RefusedError(400, str(error)) from None
        except Exception as error:  # what decoding raises is about this image
            raise RefusedError(400, f"The image cannot be decoded ({type(error).__name__}): send another.") from None


def _size(data: bytes) -> tuple[int, int]:
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            return picture.size
    except Exception:  # a header may be wrong in any way
        raise RefusedError(415, f"This is not an image of a known format: send {', '.join(FORMATS)}.") from None


@contextmanager
def _no_other_limit() -> Iterator[None]:
    """Without Pillow's own limit of pixels, which may be below ours."""
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before
