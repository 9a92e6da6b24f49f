"""A use case's manifests as files: built once next to the raw data, copied into every store of the use case.

ROOT/manifests/NAME/use-case.json       name, classes, splits and digests, as in a store
ROOT/manifests/NAME/manifest/…          the tables
ROOT/manifests/NAME/inputs.json         size and time of the raw files; written last, so that a build is complete or absent
"""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from saod_ray.config import UseCase
from saod_ray.errors import SaodError
from saod_ray.files import Folder
from saod_ray.store import records
from saod_ray.store.records import Record

if TYPE_CHECKING:
    from saod_ray.data.manifest import Manifest
    from saod_ray.data.source_files import Progress


class Description(Record, frozen=True):
    """`use-case.json`: the use case of a store.

    `declaration` is the digest of the use case file, `annotations` has those of the files it names, and `manifests` those of
    the manifests.
    """

    name: str
    version: int
    declaration: str
    classes: list[str]
    category_ids: list[int]
    severities: list[int]
    subsets: list[str]
    annotations: dict[str, str]
    manifests: dict[str, str]


class BuildInputs(Record, frozen=True):
    """`inputs.json`: size and time of the raw files that the manifests were built from."""

    declaration: str
    train: bool
    stamps: dict[str, str]
    remarks: list[str]


class ManifestCache:
    """The manifests that `saod-ray data build` writes for a use case."""

    def __init__(self, case: UseCase) -> None:
        self.case = case
        self.folder = Folder(case.root).below(f"manifests/{_folder_name(case.name)}")
        self._remedy = f"build it again with `{case.command('build')}`"

    def inputs(self) -> BuildInputs | None:
        """The files that the manifests were built from; None if there is no complete build."""
        try:
            return records.read(self.folder, "inputs.json", BuildInputs, "build the use case again")
        except (FileNotFoundError, SaodError):
            return None

    def is_fresh(self) -> bool:
        """Whether the manifests were built from this use case file and from the raw files as they are now."""
        from saod_ray.data.source_files import SourceFiles

        inputs = self.inputs()
        if inputs is None or inputs.declaration != self.case.digest():
            return False
        raw = SourceFiles(self.case.root)
        return all(stamp and raw.stamp(name) == stamp for name, stamp in inputs.stamps.items())

    def description(self) -> Description:
        """The use case that the manifests belong to."""
        try:
            return records.read(self.folder, "use-case.json", Description, self._remedy)
        except FileNotFoundError as error:
            raise SaodError(f"{self.folder.display_path('use-case.json')} is missing: {self._remedy}.") from error

    def for_store(self) -> tuple[Description, dict[str, bytes]]:
        """The description and the manifest files that a store gets: those of all sources except train."""
        description = self.description()
        digests = {source: value for source, value in description.manifests.items() if source != "train"}
        files: dict[str, bytes] = {}
        for source, expected in digests.items():
            data = _read_files(self.folder, source, expected, self._remedy)
            files.update(zip(manifest_files(source), data, strict=True))
        return msgspec.structs.replace(description, manifests=digests), files

    def manifest(self, source: str) -> Manifest:
        """The images and objects of train, val, id or ood."""
        return read_manifest(self.folder, source, self.description().manifests[source], self._remedy)

    def write(self, description: Description, files: dict[str, bytes], inputs: BuildInputs) -> None:
        """Commit a build; the caller holds the lock. `inputs.json` is deleted first and written last."""
        self.folder.sweep()
        self.folder.delete("inputs.json")
        for name, data in files.items():
            self.folder.put(name, data)
        records.write(self.folder, "use-case.json", description)
        records.write(self.folder, "inputs.json", inputs)


class ManifestBundle(NamedTuple):
    """The description of a use case, the bytes of its manifest files by name, and remarks for the user."""

    description: Description
    files: dict[str, bytes]
    remarks: list[str]


def bundle_manifests(case: UseCase, train: bool = False, progress: Progress | None = None) -> ManifestBundle:
    """Read a use case's sources into manifests. Nothing is written."""
    from saod_ray.data import sources

    parsed = sources.read(case, train, progress)
    files = {}
    for source, manifest in parsed.manifests.items():
        for name, table in zip(manifest_files(source), (manifest.images, manifest.objects), strict=True):
            sink = io.BytesIO()
            table.write_parquet(sink, compression="zstd")
            files[name] = sink.getvalue()
    description = Description(
        name=case.name,
        version=case.version,
        declaration=case.digest(),
        classes=list(parsed.classes.names),
        category_ids=list(parsed.classes.category_ids),
        severities=sorted(set(case.splits.id.severities)),
        subsets=[subset.name for subset in case.splits.ood],
        annotations=parsed.digests,
        manifests={name: digest(*(files[file] for file in manifest_files(name))) for name in parsed.manifests},
    )
    return ManifestBundle(description, files, parsed.remarks)


def parse_manifests(files: dict[str, bytes]) -> dict[str, Manifest]:
    """The manifests of a build's files, by source."""
    names = dict.fromkeys(name.split("/")[-1].split(".")[0] for name in files)
    return {source: _tables([files[name] for name in manifest_files(source)]) for source in names}


def input_digests(case: UseCase) -> dict[str, str]:
    """The digest of every file and folder listing that the manifests are built from, except those of train."""
    from saod_ray.data.source_files import SourceFiles
    from saod_ray.data.sources import all_inputs

    raw = SourceFiles(case.root)
    names = all_inputs(case)
    if case.made_by and not all(raw.stamp(name) for name in names):
        raise SaodError(f"'{case.name}' has no images in {case.root} yet: run `{case.command('build')}`.")
    return {name: raw.digest(name) for name in names}


def read_manifest(folder: Folder, source: str, expected: str, remedy: str) -> Manifest:
    """Read a manifest; SaodError if its files do not have the expected digest. `remedy` says what to do then."""
    return _tables(_read_files(folder, source, expected, remedy))


def _read_files(folder: Folder, source: str, expected: str, remedy: str) -> list[bytes]:
    images, objects = manifest_files(source)
    try:
        data = [folder.read(images), folder.read(objects)]
    except FileNotFoundError:
        data = []
    if digest(*data) != expected:
        raise SaodError(f"{folder.display_path(images)} or {objects} is damaged or missing: {remedy}.")
    return data


def _tables(data: list[bytes]) -> Manifest:
    import polars as pl

    from saod_ray.data.manifest import Manifest

    return Manifest(*(pl.read_parquet(content) for content in data))


def _folder_name(name: str) -> str:
    """A use case's name as a folder name.

    >>> _folder_name("my bench v1.2"), _folder_name("../a/b")
    ('my bench v1.2', '%2E.%2Fa%2Fb')
    """
    safe = "".join(c if c.isalnum() or c in " .+-_" else f"%{ord(c):02X}" for c in name)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe


def manifest_files(source: str) -> list[str]:
    """The paths of a manifest's two tables, relative to the store."""
    return [f"manifest/{source}.{part}.parquet" for part in ("images", "objects")]


def digest(*parts: bytes) -> str:
    """One digest of several files."""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
