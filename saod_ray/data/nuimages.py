"""nuImages v1.0 from its relational tables: three classes, one image a key frame."""

from __future__ import annotations

from typing import Any

import msgspec

from saod_ray.config import Part
from saod_ray.data.coco import Side
from saod_ray.data.manifest import Classes, Manifest, image_table, object_table, sane
from saod_ray.data.raw import Elements, Raw
from saod_ray.errors import SaodError, join_truncated

WHAT = "a nuImages table"
CLASSES = Classes(("pedestrian", "vehicle", "bicycle"), (0, 1, 2))
# emergency vehicles, animals, and people in wheelchairs or on scooters are no objects of the benchmark
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


class Category(msgspec.Struct, gc=False):
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
    """That an object has a mask is all that counts."""


class ObjectAnn(msgspec.Struct, gc=False):
    """A row of `object_ann`: the box is x1, y1, x2, y2."""

    token: str
    sample_data_token: str
    category_token: str
    bbox: tuple[float, float, float, float]
    mask: Mask | None = None


def inputs(part: Part) -> list[str]:
    """Three of the ten tables."""
    return [f"{part.annotations.rstrip('/')}/{table}.json" for table in ("category", "sample_data", "object_ann")]


def annotated(raw: Raw, part: Part, classes: Classes | None, names: tuple[str, ...] | None) -> tuple[Classes, Manifest]:
    """All key frames in the table's order; their objects by token. Objects without a mask are left out.

    Images and objects are numbered as the published annotation files number them, so that detections fit both.
    """
    known = _classes(classes, names)
    category_file, data_file, object_file = inputs(part)
    categories = {row.token: row.name for row in _rows(raw, category_file, Category)}
    if not set(categories.values()) & set(CLASS_OF):
        raise SaodError(f"{raw.folder.display_path(category_file)} names none of nuImages' road users: fetch it again.")
    label = {name: k for k, name in enumerate(known.names)}
    label_of = {token: label[CLASS_OF[name]] for token, name in categories.items() if CLASS_OF.get(name) in label}
    data = _rows(raw, data_file, SampleData)
    frames = [row for row in data if row.is_key_frame]
    by_frame: dict[str, list[ObjectAnn]] = {row.token: [] for row in data}
    for row in _rows(raw, object_file, ObjectAnn):
        if row.sample_data_token not in by_frame or row.category_token not in categories:
            raise SaodError(
                f"{raw.folder.display_path(object_file)}: the object {row.token} names an image or a category that the other "
                "tables do not have: fetch all of them again."
            )
        if row.category_token in label_of and row.mask is not None:
            by_frame[row.sample_data_token].append(row)
    rows = [
        (number, each)
        for number, frame in enumerate(frames)
        for each in sorted(by_frame[frame.token], key=lambda row: row.token)
    ]
    images = image_table(
        range(len(frames)),
        part.images,
        [frame.filename for frame in frames],
        [frame.width for frame in frames],
        [frame.height for frame in frames],
    )
    objects = object_table(
        [number for number, _ in rows],
        [label_of[each.category_token] for _, each in rows],
        sane(
            [(x1, y1, x2 - x1, y2 - y1) for x1, y1, x2, y2 in (each.bbox for _, each in rows)],
            raw.folder.display_path(object_file),
        ),
    )
    return known, Manifest(images, objects)


def _classes(classes: Classes | None, names: tuple[str, ...] | None) -> Classes:
    """Val's, or of nuImages' three those that the use case names."""
    if classes is not None:
        if not set(classes.names) & set(CLASSES.names):
            raise SaodError(f"val has none of the classes {join_truncated(CLASSES.names)}: nuImages does not fit it.")
        return classes
    unknown = [name for name in names or () if name not in CLASSES.names]
    if unknown:
        raise SaodError(
            f"nuImages has no class {join_truncated(unknown)}: of {join_truncated(CLASSES.names)} name those to keep."
        )
    chosen = names or CLASSES.names
    return Classes(chosen, tuple(CLASSES.category_ids[CLASSES.names.index(name)] for name in chosen))


def _rows(raw: Raw, name: str, kind: type) -> list[Any]:
    rows: list[Any] = []
    with raw.json(name, WHAT) as file:
        elements = Elements(kind, file, WHAT)
        for block in file.blocks():
            rows += elements.decode(block)
    return rows
