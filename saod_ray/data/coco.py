"""COCO annotation files: any use case's own, and COCO itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import polars as pl

from saod_ray.config import OodSource, Part
from saod_ray.data.manifest import FARTHEST, Classes, Manifest, image_table, object_table
from saod_ray.data.raw import Elements, Raw
from saod_ray.errors import SaodError, join_truncated

WHAT = "COCO JSON"
Id = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Side = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Image(msgspec.Struct, gc=False):
    """An entry of `images`."""

    id: Id
    file_name: str = ""
    width: Side | None = None
    height: Side | None = None


class Annotation(msgspec.Struct, gc=False):
    """An entry of `annotations`; segmentations are skipped while parsing."""

    id: Id
    image_id: Id
    category_id: Id
    bbox: tuple[float, float, float, float]
    area: float | None = None
    iscrowd: int | bool = 0


class Tag(msgspec.Struct, gc=False):
    """What an annotation says where its box does not matter."""

    image_id: Id
    category_id: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Category(msgspec.Struct, gc=False):
    """An entry of `categories`."""

    id: Id
    name: str
    supercategory: str | None = None


@dataclass
class CocoFile:
    """What the benchmark reads of an annotation file."""

    images: list[Image] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    categories: list[Category] = field(default_factory=list)


def inputs(part: Part) -> list[str]:
    """The files that decide the manifest."""
    return [part.annotations]


def annotated(raw: Raw, part: Part, classes: Classes | None, names: tuple[str, ...] | None) -> tuple[Classes, Manifest]:
    """The images and objects of a file. Without `classes` (val's) they are its own categories, or those of `names`."""
    coco, file = read(raw, part.annotations), raw.folder.display_path(part.annotations)
    refuse_bad(coco, file)
    known = classes or classes_of(coco, names, file)
    return known, _manifest(coco, part, known, names is not None, file)


def unlabelled(raw: Raw, part: Part, source: OodSource) -> Manifest:
    """The image list of a file."""
    coco = read(raw, part.annotations)
    refuse_bad(coco, raw.folder.display_path(part.annotations))
    return Manifest(images_of(coco.images, part), object_table([], [], []))


def read(raw: Raw, name: str, what: str = WHAT, required: Sequence[str] = ("images",)) -> CocoFile:
    """Parse an annotation file as a stream."""
    coco = CocoFile()
    kinds = {"images": Image, "annotations": Annotation, "categories": Category}
    for key, found in lists(raw, name, what, kinds, required):
        getattr(coco, key).extend(found)
    return coco


def lists(
    raw: Raw, name: str, what: str, kinds: Mapping[str, type], required: Sequence[str]
) -> Iterator[tuple[str, list[Any]]]:
    """The entries of a file's lists, block by block; refused where a list that is required is not there."""
    with raw.json(name, what) as file:
        elements = {key: Elements(kind, file, what, f"$.{key}") for key, kind in kinds.items()}
        seen = set()
        for key, block in file.lists(kinds):
            seen.add(key)
            yield key, elements[key].decode(block)
        for key in required:
            if key not in seen:
                raise SaodError(
                    f"{file.name} is not {what} (it has no list `{key}`): check the file, or fetch it again."
                )


def refuse_twice(what: str, ids: Sequence[int] | pl.Series, name: str) -> None:
    """Refuse ids that occur more than once."""
    series = pl.Series(ids, dtype=pl.Int64)
    twice = series.filter(series.is_duplicated()).unique().sort()
    if len(twice):
        raise SaodError(
            f"{name}: the {what} {join_truncated(twice)} occurs more than once: give every entry an id of its own."
        )


def classes_of(coco: CocoFile, names: tuple[str, ...] | None, file: str) -> Classes:
    """The file's categories by rising id, or those that the use case names, in its order."""
    categories = sorted(coco.categories, key=lambda category: category.id)
    if names is not None:
        known = {category.name for category in categories}
        _refuse_twice_name(list(names), "the use case's classes")
        missing = [name for name in names if name not in known]
        if missing:
            raise SaodError(f"{file} has no category {join_truncated(missing)}: mend the use case's classes.")
        categories = [category for name in names for category in categories if category.name == name]
    if not categories:
        raise SaodError(f"{file} has no categories: add the list `categories`.")
    _refuse_twice_name([category.name for category in categories], file)
    return Classes(tuple(c.name for c in categories), tuple(c.id for c in categories))


def images_of(images: list[Image], part: Part) -> pl.DataFrame:
    """The table of a file's images."""
    return image_table(
        [image.id for image in images],
        part.images,
        [image.file_name for image in images],
        [image.width for image in images],
        [image.height for image in images],
    )


def refuse_bad(coco: CocoFile, file: str, least_size: float = 0.0) -> None:
    """Refuse what would make figures ambiguous; a published file may have boxes of negative size, which match nothing."""
    refuse_twice("image id", [image.id for image in coco.images], file)
    refuse_twice("category id", [category.id for category in coco.categories], file)
    refuse_strangers({a.image_id for a in coco.annotations}, {image.id for image in coco.images}, "images", file)
    for annotation in coco.annotations:
        inside = all(abs(number) <= FARTHEST for number in (*annotation.bbox, math.sqrt(abs(annotation.area or 0.0))))
        if not inside or min(annotation.bbox[2:]) < least_size:
            area = "" if annotation.area is None else f" and the area {annotation.area:g}"
            raise SaodError(
                f"{file}: annotation {annotation.id} has the box {list(annotation.bbox)}{area}: fix or remove it."
            )


def refuse_strangers(named: set[int], known: set[int], what: str, file: str) -> None:
    """Refuse annotations of images or categories that the file does not list."""
    strangers = named - known
    if strangers:
        raise SaodError(
            f"{file}: annotations name unknown {what} {join_truncated(sorted(strangers))}: remove or add them."
        )


def _refuse_twice_name(names: list[str], file: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SaodError(f"{file}: two categories are named {join_truncated(twice)}: give each a name of its own.")


def _manifest(coco: CocoFile, part: Part, classes: Classes, chosen: bool, file: str) -> Manifest:
    """Objects of other classes are left out where classes were `chosen`, and refused otherwise."""
    label_of = classes.label_of()
    rows = [a for a in coco.annotations if a.category_id in label_of]
    if len(rows) < len(coco.annotations) and not chosen:
        unknown = {a.category_id for a in coco.annotations if a.category_id not in label_of}
        raise SaodError(
            f"{file}: category id {join_truncated(sorted(unknown))} is not one of val's classes: remove or map them, "
            "or name the classes to keep in the use case's `classes`."
        )
    objects = object_table(
        [a.image_id for a in rows],
        [label_of[a.category_id] for a in rows],
        [a.bbox for a in rows],
        [a.bbox[2] * a.bbox[3] if a.area is None else a.area for a in rows],
        [bool(a.iscrowd) for a in rows],
        [a.id for a in rows],
    )
    return Manifest(images_of(coco.images, part), objects)
