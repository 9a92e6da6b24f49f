"""BDD100K's detection labels of 2020: BDD45K (the paper's appendix A.1).

BDD100K annotates riders apart from what they ride; nuImages' boxes hold both. So riders are joined with bicycles and
motorcycles, and an image in which that cannot be done is left out.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
from scipy.optimize import linear_sum_assignment

from saod_ray.config import Part
from saod_ray.data.manifest import FARTHEST, Classes, Manifest, image_table, object_table, sane
from saod_ray.data.raw import Elements, Raw
from saod_ray.errors import SaodError

WHAT = "BDD100K's JSON"
WIDTH, HEIGHT = 1280, 720  # of every image
LEAST_OVERLAP = 0.10  # of a rider and what it rides
RIDER, RIDDEN = "rider", ("bicycle", "motorcycle")

# the use case's class → the categories that count as it
MATCHES = {
    "pedestrian": ("pedestrian", "other person"),
    "vehicle": ("car", "truck", "bus", "motorcycle", "train", "trailer", "other vehicle"),
    "bicycle": ("bicycle",),
}


Coordinate = Annotated[float, msgspec.Meta(ge=-FARTHEST, le=FARTHEST)]


class Box(msgspec.Struct, gc=False):
    """The corners of a label."""

    x1: Coordinate
    y1: Coordinate
    x2: Coordinate
    y2: Coordinate


class Label(msgspec.Struct, gc=False):
    """An object; lanes and drivable areas have no box."""

    category: str
    box2d: Box | None = None


class Frame(msgspec.Struct, gc=False):
    """An image; `labels` is absent where nothing was seen."""

    name: str
    labels: list[Label] | None = None


def inputs(part: Part) -> list[str]:
    """The files that decide the manifest."""
    return [part.annotations]


def annotated(raw: Raw, part: Part, classes: Classes | None, names: tuple[str, ...] | None) -> tuple[Classes, Manifest]:
    """Images with at least one object of the classes, riders merged into what they ride."""
    if classes is None:
        raise SaodError("BDD100K has no classes of its own here: use it for `splits.id`, with nuImages as val.")
    label = {name: k for k, name in enumerate(classes.names)}
    label_of = {each: label[name] for name, matches in MATCHES.items() if name in label for each in matches}
    found: list[str] = []
    image_ids: list[int] = []
    labels: list[int] = []
    boxes: list[np.ndarray] = []
    with raw.json(part.annotations, WHAT) as file:
        elements = Elements(Frame, file, WHAT)
        for block in file.blocks():
            for frame in elements.decode(block):
                objects = [each for each in merged(frame.labels or []) if each[0] in label_of]
                if objects:
                    image_ids += [len(found)] * len(objects)
                    labels += [label_of[category] for category, _ in objects]
                    boxes += [box for _, box in objects]
                    found.append(frame.name)
    sizes = [WIDTH] * len(found), [HEIGHT] * len(found)
    images = image_table(range(len(found)), part.images, found, *sizes)
    corners = np.array(boxes, np.float64).reshape(-1, 4)
    sized = sane(np.column_stack([corners[:, :2], corners[:, 2:] - corners[:, :2]]), part.annotations)
    return classes, Manifest(images, object_table(image_ids, labels, sized))


def merged(labels: list[Label]) -> list[tuple[str, np.ndarray]]:
    """Category and corners of each object, riders merged; nothing where the image has to be left out.

    Riders and what is ridden are assigned to each other so that their total IoU is largest. An assignment below 0.10,
    or riders with nothing to ride at all, spoil the image; a rider that is left over (a passenger) does not.
    """
    boxed = [(each.category, np.array(msgspec.structs.astuple(each.box2d))) for each in labels if each.box2d]
    riders = [box for category, box in boxed if category == RIDER]
    objects = [(category, box) for category, box in boxed if category != RIDER]
    ridden = [k for k, (category, _) in enumerate(objects) if category in RIDDEN]
    if not riders:
        return objects
    if not ridden:
        return []
    overlap = _overlaps(np.array(riders), np.array([objects[k][1] for k in ridden]))
    for rider, mount in zip(*linear_sum_assignment(overlap, maximize=True), strict=True):
        if overlap[rider, mount] < LEAST_OVERLAP:
            return []
        category, box = objects[ridden[mount]]
        low, high = np.minimum(riders[rider], box), np.maximum(riders[rider], box)
        objects[ridden[mount]] = (category, np.concatenate([low[:2], high[2:]]))
    return objects


def _overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The IoU of every pair of boxes given by their corners."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    both = np.prod(np.maximum(high - low, 0), axis=2)
    areas = [np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None, :] - both
    return both / np.maximum(union, np.finfo(float).tiny)
