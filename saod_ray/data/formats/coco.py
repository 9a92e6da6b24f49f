"""COCO annotation files: those of users, and COCO itself."""

from __future__ import annotations

import polars as pl

from saod_ray.config import OodSource, Part, Source
from saod_ray.data.coco_json import (
    CocoFile,
    check_coco,
    check_unique,
    coco_image_table,
    read_coco,
    select_classes,
)
from saod_ray.data.formats import FormatReader
from saod_ray.data.manifest import Classes, Manifest, empty_object_table, object_table
from saod_ray.data.source_files import SourceFiles
from saod_ray.errors import SaodError, join_truncated


class CocoReader(FormatReader):
    """Keeps every image of a file. Ids of images and objects are those of the file."""

    keeps_source_ids = True
    selects_images = False

    def read_annotated(
        self, files: SourceFiles, part: Part, classes: Classes | None, class_names: tuple[str, ...] | None
    ) -> tuple[Classes, Manifest]:
        """All images and their objects.

        Val's classes are its categories, or those of them in `class_names`. Objects of other classes are left out if
        the use case names its classes, and refused otherwise.
        """
        coco, location = read_coco(files, part.annotations), files.folder.display_path(part.annotations)
        check_coco(coco, location)
        classes = classes or select_classes(coco, class_names, location)
        if class_names is None:
            _check_categories(coco, classes, location)
        return classes, _manifest(coco, part, classes)

    def read_unlabelled(self, files: SourceFiles, part: Part, source: OodSource) -> Manifest:
        """All images; annotations do not matter."""
        coco = read_coco(files, part.annotations)
        check_coco(coco, files.folder.display_path(part.annotations))
        return Manifest(coco_image_table(coco.images, part), empty_object_table())

    def combine(self, source: Source, parts: list[Manifest]) -> Manifest:
        """Concatenate the files; image ids must be unique across them. SaodError if they are not."""
        images = pl.concat([part.images for part in parts])
        check_unique("image id", images["image_id"], " and ".join(source.annotations))
        return Manifest(images, pl.concat([part.objects for part in parts]))


def _check_categories(coco: CocoFile, classes: Classes, location: str) -> None:
    """Refuse annotations whose category is not one of val's classes."""
    label_of = classes.label_of()
    unknown = {a.category_id for a in coco.annotations if a.category_id not in label_of}
    if unknown:
        raise SaodError(
            f"{location}: category id {join_truncated(sorted(unknown))} is not one of val's classes: remove or map them, "
            "or name the classes to keep in the use case's `classes`."
        )


def _manifest(coco: CocoFile, part: Part, classes: Classes) -> Manifest:
    label_of = classes.label_of()
    rows = [a for a in coco.annotations if a.category_id in label_of]
    objects = object_table(
        [a.image_id for a in rows],
        [label_of[a.category_id] for a in rows],
        [a.bbox for a in rows],
        areas=[a.bbox[2] * a.bbox[3] if a.area is None else a.area for a in rows],
        crowd=[bool(a.iscrowd) for a in rows],
        ids=[a.id for a in rows],
    )
    return Manifest(coco_image_table(coco.images, part), objects)


READER = CocoReader()
