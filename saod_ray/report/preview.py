"""Contact sheets of a split's images, with their boxes and the corruption drawn for each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import polars as pl
from PIL import Image, ImageDraw, ImageFont

from saod_ray.config import UseCase
from saod_ray.corrupt import CORRUPTIONS, blank, corrupt, draw
from saod_ray.data.images import OTHERS_IMAGES, ImageLimits, load
from saod_ray.data.manifest import Manifest
from saod_ray.data.source_files import Progress
from saod_ray.errors import SaodError, join_truncated
from saod_ray.files import Folder
from saod_ray.splits import SplitName
from saod_ray.store.manifests import ManifestCache

CELL = (260, 195)  # width and height of an image in a sheet, in pixels
CAPTION, GAP, COLUMNS = 18, 8, 6
PAPER, INK = (250, 250, 248), (40, 40, 40)
# Okabe and Ito's colours, which people with colour-blindness can distinguish
COLOURS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167))


@dataclass(frozen=True)
class CaptionedImage:
    """An image of a contact sheet, its caption, and its boxes; `texts` label the boxes instead of class names."""

    image: np.ndarray  # (height, width, 3) uint8, RGB
    caption: str
    boxes: Sequence[tuple[int, float, float, float, float]] = ()  # label, x, y, width, height in pixels
    texts: Sequence[str] = ()


class Preview:
    """Contact sheets of a use case whose manifests are built.

    Raises:
        SaodError: The manifests are missing or out of date.
    """

    def __init__(self, case: UseCase, limits: ImageLimits = OTHERS_IMAGES) -> None:
        self._build_command = case.command("build")
        built = ManifestCache(case)
        if not built.is_fresh():
            raise SaodError(
                f"'{case.name}' is not built from the files in {case.root}: run `{self._build_command}` first."
            )
        self._built = built
        self._folder, self._limits = Folder(case.root), limits
        self._severities = case.splits.id.severities
        self._classes = built.description().classes

    def sheet(self, split: str, count: int, seed: int, progress: Progress) -> Image.Image:
        """`count` images of a split (or `ood/SUBSET`, or train), evenly spread over it."""
        manifest = self._manifest(split)
        positions = np.linspace(0, manifest.images.height - 1, count).round().astype(int).tolist()
        sample = manifest.images.gather(positions)
        cells = []
        for number, row in enumerate(sample.unique("image_id", maintain_order=True).iter_rows(named=True), 1):
            cells.append(self._cell(split, row, manifest, seed))
            progress(number, sample.height)
        return _compose(cells, COLUMNS, self._classes)

    def all_corruptions(self, image_id: int | None, seed: int, progress: Progress) -> Image.Image:
        """One ID image under each of the 15 corruptions, at the use case's severities."""
        images = self._manifest("id").images
        matching = images.head(1) if image_id is None else images.filter(image_id=image_id)
        if not matching.height:
            raise SaodError(
                f"id has no image {image_id}: its ids are {join_truncated(images['image_id'].head(6).to_list())}."
            )
        row = matching.row(0, named=True)
        pixels = self._pixels(row)
        severities = sorted(self._severities) or [1, 3, 5]
        cells = []
        for name in CORRUPTIONS:
            for severity in severities:
                image = corrupt(pixels, name, severity, seed, row["image_id"])
                cells.append(CaptionedImage(image, f"{name} {severity}"))
                progress(len(cells), len(CORRUPTIONS) * len(severities))
        return _compose(cells, 3 * len(severities), self._classes)

    def _manifest(self, split: str) -> Manifest:
        name, _, subset = split.partition("/")
        source = SplitName(name).source
        if source not in self._built.description().manifests:
            raise SaodError(f"'{split}' is not built: add its files and run `{self._build_command}` again.")
        manifest = self._built.manifest(source)
        return Manifest(manifest.images.filter(subset=subset), manifest.objects) if subset else manifest

    def _cell(self, split: str, row: dict[str, object], manifest: Manifest, seed: int) -> CaptionedImage:
        pixels = self._pixels(row)
        objects = manifest.objects.filter(pl.col("image_id") == row["image_id"])
        boxes = objects.select("label", "x", "y", "w", "h").rows()
        image_id = int(str(row["image_id"]))
        if SplitName(split).is_pseudo_ood:
            return CaptionedImage(blank(pixels, objects.select("x", "y", "w", "h").to_numpy()), f"{image_id} blanked")
        if severity := SplitName(split).severity:
            name = draw(seed, image_id, severity)
            return CaptionedImage(
                corrupt(pixels, name, severity, seed, image_id), f"{image_id} {name} {severity}", boxes
            )
        return CaptionedImage(pixels, f"{image_id} {row['subset']}".strip(), boxes)

    def _pixels(self, row: dict[str, object]) -> np.ndarray:
        name = str(row["file_name"])
        try:
            return load(self._folder, name, self._limits, self._folder.display_path(name))
        except FileNotFoundError:
            raise SaodError(f"There is no image {self._folder.display_path(name)}: download it again.") from None


def _compose(cells: list[CaptionedImage], columns: int, classes: Sequence[str]) -> Image.Image:
    """The images in rows of so many columns, captions below them."""
    pictures = [draw_boxes(cell, classes) for cell in cells]
    rows = [range(start, min(start + columns, len(cells))) for start in range(0, len(cells), columns)]
    heights = [max(pictures[k].height for k in row) for row in rows]
    width = CELL[0] + GAP
    sheet = Image.new("RGB", (len(rows[0]) * width + GAP, sum(heights) + len(rows) * (CAPTION + GAP) + GAP), PAPER)
    pen, top = ImageDraw.Draw(sheet), GAP
    for row, height in zip(rows, heights, strict=True):
        for column, k in enumerate(row):
            middle = GAP + column * width + CELL[0] // 2
            sheet.paste(pictures[k], (middle - pictures[k].width // 2, top + height - pictures[k].height))
            pen.text((middle, top + height + 2), cells[k].caption, INK, _font(13), anchor="ma")
        top += height + CAPTION + GAP
    return sheet


def draw_boxes(cell: CaptionedImage, classes: Sequence[str]) -> Image.Image:
    """An image scaled to its cell of the sheet, with boxes and labels drawn after scaling."""
    height, width = cell.image.shape[:2]
    scale = min(CELL[0] / width, CELL[1] / height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
    picture = Image.fromarray(cv2.resize(cell.image, size, interpolation=method))
    pen = ImageDraw.Draw(picture)
    for k, (label, x, y, w, h) in enumerate(cell.boxes):
        colour = COLOURS[label % len(COLOURS)]
        pen.rectangle([x * scale, y * scale, (x + w) * scale, (y + h) * scale], outline=colour, width=2)
        corner = (x * scale + 2, max(y * scale - 12, 0))
        text = cell.texts[k] if cell.texts else classes[label]
        pen.rectangle(pen.textbbox(corner, text, _font(11)), fill=(0, 0, 0))
        pen.text(corner, text, colour, _font(11))
    return picture


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)
