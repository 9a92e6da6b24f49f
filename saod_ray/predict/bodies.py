"""From the body of a request to pixels, or to a refusal with the status that HTTP has for it."""

from __future__ import annotations

import re

import numpy as np

from saod_ray.data.headers import FORMATS
from saod_ray.data.images import TooManyPixelsError, UnknownFormatError, decode
from saod_ray.errors import SaodError

MAX_PARTS = 100  # of a form
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
    parts = (b"\r\n" + body).split(line, MAX_PARTS + 1)[1:]
    if len(parts) > MAX_PARTS:
        raise RefusedError(400, f"The form has more than {MAX_PARTS} parts: send one image a request.")
    split = [part.partition(b"\r\n\r\n") for part in parts if not part.startswith(b"--")]
    files = [content for head, _, content in split if _FILE.search(head)]
    if len(files) != 1:
        raise RefusedError(400, f"The form has {len(files)} files: send one image a request.")
    return files[0]


def pixels_of(data: bytes, max_pixels: int) -> np.ndarray:
    """An image's pixels; one that is too large is refused before any are made."""
    try:
        return decode(data, "The image", max_pixels)
    except TooManyPixelsError as error:
        raise RefusedError(413, f"{str(error).partition(':')[0]}: send a smaller one.") from None
    except UnknownFormatError:
        raise RefusedError(415, f"This is not an image of a known format: send {', '.join(FORMATS)}.") from None
    except SaodError as error:
        raise RefusedError(400, str(error)) from None
    except Exception as error:  # what decoding raises is about this image
        raise RefusedError(400, f"The image cannot be decoded ({type(error).__name__}): send another.") from None
