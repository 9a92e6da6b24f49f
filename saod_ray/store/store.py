"""A store: the manifests of a use case, the shards of detectors, the ledger, and a cache that is safe to delete.

use-case.json                      name, version, classes, splits, digests
manifest/SOURCE.{images,objects}.parquet
detections/DETECTOR/SPLIT/NAME.parquet
ledger/DETECTOR/SPLIT/UNIT.json
cache/                             intermediate results of scoring
selfaware/DETECTOR.json            u, v and the calibrators
results.json
experiments/NAME.json              outcomes of the paper's experiments
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from saod_ray.config import UseCase
from saod_ray.errors import SaodError, ShardGoneError, did_you_mean, join_truncated
from saod_ray.files import Folder
from saod_ray.splits import SplitName, split_names, val_shift
from saod_ray.store import ledger, manifests, records, rows
from saod_ray.store.cache import Cache
from saod_ray.store.ledger import Page, Shard
from saod_ray.store.manifests import Description, ManifestCache
from saod_ray.store.nearby import MARKER, no_store
from saod_ray.store.rows import Rows
from saod_ray.store.units import is_of_run, superseded

if TYPE_CHECKING:
    import polars as pl

    from saod_ray.data.manifest import Manifest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


class RunSettings(msgspec.Struct, frozen=True):
    """The settings of a run that are read again."""

    seed: int | None = None


class LastRun(msgspec.Struct, frozen=True):
    """The part of run.json that is read again; the engine's journal writes more into it."""

    settings: RunSettings = RunSettings()
    commit: str | None = None
    updated: str | None = None  # date and time, UTC
    command_args: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict, name="typed")
    """Detector → --use-case and --detectors on the command line."""
    detectors: dict[str, dict[str, float]] = {}  # detector → counts and rates


class Store:
    """A folder or URI with detections of one use case."""

    def __init__(self, uri: str) -> None:
        self.folder = Folder(uri)
        self.uri = uri
        self.cache = Cache(self.folder)

    def snapshot(self) -> StoreSnapshot:
        """This store with its ledger frozen as it is now."""
        return StoreSnapshot(self.uri)

    # the use case -------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, uri: str | Path) -> Store:
        """Open an existing store; SaodError says what the path is instead, and names the command that creates a store."""
        uri = str(uri)
        if "://" not in uri and Path(uri).is_file():
            raise no_store(uri)
        store = cls(uri)
        if not store.folder.exists(MARKER):
            raise no_store(uri)
        return store

    @property
    def absolute(self) -> str:
        """The URI or absolute path, for processes with another working directory."""
        return self.uri if "://" in self.uri else str(Path(self.uri).resolve())

    def identity(self) -> str:
        """A digest that differs between stores which have the same path on different machines."""
        return hashlib.sha256(self.folder.read("use-case.json")).hexdigest()

    @classmethod
    def open_or_create(cls, uri: str, case: UseCase) -> Store:
        """The store of a use case, which is created if it does not exist.

        SaodError if it has detections of another use case.
        """
        cache = ManifestCache(case)
        is_fresh = cache.is_fresh()
        digests = cache.description().annotations if is_fresh else manifests.input_digests(case)
        store = cls(uri)
        if store._holds(case, digests):
            return store
        description, files = cache.for_store() if is_fresh else manifests.bundle_manifests(case)[:2]
        with store.folder.lock("use-case"):
            store = cls(uri)
            if not store._holds(case, digests):  # another process may have created it meanwhile
                for name, content in files.items():
                    store.folder.put(name, content)
                records.write(store.folder, "use-case.json", description)
        return cls(uri)

    def _holds(self, case: UseCase, digests: dict[str, str]) -> bool:
        """Whether the store has this use case; SaodError if it has detections of another."""
        if not self.folder.exists("use-case.json"):
            return False
        current = self.description
        if (current.declaration, current.annotations) == (case.digest(), digests):
            return True
        if self.detectors():
            difference = "other annotations" if current.declaration == case.digest() else "another use case file"
            raise SaodError(
                f"{self.uri} has detections of '{current.name}' version {current.version}, made with {difference} than "
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
        return split_names(self.description.severities, has_ood=bool(self.description.subsets))

    @cached_property
    def val_shift(self) -> list[str]:
        """The splits that a detector may have in addition: corrupted copies of val."""
        return val_shift(self.description.severities)

    def extra_splits(self, detector: str) -> list[str]:
        """The splits of `val_shift` on which the detector has detections."""
        return [split for split in self.val_shift if self.folder.list(f"ledger/{detector}/{split}")]

    def manifest(self, source: str) -> Manifest:
        """The images and objects of val, id or ood."""
        expected = self.description.manifests[source]
        return manifests.read_manifest(self.folder, source, expected, "import into another store")

    def import_command(self, detector: str, split: str, file: str = "FILE.json") -> str:
        """The command that imports detections into this store."""
        place = f"saod-ray import {quote(self.uri)} --use-case FILE"
        return f"{place} --detector {detector} --split {split} --detections {quote(file)}"

    def run_command(self, detector: str, split: str) -> str:
        """The command that runs a detector on the missing images of a split."""
        case, detectors = self.last_run().command_args.get(detector, (self.description.name, detector))
        place = f"saod-ray run --use-case {quote(case)} --detectors {quote(detectors)}"
        return f"{place} --store {quote(self.uri)}" + " --with-val-shift" * (split in self.val_shift)

    def last_run(self) -> LastRun:
        """The record of the last run; empty if there is none, or if it cannot be read."""
        try:
            return msgspec.json.decode(self.folder.read("run.json"), type=LastRun)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return LastRun()

    def completion_command(self, detector: str, split: str) -> str:
        """The command that adds the missing images of a split: a run if the detector was run, else an import."""
        if self.was_run(detector):
            return self.run_command(detector, split)
        return self.import_command(detector, split)

    def was_run(self, detector: str) -> bool:
        """Whether runs wrote detections of the detector. Only names of pages are read, which may be damaged."""
        names = [name for split in self.splits for name in self.folder.list(f"ledger/{detector}/{split}")]
        return any(is_of_run(name.removesuffix(".json")) for name in names)

    def images(self, split: str, unit: str) -> pl.DataFrame:
        """The images of a split, or of the OOD subset `unit`; SaodError if their source ids are not unique."""
        images = self.manifest(SplitName(split).source).images
        if unit != "all":
            images = images.filter(subset=unit)
        if images["source_id"].n_unique() < images.height:
            options = join_truncated([f"ood/{name}" for name in self.description.subsets], 9)
            raise SaodError(f"The OOD subsets share image ids: take them one by one, with --split {options}.")
        return images

    # detectors and shards -----------------------------------------------------------------------------------

    def detectors(self) -> list[str]:
        """The detectors that have detections in this store."""
        names = self.folder.list("ledger", folders=True)
        return [name for name in names if any(self.folder.list(f"ledger/{name}/{split}") for split in self.splits)]

    def choose(self, names: Sequence[str] | None) -> list[str]:
        """These detectors, or all, sorted; SaodError for unknown names."""
        present = self.detectors()
        if not present:
            raise SaodError(
                f"{self.uri} has no detections yet: add some with `saod-ray run --store {quote(self.uri)}` or "
                f"`saod-ray import {quote(self.uri)} …`."
            )
        for name in names or ():
            if name not in present:
                raise SaodError(
                    f"{self.uri} has no detector '{name}'{did_you_mean(name, present)}: it has {join_truncated(present)}."
                )
        return sorted(set(names)) if names else present

    def pages(self, detector: str, split: str) -> list[Page]:
        """The ledger pages of a detector's split, without superseded ones."""
        pages = ledger.pages(self.folder, detector, split)
        superseded_units = {page.unit for page in superseded(pages)}
        return [page for page in pages if page.unit not in superseded_units]

    def shards(self, detector: str, split: str) -> list[Shard]:
        """The shards of a detector's split, ordered by name."""
        shards = [shard for page in self.pages(detector, split) for shard in page.shards]
        return sorted(shards, key=lambda shard: shard.name)

    def content_digests(self, detector: str) -> list[str]:
        """Digests of the ground truth and of the detector's shards by split, which cache keys are made of."""
        digests = list(self.description.manifests.values())
        for split in self.splits:
            digests += [split, *(shard.sha256 for shard in self.shards(detector, split))]
        return digests

    def shard_file(self, detector: str, split: str, name: str) -> str:
        """The path of a shard, relative to the store."""
        return f"detections/{detector}/{split}/{name}.parquet"

    def read_shard(self, detector: str, split: str, shard: Shard, columns: Sequence[str] | None = None) -> Rows:
        """The rows of a shard; with `columns`, only these list columns. SaodError if it is damaged or gone."""
        file = self.shard_file(detector, split, shard.name)
        where = self.folder.display_path(file)
        try:
            with self.folder.open(file) as source:
                return rows.read(source, where, shard.footer, columns)
        except FileNotFoundError as error:
            raise ShardGoneError(
                f"The shard {where} is gone: `saod-ray verify {self.uri}` says how to repair it."
            ) from error

    def remove_unlisted(self, detector: str, split: str) -> None:
        """Delete the split's shards that no page lists. The caller holds the split's write lock."""
        for name in self.unlisted(detector, split):
            self.folder.delete(self.shard_file(detector, split, name))

    def unlisted(self, detector: str, split: str) -> list[str]:
        """The names of shard files that no page lists."""
        listed = {shard.name for shard in self.shards(detector, split)}
        names = [file.removesuffix(".parquet") for file in self.folder.list(f"detections/{detector}/{split}")]
        return [name for name in names if name not in listed]

    def write_shard(self, detector: str, split: str, name: str, content: Rows) -> Shard:
        """Write a shard atomically and return its ledger entry."""
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


class StoreSnapshot(Store):
    """A store whose ledger is read only once, so that it does not change during a scoring."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._pages: dict[tuple[str, str], list[Page]] = {}

    def pages(self, detector: str, split: str) -> list[Page]:
        """The ledger pages of a detector's split, as they were when they were first read."""
        if (detector, split) not in self._pages:
            self._pages[detector, split] = super().pages(detector, split)
        return self._pages[detector, split]


def check_name(detector: str) -> None:
    """Raise SaodError if a detector's name is not a plain file name."""
    if not _NAME.fullmatch(detector):
        raise SaodError(f"'{detector}' is not a detector name: use letters, digits and . _ + -.")


def check_split(split: str, valid_splits: Sequence[str], subsets: Sequence[str]) -> tuple[str, str]:
    """Parse a split on the command line (`id`, `ood`, `ood/svhn`) into (split, unit).

    The unit is an OOD subset, or `all`. SaodError for a split or subset that does not exist.

    >>> check_split("ood/svhn", ["val", "ood"], ["svhn"])
    ('ood', 'svhn')
    """
    name, _, subset = split.partition("/")
    if name not in valid_splits:
        hint = did_you_mean(name, valid_splits)
        raise SaodError(f"'{split}' is not a split{hint}: use {join_truncated(valid_splits, 9)}.")
    if subset and (SplitName(name).source != "ood" or subset not in subsets):
        raise SaodError(f"'{split}' is not a split: the OOD subsets are {join_truncated(subsets, 9)}.")
    return name, subset or "all"
