"""`data build` and `data status`: from raw downloads to manifests on disk, and what is there of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from saod_ray.config import Source, UseCase
from saod_ray.data import images, sources
from saod_ray.data.manifest import Manifest
from saod_ray.data.raw import Progress, Raw
from saod_ray.errors import SaodError, some
from saod_ray.files import Folder
from saod_ray.store import manifests
from saod_ray.store.manifests import Built, Inputs

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
    published: int | None
    published_objects: str
    images: int | None = None
    objects: int | None = None

    @property
    def is_there(self) -> bool:
        """Whether every file and folder is there."""
        return all(self.looked_for.values())


@dataclass(frozen=True)
class Status:
    """A use case's sources, and whether its manifests are built from the files as they are now."""

    use_case: str
    root: str
    built: str  # yes, no, stale
    manifests: str
    build_command: str
    sources: list[State] = field(default_factory=list)


def status(case: UseCase) -> Status:
    """What is there of a use case; nothing is read but what was built."""
    built = Built(case)
    state = "no" if built.inputs() is None else "yes" if built.is_fresh() else "stale"
    counts = _counts(built) if state == "yes" else {}
    raw = Raw(case.root)
    found = []
    for key, source in case.sources().items():
        about = source.about
        number, objects = counts.get(key, (None, None))
        found.append(
            State(
                key,
                about.name or key,
                about.page,
                about.licence,
                about.note,
                {raw.folder.shown(name): raw.folder.exists(name) for name in _looked_for(source)},
                about.images,
                about.objects,
                number,
                objects,
            )
        )
    return Status(case.name, case.root, state, built.folder.uri, case.command("build"), found)


def build(case: UseCase, stage: Stage, checked: bool = True) -> list[str]:
    """Write a use case's manifests, unless they are there and fresh; returns remarks. Refuses half a download."""
    raw = Raw(case.root)
    _refuse_missing(case, raw)
    train = case.splits.train is not None and _is_there(case.splits.train, raw)
    remarks = [] if train or case.splits.train is None else ["train is not there: only training needs it."]
    built = Built(case)
    known = built.inputs()
    if known is None or known.train != train or not built.is_fresh():
        stamps = {name: raw.stamp(name) for name in sources.all_inputs(case, train)}
        description, files = manifests.build(case, train, stage("reading annotations"))
        tables = manifests.parsed(files)
        inputs = Inputs(declaration=case.digest(), train=train, stamps=stamps)
    else:
        description, files, inputs = None, {}, known
        tables = {source: built.manifest(source) for source in built.description().manifests}
    _refuse_empty(case, tables)
    if checked:
        remarks += _check_images(raw.folder, tables, stage)
    if description is not None:
        built.write(description, files, inputs)
    return remarks


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


def _refuse_missing(case: UseCase, raw: Raw) -> None:
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


def _table(key: str, tables: dict[str, Manifest]) -> Manifest:
    """The manifest of train, val, id or ood/SUBSET."""
    source, _, subset = key.partition("/")
    manifest = tables[source]
    if not subset:
        return manifest
    return Manifest(manifest.images.filter(subset=subset), manifest.objects.head(0))


def _counts(built: Built) -> dict[str, tuple[int, int]]:
    tables = {source: built.manifest(source) for source in built.description().manifests}
    keys = [key for key in built.case.sources() if key.partition("/")[0] in tables]
    found = {key: _table(key, tables) for key in keys}
    return {key: (table.images.height, table.objects.height) for key, table in found.items()}


def _is_there(source: Source, raw: Raw) -> bool:
    return all(raw.folder.exists(name) for name in _looked_for(source))


def _looked_for(source: Source) -> list[str]:
    """The files that are read, and the folders that images lie below."""
    folders = [part.images.rstrip("/") for part in source.parts if part.images]
    return list(dict.fromkeys([*(name.rstrip("/") for name in sources.inputs(source)), *folders]))
