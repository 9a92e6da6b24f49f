"""From a use case's sources to manifests: which module reads a format, and how its parts become one table."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import polars as pl

from saod_ray.config import OodSource, Part, Source, UseCase
from saod_ray.data.coco import refuse_twice
from saod_ray.data.manifest import IMAGES, Classes, Manifest, first, joined, object_table
from saod_ray.data.raw import Progress, Raw
from saod_ray.errors import SaodError


@dataclass(frozen=True)
class Sources:
    """A use case's classes, the manifests of train (where asked for), val, id and ood, digests of its inputs, and remarks."""

    classes: Classes
    manifests: dict[str, Manifest]
    digests: dict[str, str]
    remarks: list[str]


def inputs(source: Source) -> list[str]:
    """The files (and, ending in a slash, folders) whose content decides the source's manifest."""
    return [name for part in source.parts for name in _reader(source).inputs(part)]


def all_inputs(case: UseCase, train: bool = False) -> list[str]:
    """The inputs of every source, one that several read as often; train's only where asked for."""
    return [name for key, each in case.sources().items() if key != "train" or train for name in inputs(each)]


def read(case: UseCase, train: bool = False, progress: Progress | None = None) -> Sources:
    """Parse everything the use case names; the benchmark does without train, so that it may fail."""
    raw = Raw(case.root, all_inputs(case, train), progress)
    classes, val = _annotated(raw, case, case.splits.val, None)
    manifests = {"val": val, "id": _annotated(raw, case, case.splits.id, classes)[1], "ood": _ood(raw, case)}
    digests = {name: raw.digests[name] for name in all_inputs(case)}
    remarks = []
    if train and case.splits.train is not None:
        try:
            manifests["train"] = _annotated(raw, case, case.splits.train, classes)[1]
        except SaodError as error:
            remarks.append(f"train cannot be used for training yet: {error}")
    return Sources(classes, manifests, digests, remarks)


def read_training(case: UseCase, progress: Progress | None = None) -> tuple[Classes, dict[str, Manifest]]:
    """What a training needs, and nothing else: the classes, and the manifests of train and val."""
    if case.splits.train is None:
        raise SaodError(f"The use case '{case.name}' has no `splits.train`: add it to its file to train on it.")
    raw = Raw(case.root, [name for source in (case.splits.val, case.splits.train) for name in inputs(source)], progress)
    if case.made_by and not all(raw.stamp(name) for name in inputs(case.splits.train)):
        raise SaodError(f"'{case.name}' is not drawn below {case.root} yet: run `{case.command('build')}`.")
    classes, val = _annotated(raw, case, case.splits.val, None)
    return classes, {"train": _annotated(raw, case, case.splits.train, classes)[1], "val": val}


def _annotated(raw: Raw, case: UseCase, source: Source, classes: Classes | None) -> tuple[Classes, Manifest]:
    reader = _reader(source)
    if not hasattr(reader, "annotated"):
        raise SaodError(f"The format '{source.format}' has images without objects: use it for `splits.ood` only.")
    parts = []
    for part in source.parts:
        classes, manifest = reader.annotated(raw, part, classes, case.classes)
        parts.append(_limited(raw, source, part, manifest))
    assert classes is not None
    return classes, _together(source, parts)


def _limited(raw: Raw, source: Source, part: Part, manifest: Manifest) -> Manifest:
    if source.format != "coco" and not manifest.images.height:
        place = raw.folder.display_path(part.annotations)
        raise SaodError(f"No image of {place} qualifies: check that it is the right file.")
    return first(manifest, part.limit) if part.limit else manifest


def _together(source: Source, parts: list[Manifest]) -> Manifest:
    """The parts of a source. Images of COCO files are known by their ids, which must be unique among the files."""
    if source.format != "coco" or not source.annotations:
        return joined(parts)
    images = pl.concat([part.images for part in parts])
    refuse_twice("image id", images["image_id"], " and ".join(source.annotations))
    return Manifest(images, pl.concat([part.objects for part in parts]))


def _ood(raw: Raw, case: UseCase) -> Manifest:
    """All OOD subsets in one table. Ids of COCO files stay where they are unique; else images are numbered anew.

    Formats whose images have no id of their own, or one that the published annotation file replaced, are known by
    their number in the whole table.
    """
    tables = [pl.DataFrame(schema=IMAGES).with_columns(own=pl.lit(True))]
    for source in case.splits.ood:
        images = _unlabelled(raw, source)
        tables.append(images.with_columns(subset=pl.lit(source.name), own=pl.lit(source.format == "coco")))
    images = pl.concat(tables).with_columns(number=pl.int_range(pl.len(), dtype=pl.Int64))
    if not images["own"].all() or images["image_id"].n_unique() < images.height:
        images = images.with_columns(image_id="number", source_id=pl.when("own").then("source_id").otherwise("number"))
    return Manifest(images.drop("own", "number"), object_table([], [], []))


def _unlabelled(raw: Raw, source: OodSource) -> pl.DataFrame:
    reader = _reader(source)
    if not hasattr(reader, "unlabelled"):
        raise SaodError(
            f"The format '{source.format}' has objects: use it for `splits.val` or `splits.id`, not for ood."
        )
    parts = [_limited(raw, source, part, reader.unlabelled(raw, part, source)) for part in source.parts]
    return _together(source, parts).images


def _reader(source: Source) -> ModuleType:
    """The module that reads a format."""
    name = source.format if source.annotations else "folder"
    return import_module(f"saod_ray.data.{name}")
