"""iNaturalist 2017: the validation images with boxes whose species are of seven super-classes (appendix A.3)."""

from __future__ import annotations

from saod_ray.config import OodSource, Part
from saod_ray.data.coco_json import check_coco, check_listed, coco_image_table, read_coco
from saod_ray.data.formats import FormatReader
from saod_ray.data.manifest import MAX_COORDINATE, Manifest, empty_object_table
from saod_ray.data.source_files import SourceFiles

DESCRIPTION = "iNaturalist's JSON"
# super-classes that COCO and nuImages do not have, which excludes plants, fungi, birds and mammals
OOD = ("Actinopterygii", "Amphibia", "Animalia", "Arachnida", "Insecta", "Mollusca", "Reptilia")


class INaturalistReader(FormatReader):
    """Images with at least one box, and with all boxes of the seven super-classes."""

    def read_unlabelled(self, files: SourceFiles, part: Part, source: OodSource) -> Manifest:
        """Images in file order."""
        location = files.folder.display_path(part.annotations)
        file = read_coco(files, part.annotations, DESCRIPTION, ("images", "annotations", "categories"))
        check_coco(file, location, min_size=-MAX_COORDINATE)
        used = {annotation.category_id for annotation in file.annotations}
        check_listed(used, {category.id for category in file.categories}, "categories", location)
        ood_ids = {category.id for category in file.categories if category.supercategory in OOD}
        with_box = {annotation.image_id for annotation in file.annotations}
        with_other = {annotation.image_id for annotation in file.annotations if annotation.category_id not in ood_ids}
        qualifying = with_box - with_other
        selected = [image for image in file.images if image.id in qualifying]
        return Manifest(coco_image_table(selected, part), empty_object_table())


READER = INaturalistReader()
