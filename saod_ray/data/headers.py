"""The supported image formats, and image sizes from file headers.

Only raster formats that are decoded without another program are supported. `exact_size` reads headers that all decoders
read alike; any other header is left to the decoder that also reads the pixels. To support another format, add its
signature to `SIGNATURES` and, if its header is simple, a function to `exact_size`.
"""

from __future__ import annotations

import re
import struct

SIGNATURES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
}
FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "PPM", "WEBP", "GIF")  # by Pillow's names
_PNM = re.compile(rb"P[1-6][ \t\r\n#]")
# single separators and no comments: all decoders read these headers alike
_PLAIN_PNM = re.compile(rb"P(?:[14]|[2356](?=\s\d+\s\d+\s\d{1,5}\s))[ \t\r\n](\d{1,7})[ \t\r\n](\d{1,7})[ \t\r\n]")
_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}  # JPEG markers without content
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # JPEG markers of frame headers, which contain the size


def image_format(data: bytes) -> str | None:
    """The format of a file from its first bytes (16 are enough); None if it is not supported.

    >>> image_format(b"P6 1 1 255 abc"), image_format(b"%!PS-Adobe-3.0 EPSF-3.0")
    ('PPM', None)
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if _PNM.match(data):
        return "PPM"
    return next((format for signature, format in SIGNATURES.items() if data.startswith(signature)), None)


def exact_size(data: bytes, format: str) -> tuple[int, int] | None:
    """Width and height in pixels, or None if decoders could read the header in different ways."""
    readers = {"JPEG": _jpeg, "PNG": _png, "BMP": _bmp, "TIFF": _tiff, "PPM": _pnm, "WEBP": _webp}
    try:
        return readers[format](data) if format in readers else None
    except (struct.error, IndexError):  # the file ends too early
        return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """The size of the only frame before the first scan."""
    sizes, position = [], 2
    while (position := data.find(b"\xff", position)) >= 0:
        marker = data[position + 1]
        if marker in (0x00, 0xFF) or marker in _NO_LENGTH:
            position += 1 if marker == 0xFF else 2
            continue
        if marker in (0xD9, 0xDA):
            break
        (length,) = struct.unpack_from(">H", data, position + 2)
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            sizes.append((width, height))
        position += 2 + max(length, 2)
    return sizes[0] if len(sizes) == 1 else None


def _png(data: bytes) -> tuple[int, int] | None:
    width, height = struct.unpack_from(">II", data, 16)
    return (width, height) if data[12:16] == b"IHDR" else None


def _bmp(data: bytes) -> tuple[int, int] | None:
    (header,) = struct.unpack_from("<I", data, 14)
    if header == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    width, height = struct.unpack_from("<ii", data, 18)
    return (width, abs(height)) if header >= 40 and width >= 0 else None


def _tiff(data: bytes) -> tuple[int, int] | None:
    """The size of the first image, if its tags occur once; BigTIFF is left to Pillow."""
    order = "<" if data[:2] == b"II" else ">"
    if data[2:4] not in (b"*\0", b"\0*"):
        return None
    (position,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, position)
    sizes: dict[int, list[int]] = {256: [], 257: [], 322: [], 323: []}  # width and height of the image, and of a tile
    for number in range(count):
        at = position + 2 + 12 * number
        tag, data_type, count_of_values = struct.unpack_from(f"{order}HHI", data, at)
        if tag in sizes:
            if data_type not in (3, 4) or count_of_values != 1:
                return None
            sizes[tag] += struct.unpack_from(f"{order}{'H' if data_type == 3 else 'I'}", data, at + 8)
    if [len(sizes[256]), len(sizes[257])] != [1, 1] or max(len(sizes[322]), len(sizes[323])) > 1:
        return None
    return max(sizes[256] + sizes[322]), max(sizes[257] + sizes[323])


def _pnm(data: bytes) -> tuple[int, int] | None:
    match = _PLAIN_PNM.match(data[:64])
    return (int(match[1]), int(match[2])) if match else None


def _webp(data: bytes) -> tuple[int, int] | None:
    chunk = data[12:16]
    if chunk == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if chunk == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if chunk == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None
