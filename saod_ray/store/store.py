"""A store: a use case's manifests, the detectors' shards, the ledger and a cache that is safe to delete.

use-case.json                      name, version, classes, splits, digests
manifest/SOURCE.{images,objects}.parquet
detections/DETECTOR/SPLIT/NAME.parquet
ledger/DETECTOR/SPLIT/UNIT.json
cache/                             what scoring need not compute twice
selfaware/DETECTOR.json            u, v and the calibrators
results.json
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from functools import cached_property
from shlex import quote
from typing import TYPE_CHECKING

import pyarrow as pa

from saod_ray.config import UseCase, source_of, split_names
from saod_ray.errors import SaodError, did_you_mean, some
from saod_ray.store import ledger, records, rows
from saod_ray.store.cache import Cache
from saod_ray.store.files import Folder
from saod_ray.store.ledger import Page, Shard
from saod_ray.store.records import Record
from saod_ray.store.rows import Rows

if TYPE_CHECKING:
    import polars as pl

    from saod_ray.data.manifest import Manifest

PARTS = ("images", "objects")  # of a manifest
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


class Description(Record, frozen=True):
    """`use-case.json`: what the store's detections are detections of."""

    name: str
    version: int
    declaration: str
    classes: list[str]
    category_ids: list[int]
    severities: list[int]
    subsets: list[str]
    annotations: dict[str, str]
    manifests: dict[str, str]


class Store:
    """A folder or URI with detections of one use case."""

    def __init__(self, uri: str) -> None:
        self.folder = Folder(uri)
        self.uri = uri
        self.cache = Cache(self.folder)

    def snapshot(self) -> Snapshot:
        """This store with its ledger as it is now."""
        return Snapshot(self.uri)

    # the use case -------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, uri: str) -> Store:
        """A store that is there; an error names the command that makes one."""
        store = cls(uri)
        if not store.folder.exists("use-case.json"):
            raise SaodError(f"There is no store at {uri}: make one with `saod-ray import {uri} --use-case FILE …`.")
        return store

    @classmethod
    def of_use_case(cls, uri: str, case: UseCase) -> Store:
        """The store of this use case, made when it is not there and refused when it holds another."""
        from saod_ray.data import coco

        subsets = [subset.annotations for subset in case.splits.ood if subset.annotations is not None]
        names = [case.splits.val.annotations, case.splits.id.annotations, *subsets]
        data = {name: coco.read_bytes(case.root, name) for name in names}
        digests = {name: hashlib.sha256(data[name]).hexdigest() for name in names}
        store = cls(uri)
        if store._holds(case, digests):
            return store
        description, files = _described(case, data, digests)
        with store.folder.lock("use-case"):
            store = cls(uri)
            if not store._holds(case, digests):  # another import may have been faster
                for name, content in files.items():
                    store.folder.put(name, content)
                records.write(store.folder, "use-case.json", description)
        return cls(uri)

    def _holds(self, case: UseCase, digests: dict[str, str]) -> bool:
        """Whether the store is of this use case already; refused when detections of another depend on it."""
        if not self.folder.exists("use-case.json"):
            return False
        known = self.description
        if (known.declaration, known.annotations) == (case.digest(), digests):
            return True
        if self.detectors():
            what = "other annotations" if known.declaration == case.digest() else "another use case file"
            raise SaodError(
                f"{self.uri} holds detections of '{known.name}' version {known.version}, made with {what} than "
                f"'{case.name}' version {case.version} has now: use another store."
            )
        return False

    @cached_property
    def description(self) -> Description:
        """The store's use case."""
        return records.read(self.folder, "use-case.json", Description, "import into another store")

    @cached_property
    def splits(self) -> list[str]:
        """The splits that a complete detector has."""
        return split_names(tuple(self.description.severities), bool(self.description.subsets))

    def manifest(self, source: str) -> Manifest:
        """The images and objects of val, id or ood."""
        import polars as pl

        from saod_ray.data.manifest import Manifest

        names = [manifest_file(source, part) for part in PARTS]
        try:
            data = [self.folder.read(name) for name in names]
        except FileNotFoundError:
            data = []
        if _digest(*data) != self.description.manifests[source]:
            raise SaodError(f"{self.uri}/{names[0]} or {names[1]} is damaged or gone: import into another store.")
        return Manifest(*(pl.read_parquet(each) for each in data))

    def import_command(self, detector: str, split: str, file: str = "FILE.json") -> str:
        """What to type so that this store has these detections."""
        place = f"saod-ray import {quote(self.uri)} --use-case FILE"
        return f"{place} --detector {detector} --split {split} --detections {quote(file)}"

    def images(self, split: str, unit: str) -> pl.DataFrame:
        """The images of a split or OOD subset, by ids that are unique among them."""
        images = self.manifest(source_of(split)).images
        if unit != "all":
            images = images.filter(subset=unit)
        if images["source_id"].n_unique() < images.height:
            options = some([f"ood/{name}" for name in self.description.subsets], 9)
            raise SaodError(f"The OOD subsets share image ids: take them one by one, with --split {options}.")
        return images

    # detectors and shards -----------------------------------------------------------------------------------

    def detectors(self) -> list[str]:
        """The detectors that have detections here."""
        names = self.folder.list("ledger", folders=True)
        return [name for name in names if any(self.folder.list(f"ledger/{name}/{split}") for split in self.splits)]

    def choose(self, names: Sequence[str] | None) -> list[str]:
        """These detectors, or all; unknown names are refused."""
        known = self.detectors()
        if not known:
            raise SaodError(f"{self.uri} has no detections yet: add some with `saod-ray import {self.uri} …`.")
        for name in names or ():
            if name not in known:
                raise SaodError(
                    f"{self.uri} has no detector '{name}'{did_you_mean(name, known)}: it has {some(known)}."
                )
        return sorted(set(names)) if names else known

    def pages(self, detector: str, split: str) -> list[Page]:
        """The ledger of a detector's split."""
        return ledger.pages(self.folder, detector, split)

    def shards(self, detector: str, split: str) -> list[Shard]:
        """The shards of a detector's split, in an order that depends on nothing but their names."""
        found = [shard for page in self.pages(detector, split) for shard in page.shards]
        return sorted(found, key=lambda shard: shard.name)

    def shard_file(self, detector: str, split: str, name: str) -> str:
        """Where a shard lies, relative to the store."""
        return f"detections/{detector}/{split}/{name}.parquet"

    def read_shard(self, detector: str, split: str, shard: Shard, columns: Sequence[str] | None = None) -> Rows:
        """A shard's rows, or some of its list columns."""
        file = self.shard_file(detector, split, shard.name)
        where = f"{self.uri.rstrip('/')}/{file}"
        try:
            with self.folder.open(file) as source:
                return rows.read(source, where, shard.footer, columns)
        except FileNotFoundError:
            raise SaodError(f"The shard {where} is gone: `saod-ray verify {self.uri}` says how to repair it.") from None

    def remove_unlisted(self, detector: str, split: str) -> None:
        """Delete the split's shards that no page lists. Only for who holds the right to write it."""
        for name in self.unlisted(detector, split):
            self.folder.delete(self.shard_file(detector, split, name))

    def unlisted(self, detector: str, split: str) -> list[str]:
        """The names of shards that lie there without a page that lists them."""
        listed = {shard.name for shard in self.shards(detector, split)}
        names = [file.removesuffix(".parquet") for file in self.folder.list(f"detections/{detector}/{split}")]
        return [name for name in names if name not in listed]

    def write_shard(self, detector: str, split: str, name: str, content: Rows) -> Shard:
        """Commit a shard and return its ledger entry."""
        data = content.to_parquet()
        self.folder.put(self.shard_file(detector, split, name), data)
        return Shard(
            name=name,
            sha256=hashlib.sha256(data).hexdigest(),
            footer=rows.footer_digest(pa.BufferReader(data)),
            bytes=data.size,
            images=len(content.image_id),
            detections=content.detections,
            empty=content.empty(),
            failed=content.failed(),
        )


def _described(case: UseCase, data: dict[str, bytes], digests: dict[str, str]) -> tuple[Description, dict[str, bytes]]:
    """What a store says of its use case, and the manifests' files; nothing is written."""
    from saod_ray.data import coco

    val, test = case.splits.val, case.splits.id
    val_file = coco.parse(data[val.annotations], val.annotations)
    classes = coco.classes_of(case, val_file)
    id_file = coco.parse(data[test.annotations], test.annotations)
    chosen = case.classes is not None
    manifests = {
        "val": coco.manifest(val_file, val.images, classes, val.annotations, chosen),
        "id": coco.manifest(id_file, test.images, classes, test.annotations, chosen),
        "ood": coco.ood_manifest(case, data),
    }
    files = {}
    for source, manifest in manifests.items():
        for part, table in (("images", manifest.images), ("objects", manifest.objects)):
            sink = io.BytesIO()
            table.write_parquet(sink, compression="zstd")
            files[manifest_file(source, part)] = sink.getvalue()
    description = Description(
        name=case.name,
        version=case.version,
        declaration=case.digest(),
        classes=list(classes.names),
        category_ids=list(classes.category_ids),
        severities=sorted(set(test.severities)),
        subsets=[subset.name for subset in case.splits.ood],
        annotations=digests,
        manifests={source: _digest(*(files[manifest_file(source, part)] for part in PARTS)) for source in manifests},
    )
    return description, files


def manifest_file(source: str, part: str) -> str:
    """Where a manifest's table lies."""
    return f"manifest/{source}.{part}.parquet"


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


class Snapshot(Store):
    """A store whose ledger is read once: what a scoring looks at does not change under it."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._pages: dict[tuple[str, str], list[Page]] = {}

    def pages(self, detector: str, split: str) -> list[Page]:
        """The ledger of a detector's split, as it was when it was first asked for."""
        if (detector, split) not in self._pages:
            self._pages[detector, split] = super().pages(detector, split)
        return self._pages[detector, split]


def check_name(detector: str) -> None:
    """Refuse a detector name that is not a plain file name."""
    if not _NAME.fullmatch(detector):
        raise SaodError(f"'{detector}' is not a detector name: use letters, digits and . _ + -.")


def check_split(split: str, known: Sequence[str], subsets: Sequence[str]) -> tuple[str, str]:
    """A split as typed (`id`, `ood`, `ood/svhn`) → (split, unit): the unit is an OOD subset, or `all`.

    >>> check_split("ood/svhn", ["val", "ood"], ["svhn"])
    ('ood', 'svhn')
    """
    name, _, subset = split.partition("/")
    if name not in known:
        raise SaodError(f"'{split}' is not a split{did_you_mean(name, known)}: use {some(known, 9)}.")
    if subset and (source_of(name) != "ood" or subset not in subsets):
        raise SaodError(f"'{split}' is not a split: the OOD subsets are {some(subsets, 9)}.")
    return name, subset or "all"
