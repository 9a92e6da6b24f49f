"""OOD images without any annotation file: every image below a folder."""

from __future__ import annotations

from saod_ray.config import OodSource, Part
from saod_ray.data.manifest import Manifest, image_table, object_table
from saod_ray.data.raw import Raw


def inputs(part: Part) -> list[str]:
    """The folder itself, whose listing decides the manifest."""
    return [f"{part.images.rstrip('/') or '.'}/"]


def unlabelled(raw: Raw, part: Part, source: OodSource) -> Manifest:
    """The images by name."""
    names = raw.images(inputs(part)[0])
    return Manifest(image_table(range(len(names)), part.images, names), object_table([], [], []))
