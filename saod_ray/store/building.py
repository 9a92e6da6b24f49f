"""`data build` and `data status`: from raw downloads to manifests on disk, and what is there of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from saod_ray.config import Source, UseCase
from saod_ray.data import images, sources
from saod_ray.data.manifest import Manifest
from saod_ray.data.source_files import Progress, SourceFiles
from saod_ray.errors import SaodError, some
from saod_ray.files import Folder
from saod_ray.store import manifests
from saod_ray.store.manifests import Built, Inputs, Product

Stage = Callable[[str], Progress]


@dataclass(frozen=True)
class State:
    """A source: what is looked for, what is there, and how many images a build found in it."""

    source: str
    name: str
    page: str
    licence: str
    note: str
    looked_for: dict[str, bool]  # path → whether it is there
    is_there: bool
    published: int | None
    published_objects: str
    images: int | None
    objects: int | None


@dataclass(frozen=True)
class Status:
    """A use case's sources, and whether its manifests are built from the files as they are now."""

    use_case: str
    root: str
    built: str  # yes, no, stale, damaged
    manifests: str
    build_command: str
    sources: list[State]


def status(case: UseCase) -> Status:
    """What is there of a use case; nothing is read but what was built."""
    built = Built(case)
    state = "no" if built.inputs() is None else "yes" if built.is_fresh() else "stale"
    counts: dict[str, tuple[int, int | None]] = {}
    if state == "yes":
        try:
            counts = _counts(built)
        except SaodError:
            state = "damaged"
    folder = Folder(case.root)
    found = [_state(key, source, folder, counts) for key, source in case.sources().items()]
    return Status(case.name, case.root, state, built.folder.uri, case.command("build"), found)


def _state(key: str, source: Source, folder: Folder, counts: dict[str, tuple[int, int | None]]) -> State:
    looked_for = {folder.shown(name): folder.exists(name) for name in _looked_for(source)}
    images, objects = counts.get(key, (None, None))
    about = source.about
    return State(
        source=key,
        name=about.name or key,
        page=about.page,
        licence=about.licence,
        note=about.note,
        looked_for=looked_for,
        is_there=all(looked_for.values()),
        published=about.images,
        published_objects=about.objects,
        images=images,
        objects=objects,
    )


class Found(NamedTuple):
    """A use case's tables: those that lie there, or those of a product that is still to be written."""

    inputs: Inputs
    tables: dict[str, Manifest]
    product: Product | None


def build(case: UseCase, stage: Stage, checked: bool = True) -> list[str]:
    """Write a use case's manifests, unless they are there and fresh; returns remarks. Refuses half a download."""
    raw = SourceFiles(case.root)
    _refuse_missing(case, raw)
    built = Built(case)
    train = case.splits.train is not None and _is_there(case.splits.train, raw)
    with built.folder.lock("build"):  # before anything is read: a folder that cannot be written to is noticed at once
        found = _built(built, train) or _read(case, train, raw, stage)
        remarks = [*found.inputs.remarks]
        if checked:
            remarks += _check_images(raw.folder, found.tables, stage)
        if found.product is not None:
            built.write(found.product.description, found.product.files, found.inputs)
    return remarks


def _built(built: Built, train: bool) -> Found | None:
    """What was built from the files as they are now; nothing where there is none, or it is damaged."""
    inputs = built.inputs()
    if inputs is None or inputs.train != train or not built.is_fresh():
        return None
    try:
        return Found(inputs, {source: built.manifest(source) for source in built.description().manifests}, None)
    except SaodError:
        return None


def _read(case: UseCase, train: bool, raw: SourceFiles, stage: Stage) -> Found:
    """What the files say; their stamps are taken before they are read, so that a change meanwhile is noticed later."""
    stamps = {name: raw.stamp(name) for name in sources.all_inputs(case, train)}
    product = manifests.build(case, train, stage("reading annotations"))
    tables = manifests.parsed(product.files)
    _refuse_empty(case, tables)
    absent = [] if train or case.splits.train is None else ["train is not there: only training needs it."]
    inputs = Inputs(declaration=case.digest(), train=train, stamps=stamps, remarks=[*absent, *product.remarks])
    return Found(inputs, tables, product)


def _check_images(folder: Folder, tables: dict[str, Manifest], stage: Stage) -> list[str]:
    remarks = []
    for source, manifest in tables.items():
        try:
            images.check(folder, manifest.images["file_name"].to_list(), source, stage(f"checking images of {source}"))
        except SaodError as error:
            if source != "train":
                raise
            remarks.append(f"train cannot be used for training yet: {error}")
    return remarks


def _refuse_missing(case: UseCase, raw: SourceFiles) -> None:
    if not raw.folder.exists(""):
        raise SaodError(f"There is no folder {case.root}: make it, or give --data DIR.")
    missing = [
        raw.folder.shown(name)
        for key, source in case.sources().items()
        if key != "train"
        for name in _looked_for(source)
        if not raw.folder.exists(name)
    ]
    if missing:
        raise SaodError(
            f"There is no {some(dict.fromkeys(missing))}: `{case.command('status')}` says where to get what is missing."
        )


def _refuse_empty(case: UseCase, tables: dict[str, Manifest]) -> None:
    for key in case.sources():
        if key != "train" and not _table(key, tables).images.height:
            raise SaodError(f"No image of {key} qualifies: check that its files belong to '{case.name}'.")
    if not tables["val"].objects.height:
        raise SaodError("val has no objects, so that no threshold could be fitted: give val annotated images.")


def _table(key: str, tables: dict[str, Manifest]) -> Manifest:
    """The manifest of train, val, id or ood/SUBSET."""
    source, _, subset = key.partition("/")
    manifest = tables[source]
    if not subset:
        return manifest
    return Manifest(manifest.images.filter(subset=subset), manifest.objects.head(0))


def _counts(built: Built) -> dict[str, tuple[int, int | None]]:
    """Images and objects by source; objects of OOD images are none of the benchmark's."""
    tables = {source: built.manifest(source) for source in built.description().manifests}
    keys = [key for key in built.case.sources() if key.partition("/")[0] in tables]
    found = {key: _table(key, tables) for key in keys}
    return {key: (each.images.height, None if "/" in key else each.objects.height) for key, each in found.items()}


def _is_there(source: Source, raw: SourceFiles) -> bool:
    return all(raw.folder.exists(name) for name in _looked_for(source))


def _looked_for(source: Source) -> list[str]:
    """The files that are read, and the folders that images lie below."""
    folders = [part.images.rstrip("/") for part in source.parts if part.images]
    return list(dict.fromkeys([*(name.rstrip("/") for name in sources.inputs(source)), *folders]))
