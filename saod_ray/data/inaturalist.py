"""iNaturalist 2017: the validation images with boxes whose species are of seven super-classes (appendix A.3)."""

from __future__ import annotations

from saod_ray.config import OodSource, Part
from saod_ray.data import coco
from saod_ray.data.manifest import FARTHEST, Manifest, object_table
from saod_ray.data.raw import Raw

WHAT = "iNaturalist's JSON"
# what COCO and nuImages do not have: plants, fungi, birds and mammals are not among them
OOD = ("Actinopterygii", "Amphibia", "Animalia", "Arachnida", "Insecta", "Mollusca", "Reptilia")

inputs = coco.inputs


def unlabelled(raw: Raw, part: Part, source: OodSource) -> Manifest:
    """Images with at least one box, all of them of the seven super-classes."""
    place = raw.folder.display_path(part.annotations)
    file = coco.read(raw, part.annotations, WHAT, ("images", "annotations", "categories"))
    coco.refuse_bad(file, place, -FARTHEST)
    used = {annotation.category_id for annotation in file.annotations}
    coco.refuse_strangers(used, {category.id for category in file.categories}, "categories", place)
    far = {category.id for category in file.categories if category.supercategory in OOD}
    boxed = {annotation.image_id for annotation in file.annotations}
    spoilt = {annotation.image_id for annotation in file.annotations if annotation.category_id not in far}
    chosen = [image for image in file.images if image.id in boxed and image.id not in spoilt]
    return Manifest(coco.images_of(chosen, part), object_table([], [], []))
