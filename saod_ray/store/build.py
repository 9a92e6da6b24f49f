"""Build the manifests of a use case from raw downloads (`data build`), and report their state (`data status`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from saod_ray.config import Source, UseCase
from saod_ray.data import images, sources
from saod_ray.data.manifest import Manifest
from saod_ray.data.source_files import Progress, SourceFiles
from saod_ray.errors import SaodError, join_truncated
from saod_ray.files import Folder
from saod_ray.store import manifests
from saod_ray.store.manifests import BuildInputs, ManifestBundle, ManifestCache

Stage = Callable[[str], Progress]  # from the title of a stage to its progress callback


@dataclass(frozen=True)
class SourceStatus:
    """One source of a use case: the files it needs, whether they exist, and how many images a build found in it."""

    source: str
    name: str
    page: str
    licence: str
    note: str
    looked_for: dict[str, bool]  # path → whether it exists
    is_there: bool
    published: int | None
    published_objects: str
    images: int | None
    objects: int | None


@dataclass(frozen=True)
class UseCaseStatus:
    """The sources of a use case, and whether its manifests were built from the files as they are now."""

    use_case: str
    root: str
    built: str  # yes, no, stale, damaged
    manifests: str
    build_command: str
    sources: list[SourceStatus]


def use_case_status(case: UseCase) -> UseCaseStatus:
    """The state of a use case. Reads the manifests only, not the raw files."""
    cache = ManifestCache(case)
    state = "no" if cache.inputs() is None else "yes" if cache.is_fresh() else "stale"
    counts: dict[str, tuple[int, int | None]] = {}
    if state == "yes":
        try:
            counts = _counts(cache)
        except SaodError:
            state = "damaged"
    folder = Folder(case.root)
    statuses = [_source_status(key, source, folder, counts) for key, source in case.sources().items()]
    return UseCaseStatus(case.name, case.root, state, cache.folder.uri, case.command("build"), statuses)


def _source_status(key: str, source: Source, folder: Folder, counts: dict[str, tuple[int, int | None]]) -> SourceStatus:
    looked_for = {folder.display_path(name): folder.exists(name) for name in _required_paths(source)}
    image_count, object_count = counts.get(key, (None, None))
    about = source.about
    return SourceStatus(
        source=key,
        name=about.name or key,
        page=about.page,
        licence=about.licence,
        note=about.note,
        looked_for=looked_for,
        is_there=all(looked_for.values()),
        published=about.images,
        published_objects=about.objects,
        images=image_count,
        objects=object_count,
    )


class BuildResult(NamedTuple):
    """The tables of a use case; `bundle` is None if they are written already."""

    inputs: BuildInputs
    tables: dict[str, Manifest]
    bundle: ManifestBundle | None


def build_manifests(case: UseCase, stage: Stage, checked: bool = True) -> list[str]:
    """Write the manifests of a use case unless they exist and are fresh; returns remarks.

    Args:
        case: The use case.
        stage: Called with the title of each stage; returns its progress callback.
        checked: Check that every image file exists.

    Raises:
        SaodError: A download is incomplete, or an image is missing.
    """
    raw = SourceFiles(case.root)
    refuse_missing(case)
    cache = ManifestCache(case)
    train = case.splits.train is not None and _exists(case.splits.train, raw)
    with cache.folder.lock("build"):  # before reading, so that a read-only folder is noticed at once
        result = _cached_result(cache, train) or _read_sources(case, train, raw, stage)
        remarks = [*result.inputs.remarks]
        if checked:
            remarks += _check_images(raw.folder, result.tables, stage)
        if result.bundle is not None:
            cache.write(result.bundle.description, result.bundle.files, result.inputs)
    return remarks


def _cached_result(cache: ManifestCache, train: bool) -> BuildResult | None:
    """The manifests that were built from the files as they are now; None if there are none, or they are damaged."""
    inputs = cache.inputs()
    if inputs is None or inputs.train != train or not cache.is_fresh():
        return None
    try:
        return BuildResult(inputs, {source: cache.manifest(source) for source in cache.description().manifests}, None)
    except SaodError:
        return None


def _read_sources(case: UseCase, train: bool, raw: SourceFiles, stage: Stage) -> BuildResult:
    """Read the raw files. Their stamps are taken first, so that a change during the build makes it stale."""
    stamps = {name: raw.stamp(name) for name in sources.all_inputs(case, train)}
    bundle = manifests.bundle_manifests(case, train, stage("reading annotations"))
    tables = manifests.parse_manifests(bundle.files)
    _refuse_empty(case, tables)
    absent = [] if train or case.splits.train is None else ["train is not there: only training needs it."]
    inputs = BuildInputs(declaration=case.digest(), train=train, stamps=stamps, remarks=[*absent, *bundle.remarks])
    return BuildResult(inputs, tables, bundle)


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


def refuse_missing(case: UseCase, *, with_images: bool = True) -> None:
    """Raise SaodError if files of a use case do not exist; it names the command that says where to get them.

    Those of train are not needed. Without `with_images` only the annotations are.
    """
    folder = Folder(case.root)
    status = f"`{case.command('status')}` says where to get"
    if not folder.exists(""):
        raise SaodError(f"There is no folder {case.root}: {status} the data; or give --data DIR.")
    names = [
        name
        for key, source in case.sources().items()
        if key != "train"
        for name in (_required_paths(source) if with_images else _input_paths(source))
    ]
    missing = [folder.display_path(name) for name in dict.fromkeys(names) if not folder.exists(name)]
    if missing:
        raise SaodError(f"There is no {join_truncated(missing)}: {status} what is missing.")


def _refuse_empty(case: UseCase, tables: dict[str, Manifest]) -> None:
    for key in case.sources():
        if key != "train" and not _table(key, tables).images.height:
            raise SaodError(f"No image of {key} qualifies: check that its files belong to '{case.name}'.")
    if not tables["val"].objects.height:
        raise SaodError("val has no objects, so no threshold can be fitted: give val annotated images.")


def _table(key: str, tables: dict[str, Manifest]) -> Manifest:
    """The manifest of train, val, id or ood/SUBSET."""
    source, _, subset = key.partition("/")
    manifest = tables[source]
    if not subset:
        return manifest
    return Manifest(manifest.images.filter(subset=subset), manifest.objects.head(0))


def _counts(cache: ManifestCache) -> dict[str, tuple[int, int | None]]:
    """Numbers of images and objects by source. OOD images have no objects that count."""
    tables = {source: cache.manifest(source) for source in cache.description().manifests}
    keys = [key for key in cache.case.sources() if key.partition("/")[0] in tables]
    by_key = {key: _table(key, tables) for key in keys}
    return {key: (table.images.height, None if "/" in key else table.objects.height) for key, table in by_key.items()}


def _exists(source: Source, raw: SourceFiles) -> bool:
    return all(raw.folder.exists(name) for name in _required_paths(source))


def _required_paths(source: Source) -> list[str]:
    """The files that are read, and the folders that hold the images."""
    folders = [part.images.rstrip("/") for part in source.parts if part.images]
    return list(dict.fromkeys([*_input_paths(source), *folders]))


def _input_paths(source: Source) -> list[str]:
    return [name.rstrip("/") for name in sources.inputs(source)]
