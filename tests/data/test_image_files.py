from __future__ import annotations

import io
import resource
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from saod_ray.data.images import check, decode
from saod_ray.errors import SaodError
from saod_ray.files import Folder

RED, GREEN = (250, 10, 20), (15, 240, 30)


def picture(mode: str = "RGB", size: tuple[int, int] = (24, 16)) -> Image.Image:
    """Red on the left, green on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(GREEN, (size[0] // 2, 0, *size))
    return image.quantize(4) if mode == "P" else image.convert(mode)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    sink = io.BytesIO()
    image.save(sink, kind, **options)
    return sink.getvalue()


def exif(orientation: int) -> Image.Exif:
    found = Image.Exif()
    found[0x0112] = orientation
    return found


KINDS = [
    "RGB PNG",
    "RGBA PNG",
    "P PNG",
    "RGB BMP",
    "RGB PPM",
    "RGB TIFF",
    "CMYK TIFF",
    "RGB WEBP",
    "RGB JPEG",
    "CMYK JPEG",
]


@pytest.mark.parametrize("what", KINDS)
def test_any_kind_of_picture_becomes_rgb(what) -> None:
    mode, kind = what.split()
    options = {"quality": 95} if kind in ("JPEG", "WEBP") else {}
    found = decode(encoded(picture(mode), kind, **options), "x")
    assert found.shape == (16, 24, 3)
    assert found.dtype == np.uint8
    assert np.abs(found[8, 4].astype(int) - RED).max() <= 12
    assert np.abs(found[8, 20].astype(int) - GREEN).max() <= 12


def test_gray_and_sixteen_bits() -> None:
    gray = decode(encoded(picture("L"), "PNG"), "x")
    assert gray.shape == (16, 24, 3)
    assert (gray[..., 0] == gray[..., 2]).all()
    deep = np.full((5, 7, 3), (0x1234, 0x80FF, 0xFF00), np.uint16)  # cv2 writes BGR
    found = decode(cv2.imencode(".png", deep)[1].tobytes(), "x")
    assert found[0, 0].tolist() == [0xFF, 0x80, 0x12]
    assert decode(cv2.imencode(".png", deep[..., 0])[1].tobytes(), "x")[0, 0].tolist() == [0x12] * 3


def test_pictures_are_turned_as_exif_says() -> None:
    data = encoded(picture(), "JPEG", quality=95, exif=exif(6))
    found = decode(data, "x")
    assert found.shape == (24, 16, 3)
    assert np.abs(found[4, 8].astype(int) - RED).max() <= 12


def test_one_pixel() -> None:
    assert decode(encoded(picture(size=(1, 1)), "PNG"), "x").shape == (1, 1, 3)


@pytest.mark.parametrize("data", [b"", b"<html>404</html>", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM"])
def test_what_is_no_image_is_named(data) -> None:
    with pytest.raises(SaodError, match=r"data/x.jpg is not an image that can be read .*: fetch it again"):
        decode(data, "data/x.jpg")


def chunk(kind: bytes, content: bytes, length: int | None = None) -> bytes:
    """A chunk of a PNG, which may say another length than it has."""
    said = len(content) if length is None else length
    return struct.pack(">I", said) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def test_a_png_that_claims_gigabytes_costs_none() -> None:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SaodError, match=r"x is not an image that can be read .*: fetch it again"):
        decode(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", b"x" * 20, 0xFFFFFF00), "x")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10**6  # kilobytes


def test_a_png_that_was_cut_is_refused_unless_all_pixels_are_there() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 3), np.uint8)
    whole = encoded(Image.fromarray(pixels), "PNG")
    compressed = len(whole) - 12 - 4 - 4  # without the last chunk, the checksum before it, and zlib's own
    for size in range(9, len(whole)):
        if size >= compressed:
            np.testing.assert_array_equal(decode(whole[:size], "x"), pixels)
        else:
            with pytest.raises(SaodError, match="fetch it again"):
                decode(whole[:size], "x")
    np.testing.assert_array_equal(decode(whole + b"\xff" * 40, "x"), pixels)  # what comes after it is not looked at


def test_check_knows_images_by_their_first_bytes(tmp_path) -> None:
    for kind in ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM"):
        (tmp_path / kind).write_bytes(encoded(picture(), kind))
    names = sorted(path.name for path in tmp_path.iterdir())
    seen: list[tuple[int, int]] = []
    check(Folder(str(tmp_path)), names, "val", lambda done, total: seen.append((done, total)))
    assert seen[-1] == (6, 6)
    (tmp_path / "page").write_text("<html>")
    with pytest.raises(SaodError, match=r"1 of 7 image files of val are not images below .* \(page\)"):
        check(Folder(str(tmp_path)), [*names, "page"], "val")
    with pytest.raises(SaodError, match=r"7 of 13 image files of val are missing .* \(0, 1, 2, 3, 4 and 2 more\)"):
        check(Folder(str(tmp_path)), [*names, *map(str, range(7))], "val")


def test_a_name_that_no_file_can_have_is_named(tmp_path) -> None:
    with pytest.raises(SaodError, match="embedded null byte"):
        check(Folder(str(tmp_path)), ["a\0b.jpg"], "val")
