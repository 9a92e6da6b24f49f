"""Readers of annotation formats, one module per format.

To add a format, add one module here, named like the format: a subclass of `FormatReader`, and an instance of it called
`READER`. Use cases can then say `format = "NAME"`; nothing else has to change. `svhn.py` is a short one to copy.
"""

from __future__ import annotations

from abc import ABC
from importlib import import_module

from saod_ray.config import OodSource, Part, Source
from saod_ray.data.manifest import Classes, Manifest, concat_manifests
from saod_ray.data.source_files import SourceFiles
from saod_ray.errors import SaodError


class FormatReader(ABC):  # noqa: B024  (a subclass overrides one of the two `read_*` methods, or both)
    """Reads annotation files of one format into manifests.

    Override `read_annotated` if the format can serve `splits.train`, `splits.val` or `splits.id`, and `read_unlabelled`
    if it can serve `splits.ood`. The methods as they are refuse the source with an error that says where it fits.
    """

    keeps_source_ids = False
    """Whether `source_id` of an OOD image is its id in the source, rather than its number in the table of all subsets."""

    selects_images = True
    """Whether the reader leaves images out by a rule. If so, a file without any qualifying image is an error."""

    @property
    def name(self) -> str:
        """The name of the format, which is that of its module."""
        return type(self).__module__.rpartition(".")[2]

    def inputs(self, part: Part) -> list[str]:
        """The files (and folders, whose names end in a slash) whose content determines the manifest."""
        return [part.annotations]

    def read_annotated(
        self, files: SourceFiles, part: Part, classes: Classes | None, class_names: tuple[str, ...] | None
    ) -> tuple[Classes, Manifest]:
        """The images and objects of one annotation file, and the classes that labels are indices of.

        `classes` are those of val, and None while val itself is read: then the reader determines them. `class_names`
        are those that the use case asks for, if it does. SaodError if the file is not as the format requires.
        """
        raise SaodError(f"The format '{self.name}' has images without objects: use it for `splits.ood` only.")

    def read_unlabelled(self, files: SourceFiles, part: Part, source: OodSource) -> Manifest:
        """The OOD images of one annotation file, without objects. SaodError if the file is not as required."""
        raise SaodError(f"The format '{self.name}' has objects: use it for `splits.val` or `splits.id`, not for ood.")

    def combine(self, source: Source, parts: list[Manifest]) -> Manifest:
        """The manifest of a source from those of its annotation files; by default images are renumbered from 0."""
        return concat_manifests(parts)


def reader_for(source: Source) -> FormatReader:
    """The reader of a source's format, or of its image folder if it names no annotation file."""
    module = source.format if source.annotations else "_folder"
    reader: FormatReader = import_module(f"{__name__}.{module}").READER
    return reader
