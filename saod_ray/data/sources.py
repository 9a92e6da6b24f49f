"""From a use case's sources to manifests: the files of a source become one table of images and one of objects."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from saod_ray.config import OodSource, Part, Source, UseCase
from saod_ray.data.formats import FormatReader, reader_for
from saod_ray.data.manifest import IMAGES, Classes, Manifest, empty_object_table, first_images
from saod_ray.data.source_files import Progress, SourceFiles
from saod_ray.errors import SaodError


@dataclass(frozen=True)
class Sources:
    """What a use case's annotation files contain.

    `manifests` has val, id and ood, and train if it was asked for and could be read. `digests` are the SHA-256 of the
    benchmark's inputs by name, and `remarks` are sentences for the user.
    """

    classes: Classes
    manifests: dict[str, Manifest]
    digests: dict[str, str]
    remarks: list[str]


def inputs(source: Source) -> list[str]:
    """The files (and folders, whose names end in a slash) whose content determines the source's manifest."""
    return [name for part in source.parts for name in reader_for(source).inputs(part)]


def all_inputs(case: UseCase, train: bool = False) -> list[str]:
    """The inputs of every source, with those of train only on request. Shared inputs are repeated."""
    sources = (source for name, source in case.sources().items() if name != "train" or train)
    return [name for source in sources for name in inputs(source)]


def read(case: UseCase, train: bool = False, progress: Progress | None = None) -> Sources:
    """Parse all annotations of a use case.

    With `train` also those of train: if they cannot be read, that is a remark and no error, as the benchmark does not
    need them.
    """
    files = SourceFiles(case.root, all_inputs(case, train), progress)
    classes, val = _read_annotated(files, case, case.splits.val, None)
    manifests = {
        "val": val,
        "id": _read_annotated(files, case, case.splits.id, classes)[1],
        "ood": _read_ood(files, case),
    }
    digests = {name: files.digests[name] for name in all_inputs(case)}
    remarks = []
    if train and case.splits.train is not None:
        try:
            manifests["train"] = _read_annotated(files, case, case.splits.train, classes)[1]
        except SaodError as error:
            remarks.append(f"train cannot be used for training yet: {error}")
    return Sources(classes, manifests, digests, remarks)


def read_training(case: UseCase, progress: Progress | None = None) -> tuple[Classes, dict[str, Manifest]]:
    """The classes, and the manifests of train and val: all that a training needs."""
    if case.splits.train is None:
        raise SaodError(f"The use case '{case.name}' has no `splits.train`: add it to its file to train on it.")
    names = [name for source in (case.splits.val, case.splits.train) for name in inputs(source)]
    files = SourceFiles(case.root, names, progress)
    if case.made_by and not all(files.stamp(name) for name in inputs(case.splits.train)):
        raise SaodError(f"'{case.name}' is not drawn below {case.root} yet: run `{case.command('build')}`.")
    classes, val = _read_annotated(files, case, case.splits.val, None)
    return classes, {"train": _read_annotated(files, case, case.splits.train, classes)[1], "val": val}


def _read_annotated(
    files: SourceFiles, case: UseCase, source: Source, classes: Classes | None
) -> tuple[Classes, Manifest]:
    """The manifest of an annotated source; `classes` are None for val, which determines them."""
    reader = reader_for(source)
    parts = []
    for part in source.parts:
        classes, manifest = reader.read_annotated(files, part, classes, case.classes)
        parts.append(_apply_limit(files, reader, part, manifest))
    assert classes is not None
    return classes, reader.combine(source, parts)


def _apply_limit(files: SourceFiles, reader: FormatReader, part: Part, manifest: Manifest) -> Manifest:
    if reader.selects_images and not manifest.images.height:
        location = files.folder.display_path(part.annotations)
        raise SaodError(f"No image of {location} qualifies: check that it is the right file.")
    return first_images(manifest, part.limit) if part.limit else manifest


def _read_ood(files: SourceFiles, case: UseCase) -> Manifest:
    """All OOD subsets in one table.

    If all subsets have ids of their own and these are unique together, images keep them. Otherwise images are
    numbered from 0 over the whole table.
    """
    tables = [pl.DataFrame(schema=IMAGES).with_columns(has_own_id=pl.lit(True))]
    for source in case.splits.ood:
        has_own_id = pl.lit(reader_for(source).keeps_source_ids)
        tables.append(_read_unlabelled(files, source).with_columns(subset=pl.lit(source.name), has_own_id=has_own_id))
    images = pl.concat(tables).with_columns(number=pl.int_range(pl.len(), dtype=pl.Int64))
    if not images["has_own_id"].all() or images["image_id"].n_unique() < images.height:
        source_id = pl.when("has_own_id").then("source_id").otherwise("number")
        images = images.with_columns(image_id="number", source_id=source_id)
    return Manifest(images.drop("has_own_id", "number"), empty_object_table())


def _read_unlabelled(files: SourceFiles, source: OodSource) -> pl.DataFrame:
    """The images of one OOD subset."""
    reader = reader_for(source)
    parts = [_apply_limit(files, reader, part, reader.read_unlabelled(files, part, source)) for part in source.parts]
    return reader.combine(source, parts).images
