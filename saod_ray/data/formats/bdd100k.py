"""BDD100K's detection labels of 2020: BDD45K (the paper's appendix A.1).

BDD100K annotates riders apart from what they ride; nuImages' boxes hold both. So riders are merged with bicycles and
motorcycles, and images in which that is impossible are left out.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
from scipy.optimize import linear_sum_assignment

from saod_ray.config import Part
from saod_ray.data.formats import FormatReader
from saod_ray.data.manifest import MAX_COORDINATE, Classes, Manifest, clean_boxes, image_table, object_table
from saod_ray.data.source_files import ElementDecoder, SourceFiles
from saod_ray.errors import SaodError

DESCRIPTION = "BDD100K's JSON"
WIDTH, HEIGHT = 1280, 720  # pixels of every image
MIN_RIDER_IOU = 0.10  # between a rider and the vehicle
RIDER, RIDDEN = "rider", ("bicycle", "motorcycle")

# the use case's class → the categories that count as it
MATCHES = {
    "pedestrian": ("pedestrian", "other person"),
    "vehicle": ("car", "truck", "bus", "motorcycle", "train", "trailer", "other vehicle"),
    "bicycle": ("bicycle",),
}

Coordinate = Annotated[float, msgspec.Meta(ge=-MAX_COORDINATE, le=MAX_COORDINATE)]


class Box(msgspec.Struct, gc=False):
    """The corners of a label, in pixels."""

    x1: Coordinate
    y1: Coordinate
    x2: Coordinate
    y2: Coordinate


class Label(msgspec.Struct, gc=False):
    """An object; lanes and drivable areas have no box."""

    category: str
    box2d: Box | None = None


class Frame(msgspec.Struct, gc=False):
    """An image; `labels` is absent if nothing was annotated."""

    name: str
    labels: list[Label] | None = None


class Bdd100kReader(FormatReader):
    """Images with at least one object of the use case's classes, riders merged with their vehicles."""

    def read_annotated(
        self, files: SourceFiles, part: Part, classes: Classes | None, class_names: tuple[str, ...] | None
    ) -> tuple[Classes, Manifest]:
        """Images in file order, numbered from 0. SaodError for val, as BDD100K does not determine classes."""
        if classes is None:
            raise SaodError("BDD100K has no classes of its own here: use it for `splits.id`, with nuImages as val.")
        label_of = _label_of(classes)
        names: list[str] = []
        image_ids: list[int] = []
        labels: list[int] = []
        boxes: list[np.ndarray] = []
        with files.json(part.annotations, DESCRIPTION) as file:
            decoder = ElementDecoder(Frame, file, DESCRIPTION)
            for block in file.blocks():
                for frame in decoder.decode(block):
                    merged = merge_riders(frame.labels or [])
                    objects = [(label_of[category], box) for category, box in merged if category in label_of]
                    if objects:
                        image_ids += [len(names)] * len(objects)
                        labels += [label for label, _ in objects]
                        boxes += [box for _, box in objects]
                        names.append(frame.name)
        images = image_table(range(len(names)), part.images, names, [WIDTH] * len(names), [HEIGHT] * len(names))
        corners = np.array(boxes, np.float64).reshape(-1, 4)
        sized = np.column_stack([corners[:, :2], corners[:, 2:] - corners[:, :2]])
        return classes, Manifest(images, object_table(image_ids, labels, clean_boxes(sized, part.annotations)))


def _label_of(classes: Classes) -> dict[str, int]:
    """The label of each BDD100K category."""
    label = {name: k for k, name in enumerate(classes.names)}
    return {category: label[name] for name, matches in MATCHES.items() if name in label for category in matches}


def merge_riders(labels: list[Label]) -> list[tuple[str, np.ndarray]]:
    """Category and corners (x1, y1, x2, y2) of each object, riders merged; empty if the image must be left out.

    Riders are assigned to bicycles and motorcycles so that the total IoU is largest. The image is left out if a pair's
    IoU is below `MIN_RIDER_IOU`, or if there are riders but nothing to ride. A rider without a vehicle of its own (a
    passenger) is dropped.
    """
    boxed = [(label.category, np.array(msgspec.structs.astuple(label.box2d))) for label in labels if label.box2d]
    riders = [box for category, box in boxed if category == RIDER]
    objects = [(category, box) for category, box in boxed if category != RIDER]
    ridden = [k for k, (category, _) in enumerate(objects) if category in RIDDEN]
    if not riders:
        return objects
    if not ridden:
        return []
    iou = _pairwise_iou(np.array(riders), np.array([objects[k][1] for k in ridden]))
    for rider, vehicle in zip(*linear_sum_assignment(iou, maximize=True), strict=True):
        if iou[rider, vehicle] < MIN_RIDER_IOU:
            return []
        category, box = objects[ridden[vehicle]]
        low, high = np.minimum(riders[rider], box), np.maximum(riders[rider], box)
        objects[ridden[vehicle]] = (category, np.concatenate([low[:2], high[2:]]))
    return objects


def _pairwise_iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The IoU of every pair of boxes (x1, y1, x2, y2), as a matrix."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    intersection = np.prod(np.maximum(high - low, 0), axis=2)
    areas = [np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None, :] - intersection
    return intersection / np.maximum(union, np.finfo(float).tiny)


READER = Bdd100kReader()
