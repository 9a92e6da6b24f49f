"""A use case's manifests as files: built once beside the raw data, copied into every store of the use case.

ROOT/manifests/NAME/use-case.json       classes, splits, digests: what a store holds of its use case
ROOT/manifests/NAME/manifest/…          the tables
ROOT/manifests/NAME/inputs.json         from which files they were made; written last, so that a build is whole or absent
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
    """`use-case.json`: what a store's detections are detections of."""

    name: str
    version: int
    declaration: str
    classes: list[str]
    category_ids: list[int]
    severities: list[int]
    subsets: list[str]
    annotations: dict[str, str]
    manifests: dict[str, str]


class Inputs(Record, frozen=True):
    """`inputs.json`: size and time of the files that a build was made from."""

    declaration: str
    train: bool
    stamps: dict[str, str]
    remarks: list[str]


class Built:
    """The manifests that `saod-ray data build` writes for a use case."""

    def __init__(self, case: UseCase) -> None:
        self.case = case
        self.folder = Folder(case.root).below(f"manifests/{_folder_name(case.name)}")
        self._remedy = f"build it again with `{case.command('build')}`"

    def inputs(self) -> Inputs | None:
        """What it was built from; None when nothing (or nothing whole) is there."""
        try:
            return records.read(self.folder, "inputs.json", Inputs, "build the use case again")
        except (FileNotFoundError, SaodError):
            return None

    def is_fresh(self) -> bool:
        """Whether it was built from this declaration and from the files as they are now."""
        from saod_ray.data.source_files import SourceFiles

        found = self.inputs()
        if found is None or found.declaration != self.case.digest():
            return False
        raw = SourceFiles(self.case.root)
        return all(stamp and raw.stamp(name) == stamp for name, stamp in found.stamps.items())

    def description(self) -> Description:
        """Its use case."""
        try:
            return records.read(self.folder, "use-case.json", Description, self._remedy)
        except FileNotFoundError:
            raise SaodError(f"{self.folder.shown('use-case.json')} is gone: {self._remedy}.") from None

    def of_a_store(self) -> tuple[Description, dict[str, bytes]]:
        """What a store says of its use case, and its manifests' files: all but train's."""
        description = self.description()
        kept = {source: value for source, value in description.manifests.items() if source != "train"}
        files: dict[str, bytes] = {}
        for source, expected in kept.items():
            data = _read_files(self.folder, source, expected, self._remedy)
            files.update(zip(manifest_files(source), data, strict=True))
        return msgspec.structs.replace(description, manifests=kept), files

    def manifest(self, source: str) -> Manifest:
        """The images and objects of train, val, id or ood."""
        return read_manifest(self.folder, source, self.description().manifests[source], self._remedy)

    def write(self, description: Description, files: dict[str, bytes], inputs: Inputs) -> None:
        """Commit a build: the note of its inputs goes first and comes back last. Only for who holds the lock."""
        self.folder.sweep()
        self.folder.delete("inputs.json")
        for name, data in files.items():
            self.folder.put(name, data)
        records.write(self.folder, "use-case.json", description)
        records.write(self.folder, "inputs.json", inputs)


class Product(NamedTuple):
    """What a store says of its use case, its manifests' files, and what there is to say of them."""

    description: Description
    files: dict[str, bytes]
    remarks: list[str]


def build(case: UseCase, train: bool = False, progress: Progress | None = None) -> Product:
    """Read a use case's sources; nothing is written."""
    from saod_ray.data import sources

    found = sources.read(case, train, progress)
    files = {}
    for source, manifest in found.manifests.items():
        for name, table in zip(manifest_files(source), (manifest.images, manifest.objects), strict=True):
            sink = io.BytesIO()
            table.write_parquet(sink, compression="zstd")
            files[name] = sink.getvalue()
    description = Description(
        name=case.name,
        version=case.version,
        declaration=case.digest(),
        classes=list(found.classes.names),
        category_ids=list(found.classes.category_ids),
        severities=sorted(set(case.splits.id.severities)),
        subsets=[subset.name for subset in case.splits.ood],
        annotations=found.digests,
        manifests={name: digest(*(files[file] for file in manifest_files(name))) for name in found.manifests},
    )
    return Product(description, files, found.remarks)


def parsed(files: dict[str, bytes]) -> dict[str, Manifest]:
    """The manifests of a build's files, by source."""
    names = dict.fromkeys(name.split("/")[-1].split(".")[0] for name in files)
    return {source: _tables([files[name] for name in manifest_files(source)]) for source in names}


def input_digests(case: UseCase) -> dict[str, str]:
    """The digest of every file (and folder listing) that the benchmark's manifests are made from."""
    from saod_ray.data.source_files import SourceFiles
    from saod_ray.data.sources import all_inputs

    raw = SourceFiles(case.root)
    names = all_inputs(case)
    if case.made_by and not all(raw.stamp(name) for name in names):
        raise SaodError(f"'{case.name}' is not drawn below {case.root} yet: run `{case.command('build')}`.")
    return {name: raw.digest(name) for name in names}


def read_manifest(folder: Folder, source: str, expected: str, remedy: str) -> Manifest:
    """A manifest, if its files have the digest that is expected."""
    return _tables(_read_files(folder, source, expected, remedy))


def _read_files(folder: Folder, source: str, expected: str, remedy: str) -> list[bytes]:
    images, objects = manifest_files(source)
    try:
        data = [folder.read(images), folder.read(objects)]
    except FileNotFoundError:
        data = []
    if digest(*data) != expected:
        raise SaodError(f"{folder.shown(images)} or {objects} is damaged or gone: {remedy}.")
    return data


def _tables(data: list[bytes]) -> Manifest:
    import polars as pl

    from saod_ray.data.manifest import Manifest

    return Manifest(*(pl.read_parquet(each) for each in data))


def _folder_name(name: str) -> str:
    """A use case's name as that of a folder.

    >>> _folder_name("my bench v1.2"), _folder_name("../a/b")
    ('my bench v1.2', '%2E.%2Fa%2Fb')
    """
    safe = "".join(c if c.isalnum() or c in " .+-_" else f"%{ord(c):02X}" for c in name)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe


def manifest_files(source: str) -> list[str]:
    """Where a manifest's two tables lie."""
    return [f"manifest/{source}.{part}.parquet" for part in ("images", "objects")]


def digest(*parts: bytes) -> str:
    """One digest of several files."""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
