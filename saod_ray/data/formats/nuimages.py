"""nuImages v1.0 from its relational tables: three classes, one image per key frame."""

from __future__ import annotations

from typing import Any

import msgspec

from saod_ray.config import Part
from saod_ray.data.coco_json import Side
from saod_ray.data.formats import FormatReader
from saod_ray.data.manifest import Classes, Manifest, clean_boxes, image_table, object_table
from saod_ray.data.source_files import ElementDecoder, SourceFiles
from saod_ray.errors import SaodError, join_truncated

DESCRIPTION = "a nuImages table"
CLASSES = Classes(("pedestrian", "vehicle", "bicycle"), (0, 1, 2))
# the benchmark excludes emergency vehicles, animals, and people in wheelchairs or on scooters
CLASS_OF = {
    "human.pedestrian.adult": "pedestrian",
    "human.pedestrian.child": "pedestrian",
    "human.pedestrian.construction_worker": "pedestrian",
    "human.pedestrian.police_officer": "pedestrian",
    "vehicle.bicycle": "bicycle",
    "vehicle.bus.bendy": "vehicle",
    "vehicle.bus.rigid": "vehicle",
    "vehicle.car": "vehicle",
    "vehicle.construction": "vehicle",
    "vehicle.motorcycle": "vehicle",
    "vehicle.trailer": "vehicle",
    "vehicle.truck": "vehicle",
}


class CategoryRow(msgspec.Struct, gc=False):
    """A row of `category`."""

    token: str
    name: str


class SampleData(msgspec.Struct, gc=False):
    """A row of `sample_data`; most are frames between the annotated key frames."""

    token: str
    filename: str
    width: Side | None = None
    height: Side | None = None
    is_key_frame: bool = False


class Mask(msgspec.Struct, gc=False):
    """An object's mask. Its content does not matter, only that it exists."""


class ObjectAnn(msgspec.Struct, gc=False):
    """A row of `object_ann`; `bbox` is x1, y1, x2, y2 in pixels."""

    token: str
    sample_data_token: str
    category_token: str
    bbox: tuple[float, float, float, float]
    mask: Mask | None = None


class NuImagesReader(FormatReader):
    """All key frames in table order, with their objects sorted by token. Objects without a mask are left out.

    Images and objects get the numbers they have in the published annotation files, so that detections fit both.
    """

    def inputs(self, part: Part) -> list[str]:
        """Three of the ten tables."""
        return [f"{part.annotations.rstrip('/')}/{table}.json" for table in ("category", "sample_data", "object_ann")]

    def read_annotated(
        self, files: SourceFiles, part: Part, classes: Classes | None, class_names: tuple[str, ...] | None
    ) -> tuple[Classes, Manifest]:
        """Classes are val's, or those of nuImages' three that the use case names."""
        classes = _select_classes(classes, class_names)
        category_file, data_file, object_file = self.inputs(part)
        categories = _read_categories(files, category_file)
        label = {name: k for k, name in enumerate(classes.names)}
        label_of = {token: label[CLASS_OF[name]] for token, name in categories.items() if CLASS_OF.get(name) in label}
        data = _read_rows(files, data_file, SampleData)
        frames = [row for row in data if row.is_key_frame]
        by_frame: dict[str, list[ObjectAnn]] = {row.token: [] for row in data}
        for row in _read_rows(files, object_file, ObjectAnn):
            if row.sample_data_token not in by_frame or row.category_token not in categories:
                raise SaodError(
                    f"{files.folder.display_path(object_file)}: the object {row.token} names an image or a category that the "
                    "other tables do not have: fetch all of them again."
                )
            if row.category_token in label_of and row.mask is not None:
                by_frame[row.sample_data_token].append(row)
        images = image_table(
            range(len(frames)),
            part.images,
            [frame.filename for frame in frames],
            [frame.width for frame in frames],
            [frame.height for frame in frames],
        )
        rows = [
            (number, row)
            for number, frame in enumerate(frames)
            for row in sorted(by_frame[frame.token], key=lambda row: row.token)
        ]
        boxes = [(x1, y1, x2 - x1, y2 - y1) for x1, y1, x2, y2 in (row.bbox for _, row in rows)]
        objects = object_table(
            [number for number, _ in rows],
            [label_of[row.category_token] for _, row in rows],
            clean_boxes(boxes, files.folder.display_path(object_file)),
        )
        return classes, Manifest(images, objects)


def _select_classes(classes: Classes | None, names: tuple[str, ...] | None) -> Classes:
    """Val's classes, or those of nuImages' three that the use case names."""
    if classes is not None:
        if not set(classes.names) & set(CLASSES.names):
            raise SaodError(f"val has none of the classes {join_truncated(CLASSES.names)}: nuImages does not fit it.")
        return classes
    unknown = [name for name in names or () if name not in CLASSES.names]
    if unknown:
        raise SaodError(
            f"nuImages has no class {join_truncated(unknown)}: of {join_truncated(CLASSES.names)} name those to keep."
        )
    selected = names or CLASSES.names
    return Classes(selected, tuple(CLASSES.category_ids[CLASSES.names.index(name)] for name in selected))


def _read_categories(files: SourceFiles, name: str) -> dict[str, str]:
    """Category names by token."""
    categories = {row.token: row.name for row in _read_rows(files, name, CategoryRow)}
    if not set(categories.values()) & set(CLASS_OF):
        raise SaodError(f"{files.folder.display_path(name)} names none of nuImages' road users: fetch it again.")
    return categories


def _read_rows(files: SourceFiles, name: str, kind: type) -> list[Any]:
    rows: list[Any] = []
    with files.json(name, DESCRIPTION) as file:
        decoder = ElementDecoder(kind, file, DESCRIPTION)
        for block in file.blocks():
            rows += decoder.decode(block)
    return rows


READER = NuImagesReader()
