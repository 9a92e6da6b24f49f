"""Bytes that are called an image: which formats are read, how many pixels they may have, and who measures them."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from saod_ray.data import headers
from saod_ray.data.images import MAX_PIXELS, TooManyPixelsError, UnknownFormatError, decode
from saod_ray.errors import SaodError
from saod_ray.predict.bodies import MAX_PARTS, RefusedError, decode_pixels, extract_image

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
KINDS = ("JPEG", "PNG", "BMP", "TIFF", "PPM", "WEBP", "GIF")


def encoded(kind: str, size: tuple[int, int] = (37, 23), **options: object) -> bytes:
    sink = io.BytesIO()
    Image.new("RGB", size, (200, 30, 90)).save(sink, kind, **options)
    return sink.getvalue()


def huge_png(width: int, height: int) -> bytes:
    """A PNG of a few kilobytes with any number of black pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    squeezed = zlib.compressobj(9)
    row = bytes(1 + width // 8)
    content = b"".join(squeezed.compress(row) for _ in range(height)) + squeezed.flush()
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", KINDS)
def test_the_known_formats_are_read_and_measured(kind: str) -> None:
    data = encoded(kind)
    assert headers.image_format(data[:16]) == kind
    assert headers.exact_size(data, kind) == (None if kind == "GIF" else (37, 23))
    assert decode(data, "x").shape == (23, 37, 3)
    assert decode(data, "x", 37 * 23).shape == (23, 37, 3)
    with pytest.raises(TooManyPixelsError, match="x has 37 × 23 pixels, more than 850"):
        decode(data, "x", 37 * 23 - 1)


@pytest.mark.parametrize(
    "options", [{"format": "WEBP", "lossless": True}, {"format": "WEBP", "exif": b"Exif\0\0II*\0\x08\0\0\0\0\0"}]
)
def test_each_form_of_webp_is_measured(options: dict[str, object]) -> None:
    data = encoded(str(options.pop("format")), **options)
    assert headers.exact_size(data, "WEBP") == (37, 23)


def test_eps_starts_no_other_program(tmp_path: Path) -> None:
    """A stand-in for Ghostscript on the PATH leaves a trace if anything starts it."""
    for name in ("gs", "gswin32c"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (tmp_path / name).chmod(0o755)
    code = (
        "import sys; from saod_ray.data.images import decode\n"
        "from saod_ray.errors import SaodError\n"
        "try:\n    decode(sys.stdin.buffer.read(), 'x.jpg')\n"
        "except SaodError as error:\n    print(error)\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        [sys.executable, "-c", code], input=EPS, capture_output=True, env={**os.environ, "PATH": path}, check=True
    )
    assert b"x.jpg is not an image that can be read (of no known format)" in run.stdout
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "data",
    [EPS, b"%PDF-1.4\n", b"\0\0\1\0\1\0", b"\0\0\0\x0cjP  \r\n\x87\n", b"P7\nWIDTH 1\n", b"PF\n1 1\n-1.0\n" + bytes(12),
     b"#?RADIANCE\n", b"\x59\xa6\x6a\x95" + bytes(40), b"SIMPLE  =", b"<svg/>", b"\xff\xd8", b"RIFF1234WAVE", b""],
)  # fmt: skip
def test_other_formats_are_not_tried(data: bytes) -> None:
    with pytest.raises(UnknownFormatError, match="of no known format"):
        decode(data, "x.jpg")


def test_a_small_file_with_many_pixels_costs_little() -> None:
    data = huge_png(30_000, 30_000)
    assert len(data) < 200_000
    code = (
        "import resource, sys; from saod_ray.data.images import decode\n"
        "from saod_ray.errors import SaodError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    decode(sys.stdin.buffer.read(), 'x.png')\n"
        "except SaodError as error:\n    print(error, file=sys.stderr)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert b"x.png has 30,000 \xc3\x97 30,000 pixels, more than 178,956,970" in run.stderr
    assert int(run.stdout) < 200_000  # kilobytes
    assert MAX_PIXELS == 178_956_970


@pytest.mark.parametrize(
    "header",
    [b"P4\n# 8 8\n30000 30000\n", b"P4 #\n 30000 30000\n", b"P4\n8#\n8 30000 30000\n", b"P5\n30000\n30000\n255\n",
     b"P6\r\n30000 30000\r\n255\n", b"P1\n30000 30000\n", b"P4\n00000000000000000008 30000000\n", b"P4\n+8 30000000 8\n",
     b"P5 30000 30000 65535 "],
)  # fmt: skip
def test_the_one_who_decodes_is_the_one_who_measures(header: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV never sees a header that could mean another size to it."""
    shapes: list[int] = []
    imdecode = cv2.imdecode

    def recorded(data: np.ndarray, flags: int) -> np.ndarray | None:
        pixels = imdecode(data, flags)
        shapes.append(0 if pixels is None else pixels.size // 3)
        return pixels

    monkeypatch.setattr(cv2, "imdecode", recorded)
    with pytest.raises(SaodError):
        decode(header + bytes(4000), "x", 10_000)
    assert all(count <= 10_000 for count in shapes)


def test_plain_headers_of_pnm_go_to_opencv() -> None:
    assert headers.exact_size(b"P6\n640 480\n255\n" + bytes(9), "PPM") == (640, 480)
    assert headers.exact_size(b"P4 8 8\n" + bytes(9), "PPM") == (8, 8)
    assert headers.exact_size(b"P6\n# by hand\n640 480\n255\n", "PPM") is None


def test_frames_and_tags_that_contradict_each_other_go_to_no_opencv() -> None:
    jpeg = encoded("JPEG")
    at = jpeg.index(b"\xff\xc0")
    frame = jpeg[at : at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")]
    assert headers.exact_size(jpeg[:at] + frame + jpeg[at:], "JPEG") is None
    tiff = encoded("TIFF")
    assert headers.exact_size(tiff, "TIFF") == (37, 23)
    twice = tiff.replace(struct.pack("<HH", 257, 4), struct.pack("<HH", 256, 4))
    assert twice != tiff and headers.exact_size(twice, "TIFF") is None


def test_requests_have_the_same_limits() -> None:
    for data, status in ((EPS, 415), (huge_png(4000, 4000), 413), (encoded("PNG")[:60], 400)):
        with pytest.raises(RefusedError) as refusal:
            decode_pixels(data, 1_000_000)
        assert refusal.value.status == status and str(refusal.value).endswith(".")
    assert decode_pixels(encoded("PNG"), 1_000_000).shape == (23, 37, 3)


def test_a_form_of_many_parts_is_refused() -> None:
    part = b'\r\n--XX\r\nContent-Disposition: form-data; name="f"\r\n\r\n1'
    file = b'\r\n--XX\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\nimage'
    kind = "multipart/form-data; boundary=XX"
    assert extract_image(kind, part * (MAX_PARTS - 2) + file + b"\r\n--XX--") == b"image"
    with pytest.raises(RefusedError, match="more than 100 parts"):
        extract_image(kind, part * 10**6)
