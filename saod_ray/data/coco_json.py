"""Files in COCO's JSON format, which several data sets use: parsing and checks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import polars as pl

from saod_ray.config import Part
from saod_ray.data.manifest import MAX_COORDINATE, Classes, image_table
from saod_ray.data.source_files import ElementDecoder, SourceFiles
from saod_ray.errors import SaodError, join_truncated

DESCRIPTION = "COCO JSON"
Id = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Side = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Image(msgspec.Struct, gc=False):
    """An entry of `images`."""

    id: Id
    file_name: str = ""
    width: Side | None = None
    height: Side | None = None


class Annotation(msgspec.Struct, gc=False):
    """An entry of `annotations`: `bbox` is x, y, width, height in pixels. Segmentations are skipped while parsing."""

    id: Id
    image_id: Id
    category_id: Id
    bbox: tuple[float, float, float, float]
    area: float | None = None
    iscrowd: int | bool = 0


class ImageCategory(msgspec.Struct, gc=False):
    """An entry of `annotations`, where its box does not matter."""

    image_id: Id
    category_id: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Category(msgspec.Struct, gc=False):
    """An entry of `categories`."""

    id: Id
    name: str
    supercategory: str | None = None


@dataclass
class CocoFile:
    """The parts of an annotation file that the benchmark uses, in file order."""

    images: list[Image] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    categories: list[Category] = field(default_factory=list)


def read_coco(
    files: SourceFiles, name: str, description: str = DESCRIPTION, required: Sequence[str] = ("images",)
) -> CocoFile:
    """Parse an annotation file as a stream. SaodError if it is malformed or a `required` list is missing."""
    coco = CocoFile()
    kinds = {"images": Image, "annotations": Annotation, "categories": Category}
    for key, entries in iter_lists(files, name, description, kinds, required):
        getattr(coco, key).extend(entries)
    return coco


def iter_lists(
    files: SourceFiles, name: str, description: str, kinds: Mapping[str, type], required: Sequence[str]
) -> Iterator[tuple[str, list[Any]]]:
    """The entries of a file's lists, block by block, as (key, entries); `kinds` are their types by key."""
    with files.json(name, description) as file:
        decoders = {key: ElementDecoder(kind, file, description, f"$.{key}") for key, kind in kinds.items()}
        keys = set()
        for key, block in file.lists(kinds):
            keys.add(key)
            yield key, decoders[key].decode(block)
        for key in required:
            if key not in keys:
                raise SaodError(
                    f"{file.name} is not {description} (it has no list `{key}`): check the file, or fetch it again."
                )


def select_classes(coco: CocoFile, names: tuple[str, ...] | None, location: str) -> Classes:
    """The file's categories by rising id, or those that the use case names, in its order."""
    categories = sorted(coco.categories, key=lambda category: category.id)
    if names is not None:
        _check_unique_names(list(names), "the use case's classes")
        available = {category.name for category in categories}
        missing = [name for name in names if name not in available]
        if missing:
            raise SaodError(f"{location} has no category {join_truncated(missing)}: fix the use case's classes.")
        categories = [category for name in names for category in categories if category.name == name]
    if not categories:
        raise SaodError(f"{location} has no categories: add the list `categories`.")
    _check_unique_names([category.name for category in categories], location)
    return Classes(tuple(c.name for c in categories), tuple(c.id for c in categories))


def coco_image_table(images: list[Image], part: Part) -> pl.DataFrame:
    """The manifest's table of a file's images."""
    return image_table(
        [image.id for image in images],
        part.images,
        [image.file_name for image in images],
        [image.width for image in images],
        [image.height for image in images],
    )


def check_coco(coco: CocoFile, location: str, min_size: float = 0.0) -> None:
    """Refuse duplicate ids, annotations of unlisted images, and boxes that are too large or below `min_size`.

    A published file can have boxes of negative size, which match nothing: `min_size` lets them pass.
    """
    check_unique("image id", [image.id for image in coco.images], location)
    check_unique("category id", [category.id for category in coco.categories], location)
    check_listed({a.image_id for a in coco.annotations}, {image.id for image in coco.images}, "images", location)
    for annotation in coco.annotations:
        side = math.sqrt(abs(annotation.area or 0.0))
        inside = all(abs(number) <= MAX_COORDINATE for number in (*annotation.bbox, side))
        if not inside or min(annotation.bbox[2:]) < min_size:
            area = "" if annotation.area is None else f" and the area {annotation.area:g}"
            raise SaodError(
                f"{location}: annotation {annotation.id} has the box {list(annotation.bbox)}{area}: fix or remove it."
            )


def check_unique(what: str, ids: Sequence[int] | pl.Series, location: str) -> None:
    """Refuse ids that occur more than once."""
    series = pl.Series(ids, dtype=pl.Int64)
    duplicates = series.filter(series.is_duplicated()).unique().sort()
    if len(duplicates):
        raise SaodError(
            f"{location}: the {what} {join_truncated(duplicates)} occurs more than once: give every entry an id of its own."
        )


def check_listed(referenced: set[int], listed: set[int], what: str, location: str) -> None:
    """Refuse annotations of images or categories that the file does not list."""
    unknown = referenced - listed
    if unknown:
        raise SaodError(
            f"{location}: annotations name unknown {what} {join_truncated(sorted(unknown))}: remove or add them."
        )


def _check_unique_names(names: list[str], location: str) -> None:
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise SaodError(
            f"{location}: two categories are named {join_truncated(duplicates)}: give each a name of its own."
        )
