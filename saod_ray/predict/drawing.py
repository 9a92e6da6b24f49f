"""Pictures of verdicts: boxes, classes and calibrated scores, with the verdict below."""

from __future__ import annotations

import hashlib
import io
import os
import re
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from saod_ray.report.preview import COLOURS, PAPER
from saod_ray.score.verdicts import Verdict

SIDE = (
    480,
    1600,
)  # pixels: smaller pictures are enlarged, so that there is room for words, and larger ones made smaller
STRIP = 24
INKS = {True: (0, 110, 60), False: (170, 40, 20)}
QUALITY = 90
_LONGEST = 80  # characters of a file's own name


def drawn(pixels: np.ndarray, verdict: Verdict) -> bytes:
    """A JPEG of an image and what is said of it."""
    picture = _boxed(pixels, verdict)
    sheet = Image.new("RGB", (max(picture.width, SIDE[0]), picture.height + STRIP), PAPER)
    sheet.paste(picture, (0, 0))
    words = ImageFont.load_default(13)
    ImageDraw.Draw(sheet).text((6, picture.height + 4), verdict.summary(), INKS[verdict.accepted], words)
    sink = io.BytesIO()
    sheet.save(sink, "JPEG", quality=QUALITY)
    return sink.getvalue()


def _boxed(pixels: np.ndarray, verdict: Verdict) -> Image.Image:
    height, width = pixels.shape[:2]
    scale = min(max(height, width, SIDE[0]), SIDE[1]) / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    picture = Image.fromarray(pixels).convert("RGB").resize(size)
    pen, words, found = ImageDraw.Draw(picture), ImageFont.load_default(12), verdict.detections
    for name, label, score, box in zip(verdict.names(), found.label, found.score, found.box * scale, strict=True):
        colour = COLOURS[label % len(COLOURS)]
        x, y, x2, y2 = box.tolist()
        pen.rectangle([x, y, max(x, x2), max(y, y2)], outline=colour, width=2)
        place = (x + 2, max(y - 14, 0))
        text = f"{name} {score:.2f}"
        pen.rectangle(pen.textbbox(place, text, words), fill=(0, 0, 0))
        pen.text(place, text, colour, words)
    return picture


def picture_name(file: str) -> str:
    """A name for a file's picture: a plain one that no other file has.

    >>> picture_name("/data/../a b.png") == picture_name("/a b.png") != picture_name("/a_b.png")
    True
    """
    place = os.path.normpath(Path(file).absolute())
    digest = hashlib.blake2b(place.encode(errors="surrogateescape"), digest_size=6).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', Path(place).stem)[:_LONGEST]}-{digest}.jpg"
