"""COCO annotation files, and the manifests of a use case made from them."""

from __future__ import annotations

import gzip
import math
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs

from saod_ray.config import OodSource, UseCase
from saod_ray.data.manifest import IMAGES, OBJECTS, Manifest
from saod_ray.errors import SaodError, some

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm")


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


class Category(msgspec.Struct, gc=False):
    """An entry of `categories`."""

    id: Id
    name: str


class CocoFile(msgspec.Struct, gc=False):
    """What the benchmark reads of an annotation file."""

    images: list[Image]
    annotations: list[Annotation] = []
    categories: list[Category] = []


@dataclass(frozen=True)
class Classes:
    """The use case's classes, by rising category id unless it names them in another order."""

    names: tuple[str, ...]
    category_ids: tuple[int, ...]

    def label_of(self) -> dict[int, int]:
        """Category id → label."""
        return {category: label for label, category in enumerate(self.category_ids)}


def read_bytes(root: str, name: str) -> bytes:
    """The file `name` below a folder or URI, unpacked when it ends in .gz."""
    filesystem, base = _opened(root)
    path = name if name.startswith("/") else f"{base.rstrip('/')}/{name}"
    try:
        with filesystem.open_input_stream(path, compression=None) as stream:
            data: bytes = stream.read()
        return gzip.decompress(data) if name.endswith(".gz") else data
    except FileNotFoundError:
        raise SaodError(f"There is no file {path}: check the use case's paths, or give --data DIR.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SaodError(f"{path} cannot be read ({error}): check the file, or fetch it again.") from None


def _opened(root: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in root:
        return pafs.LocalFileSystem(), root
    try:
        filesystem, base = pafs.FileSystem.from_uri(root)
        return filesystem, base
    except (pa.ArrowException, OSError) as error:
        raise SaodError(f"The data root {root} cannot be opened ({error}): check the use case or --data.") from None


def parse(data: bytes, name: str) -> CocoFile:
    """Decode an annotation file and refuse what would make figures ambiguous."""
    try:
        coco = msgspec.json.decode(data, type=CocoFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SaodError(f"{name} is not COCO JSON ({error}): check the file, or fetch it again.") from None
    _refuse_twice("image id", [image.id for image in coco.images], name)
    _refuse_twice("category id", [category.id for category in coco.categories], name)
    known = {image.id for image in coco.images}
    strangers = {a.image_id for a in coco.annotations if a.image_id not in known}
    if strangers:
        raise SaodError(f"{name}: annotations name unknown images {some(sorted(strangers))}: remove or add them.")
    for annotation in coco.annotations:
        numbers = (*annotation.bbox, annotation.area or 0.0)
        if not all(map(math.isfinite, numbers)) or annotation.bbox[2] < 0 or annotation.bbox[3] < 0:
            raise SaodError(
                f"{name}: annotation {annotation.id} has the box {list(annotation.bbox)}: mend or remove it."
            )
    return coco


def _refuse_twice(what: str, ids: list[int], name: str) -> None:
    if len(set(ids)) < len(ids):
        twice = sorted(key for key, count in Counter(ids).items() if count > 1)
        raise SaodError(f"{name}: the {what} {some(twice)} occurs more than once: give every entry an id of its own.")


def classes_of(case: UseCase, coco: CocoFile) -> Classes:
    """val's categories by rising id, or those that the use case names."""
    categories = sorted(coco.categories, key=lambda category: category.id)
    if case.classes is not None:
        names = {category.name for category in categories}
        _refuse_twice_name(list(case.classes), "the use case's classes")
        missing = [name for name in case.classes if name not in names]
        if missing:
            raise SaodError(
                f"{case.splits.val.annotations} has no category {some(missing)}: mend the use case's classes."
            )
        categories = [category for name in case.classes for category in categories if category.name == name]
    if not categories:
        raise SaodError(f"{case.splits.val.annotations} has no categories: add the list `categories`.")
    _refuse_twice_name([category.name for category in categories], case.splits.val.annotations)
    return Classes(tuple(c.name for c in categories), tuple(c.id for c in categories))


def _refuse_twice_name(names: list[str], file: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SaodError(f"{file}: two categories are named {some(twice)}: give each a name of its own.")


def manifest(coco: CocoFile, prefix: str, classes: Classes, name: str, chosen: bool) -> Manifest:
    """The tables of an annotated source. Objects of other classes are left out where classes were `chosen`."""
    label_of = classes.label_of()
    rows = [a for a in coco.annotations if a.category_id in label_of]
    if len(rows) < len(coco.annotations) and not chosen:
        unknown = {a.category_id for a in coco.annotations if a.category_id not in label_of}
        raise SaodError(
            f"{name}: category id {some(sorted(unknown))} is not one of val's classes: remove or map them, or name the "
            "classes to keep in the use case's `classes`."
        )
    objects = {
        "object_id": [a.id for a in rows],
        "image_id": [a.image_id for a in rows],
        "label": [label_of[a.category_id] for a in rows],
        **{axis: [a.bbox[k] for a in rows] for k, axis in enumerate("xywh")},
        "area": [a.bbox[2] * a.bbox[3] if a.area is None else a.area for a in rows],
        "crowd": [bool(a.iscrowd) for a in rows],
    }
    return Manifest(_images(coco.images, prefix, ""), pl.DataFrame(objects, schema=OBJECTS))


def _images(images: list[Image], prefix: str, subset: str) -> pl.DataFrame:
    columns = {
        "image_id": [image.id for image in images],
        "source_id": [image.id for image in images],
        "file_name": [f"{prefix.rstrip('/')}/{image.file_name}".lstrip("/") for image in images],
        "width": [image.width for image in images],
        "height": [image.height for image in images],
        "subset": [subset] * len(images),
    }
    return pl.DataFrame(columns, schema=IMAGES)


def ood_manifest(case: UseCase, data: dict[str, bytes]) -> Manifest:
    """All OOD subsets in one table. Source ids stay where they are unique; else images are numbered anew."""
    tables = [_images(_ood_images(case, subset, data), subset.images, subset.name) for subset in case.splits.ood]
    images = pl.concat(tables) if tables else pl.DataFrame(schema=IMAGES)
    if images["image_id"].n_unique() < images.height:
        images = images.with_columns(image_id=pl.int_range(images.height, dtype=pl.Int64))
    return Manifest(images, pl.DataFrame(schema=OBJECTS))


def _ood_images(case: UseCase, subset: OodSource, data: dict[str, bytes]) -> list[Image]:
    if subset.annotations is not None:
        return parse(data[subset.annotations], subset.annotations).images
    root = case.root
    filesystem, base = _opened(root)
    folder = f"{base.rstrip('/')}/{subset.images}".rstrip("/")
    try:
        found = filesystem.get_file_info(pafs.FileSelector(folder, recursive=True))
    except (FileNotFoundError, OSError):
        raise SaodError(f"There is no folder {folder} for the OOD subset '{subset.name}': give --data DIR.") from None
    files = [each for each in found if each.type == pafs.FileType.File and not each.base_name.startswith(".")]
    names = sorted(each.path[len(folder) + 1 :] for each in files if each.path.lower().endswith(IMAGE_ENDINGS))
    if not names:
        raise SaodError(f"There is no image below {folder} for the OOD subset '{subset.name}': check its `images`.")
    return [Image(number, name) for number, name in enumerate(names)]
