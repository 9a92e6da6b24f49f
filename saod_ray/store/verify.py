"""Verify a store: every shard has the bytes that the ledger lists, and every image exists exactly once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from saod_ray.errors import SaodError, join_truncated
from saod_ray.splits import SplitName
from saod_ray.store import seals
from saod_ray.store.ledger import Page, Shard
from saod_ray.store.results_file import FILE, read_results
from saod_ray.store.store import Store
from saod_ray.store.units import RUN


@dataclass(frozen=True)
class StoreProblem:
    """A defect of a store, and the command that repairs it."""

    where: str
    what: str
    repair: str


@dataclass(frozen=True)
class VerifyReport:
    """What was read, the problems, and notes on harmless findings."""

    shards: int
    images: int
    detections: int
    problems: list[StoreProblem]
    notes: list[str]


def verify(store: Store, detectors: Sequence[str], progress: Callable[[int, int], None] | None = None) -> VerifyReport:
    """Read every byte of every shard of these detectors, and the manifests."""
    problems: list[StoreProblem] = []
    notes: list[str] = []
    jobs = [(name, split) for name in detectors for split in [*store.splits, *store.extra_splits(name)]]
    image_ids = _image_ids(store, problems)
    shards: list[Shard] = []
    for done, (detector, split) in enumerate(jobs, 1):
        pages = _pages(store, detector, split, problems)
        if pages is None:
            continue
        ids_by_shard = [_check_shard(store, page, shard, problems) for page in pages for shard in page.shards]
        shards += [shard for page in pages for shard in page.shards]
        expected = image_ids.get(SplitName(split).source)
        if expected is not None and all(ids is not None for ids in ids_by_shard):
            actual = np.concatenate([np.empty(0, np.int64), *(ids for ids in ids_by_shard if ids is not None)])
            problems += _check_coverage(store, detector, split, actual, expected)
        if unlisted := store.unlisted(detector, split):
            folder = f"detections/{detector}/{split}"
            notes.append(f"{folder} has {len(unlisted)} files that the ledger does not list: safe to delete.")
        if progress:
            progress(done, len(jobs))
    _check_results(store, problems, notes)
    for file in store.folder.list("selfaware"):
        _check_self_aware(store, f"selfaware/{file}", problems, notes)
    images, detections = sum(shard.images for shard in shards), sum(shard.detections for shard in shards)
    return VerifyReport(len(shards), images, detections, problems, notes)


def _check_results(store: Store, problems: list[StoreProblem], notes: list[str]) -> None:
    """Check that results.json is unchanged, and that it was computed from the detections as they are now."""
    if not store.folder.exists(FILE):
        return
    try:
        results = read_results(store)
    except SaodError as error:
        what, _, _ = str(error).partition(": run ")
        fault = what.removeprefix(f"{store.folder.display_path(FILE)} ")
        problems.append(StoreProblem(FILE, fault, f"saod-ray score {store.uri}"))
        return
    if seals.KEY not in results:
        notes.append(f"{FILE} has no digest, because an earlier version wrote it: score the store again to add one.")
    for detector, splits in results["provenance"]["detections"].items():
        with suppress(SaodError):  # a damaged ledger is reported separately
            if {split: seals.origins(store, detector, split) for split in splits} != splits:
                notes.append(_stale(FILE, detector))


def _check_self_aware(store: Store, file: str, problems: list[StoreProblem], notes: list[str]) -> None:
    """Check that a self-aware detector is unchanged, and that it was fitted on the detections as they are now."""
    value = seals.read_sealed(store.folder.read(file))
    if value is None:
        problems.append(StoreProblem(file, "is damaged or was changed", f"saod-ray score {store.uri}"))
    elif seals.KEY not in value:
        notes.append(f"{file} has no digest, because an earlier version wrote it: score the store again to add one.")
    else:
        detector, splits = str(value.get("detector")), value.get("fitted_on", {})
        with suppress(SaodError):
            if seals.origin_digests(store, detector, list(splits)) != splits:
                notes.append(_stale(file, detector))


def _stale(file: str, detector: str) -> str:
    return f"{file} was computed from other detections of '{detector}': score the store again."


def _pages(store: Store, detector: str, split: str, problems: list[StoreProblem]) -> list[Page] | None:
    """The ledger pages of a split; None and a problem if they are damaged."""
    try:
        return store.pages(detector, split)
    except SaodError as error:
        what, _, repair = str(error).rpartition(": ")
        problems.append(StoreProblem(f"ledger/{detector}/{split}", what, repair.rstrip(".")))
        return None


def _image_ids(store: Store, problems: list[StoreProblem]) -> dict[str, np.ndarray]:
    """The image ids of each source whose manifest is intact. Others are problems."""
    image_ids = {}
    for source in store.description.manifests:
        repair = f"saod-ray import into another store: the ground truth of {store.uri} has changed"
        try:
            image_ids[source] = store.manifest(source).images["image_id"].to_numpy()
        except SaodError as error:
            problems.append(StoreProblem(f"manifest/{source}", str(error), repair))
    return image_ids


def _repair(store: Store, page: Page, file: str) -> str:
    if page.origin.kind == RUN:  # a run writes a missing shard again
        return f"delete {file}, then {store.run_command(page.detector, page.split)}"
    split = page.split if page.unit == "all" else f"{page.split}/{page.unit}"
    return f"{store.import_command(page.detector, split, page.origin.file)} --replace"


def _check_shard(store: Store, page: Page, shard: Shard, problems: list[StoreProblem]) -> np.ndarray | None:
    """The shard's image ids; None and a problem if it is damaged."""
    where = store.shard_file(page.detector, page.split, shard.name)

    def problem(what: str) -> None:
        problems.append(StoreProblem(where, what, _repair(store, page, where)))

    try:
        data = store.folder.read(where)
    except FileNotFoundError:
        problem("is gone")
        return None
    if len(data) != shard.bytes or hashlib.sha256(data).hexdigest() != shard.sha256:
        problem(f"is damaged: its {len(data):,} bytes are not the {shard.bytes:,} that were committed")
        return None
    try:
        rows = store.read_shard(page.detector, page.split, shard)
    except SaodError as error:
        problem(str(error))
        return None
    counts = (len(rows.image_id), rows.detections, rows.empty(), rows.failed())
    if counts != (shard.images, shard.detections, shard.empty, shard.failed):
        problem("has other counts than the ledger lists")
        return None
    return rows.image_id


def _check_coverage(
    store: Store, detector: str, split: str, actual: np.ndarray, expected: np.ndarray
) -> list[StoreProblem]:
    where = f"{detector} on {split}"
    command = store.completion_command(detector, split)
    missing = np.setdiff1d(expected, actual)
    unknown = np.setdiff1d(actual, expected)
    values, counts = np.unique(actual, return_counts=True)
    repeated = values[counts > 1]
    problems = []
    if len(missing) == len(expected) and len(expected):
        problems.append(StoreProblem(where, f"has no detections: all {len(expected):,} images are missing", command))
    elif len(missing):
        problems.append(StoreProblem(where, f"lacks {len(missing):,} images ({join_truncated(missing)})", command))
    if len(unknown):
        problems.append(
            StoreProblem(
                where, f"has images that the use case does not ({join_truncated(unknown)})", f"{command} --replace"
            )
        )
    if len(repeated):
        repair = command if store.was_run(detector) else f"{command} --replace"
        problems.append(StoreProblem(where, f"has images twice ({join_truncated(repeated)})", repair))
    return problems
