"""OOD images without an annotation file: every image below a folder. Use cases select it by naming no annotations."""

from __future__ import annotations

from saod_ray.config import OodSource, Part
from saod_ray.data.formats import FormatReader
from saod_ray.data.manifest import Manifest, empty_object_table, image_table
from saod_ray.data.source_files import SourceFiles


class FolderReader(FormatReader):
    """All images below a folder, sorted by name and numbered from 0."""

    keeps_source_ids = True
    selects_images = False

    def inputs(self, part: Part) -> list[str]:
        """The folder, whose listing determines the manifest."""
        return [f"{part.images.rstrip('/') or '.'}/"]

    def read_unlabelled(self, files: SourceFiles, part: Part, source: OodSource) -> Manifest:
        """SaodError if the folder is missing or has no images."""
        names = files.images(self.inputs(part)[0])
        return Manifest(image_table(range(len(names)), part.images, names), empty_object_table())


READER = FolderReader()
