"""From the body of an HTTP request to pixels, or to a refusal with the matching HTTP status."""

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
    """A request that is refused: an HTTP status, and the sentence to answer with."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers


def extract_image(content_type: str, body: bytes) -> bytes:
    """The bytes of the image file: the whole body, or the only file of a form. Raises RefusedError."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        body = _extract_file(content_type, body)
    elif not kind.startswith("image/") and kind != "application/octet-stream":
        raise RefusedError(
            415,
            f"The content type '{kind}' is not that of an image: send the file itself with image/jpeg, image/png or "
            "application/octet-stream, or one file in multipart/form-data.",
        )
    if not body:
        raise RefusedError(400, "There is no image in the request: send one as its body.")
    return body


def _extract_file(content_type: str, body: bytes) -> bytes:
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise RefusedError(400, "The form's content type has no boundary: let your HTTP library write it.")
    # RFC 2046: each part begins after a line break and the boundary, and the last boundary ends with two dashes
    line = b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1", "replace")
    parts = (b"\r\n" + body).split(line, MAX_PARTS + 1)[1:]
    if len(parts) > MAX_PARTS:
        raise RefusedError(400, f"The form has more than {MAX_PARTS} parts: send one image per request.")
    split = [part.partition(b"\r\n\r\n") for part in parts if not part.startswith(b"--")]
    files = [content for head, _, content in split if _FILE.search(head)]
    if len(files) != 1:
        raise RefusedError(400, f"The form has {len(files)} files: send one image per request.")
    return files[0]


def decode_pixels(data: bytes, max_pixels: int) -> np.ndarray:
    """An image's pixels, (h, w, 3) uint8 RGB. Raises RefusedError; too large an image is refused before decoding."""
    try:
        return decode(data, "The image", max_pixels)
    except TooManyPixelsError as error:
        raise RefusedError(413, f"{str(error).partition(':')[0]}: send a smaller one.") from error
    except UnknownFormatError as error:
        raise RefusedError(415, f"This is not an image of a known format: send {', '.join(FORMATS)}.") from error
    except SaodError as error:
        raise RefusedError(400, str(error)) from error
    except Exception as error:  # decoders raise anything
        raise RefusedError(400, f"The image cannot be decoded ({type(error).__name__}): send another.") from error
