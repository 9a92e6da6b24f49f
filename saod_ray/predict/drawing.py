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

MIN_SIDE, MAX_SIDE = 480, 1600  # pixels of the longer side; small images are enlarged to make room for text
STRIP_HEIGHT = 24  # pixels below the image, for the verdict
VERDICT_COLOURS = {True: (0, 110, 60), False: (170, 40, 20)}  # RGB by `accepted`
JPEG_QUALITY = 90
MAX_STEM = 80  # characters of the image file's own name in that of its picture


def draw_verdict(pixels: np.ndarray, verdict: Verdict) -> bytes:
    """A JPEG of an image, (h, w, 3) uint8 RGB, with its detections and the verdict below."""
    picture = _draw_boxes(pixels, verdict)
    sheet = Image.new("RGB", (max(picture.width, MIN_SIDE), picture.height + STRIP_HEIGHT), PAPER)
    sheet.paste(picture, (0, 0))
    font = ImageFont.load_default(13)
    colour = VERDICT_COLOURS[verdict.accepted]
    ImageDraw.Draw(sheet).text((6, picture.height + 4), verdict.summary(), colour, font)
    sink = io.BytesIO()
    sheet.save(sink, "JPEG", quality=JPEG_QUALITY)
    return sink.getvalue()


def _draw_boxes(pixels: np.ndarray, verdict: Verdict) -> Image.Image:
    height, width = pixels.shape[:2]
    scale = min(max(height, width, MIN_SIDE), MAX_SIDE) / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    picture = Image.fromarray(pixels).convert("RGB").resize(size)
    pen, font, detections = ImageDraw.Draw(picture), ImageFont.load_default(12), verdict.detections
    columns = (verdict.names(), detections.label, detections.score, detections.box * scale)
    for name, label, score, box in zip(*columns, strict=True):
        colour = COLOURS[label % len(COLOURS)]
        x, y, x2, y2 = box.tolist()
        pen.rectangle([x, y, max(x, x2), max(y, y2)], outline=colour, width=2)
        place = (x + 2, max(y - 14, 0))
        text = f"{name} {score:.2f}"
        pen.rectangle(pen.textbbox(place, text, font), fill=(0, 0, 0))
        pen.text(place, text, colour, font)
    return picture


def picture_name(file: str) -> str:
    """The file name of a picture: letters, digits, `_` and `-`, and different for every image file.

    >>> picture_name("/data/../a b.png") == picture_name("/a b.png") != picture_name("/a_b.png")
    True
    """
    place = os.path.normpath(Path(file).absolute())
    digest = hashlib.blake2b(place.encode(errors="surrogateescape"), digest_size=6).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', Path(place).stem)[:MAX_STEM]}-{digest}.jpg"
