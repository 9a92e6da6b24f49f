"""Whether a store is what its ledger says: every shard whole, every image accounted for exactly once."""

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
class Problem:
    """Something wrong, and the command that repairs it."""

    where: str
    what: str
    repair: str


@dataclass(frozen=True)
class Verdict:
    """What was looked at and what was found."""

    shards: int
    images: int
    detections: int
    problems: list[Problem]
    notes: list[str]


def verify(store: Store, detectors: Sequence[str], progress: Callable[[int, int], None] | None = None) -> Verdict:
    """Read every byte of every shard of these detectors, and the manifests."""
    problems: list[Problem] = []
    notes: list[str] = []
    jobs = [(name, split) for name in detectors for split in [*store.splits, *store.extra_splits(name)]]
    image_ids = _image_ids(store, problems)
    shards: list[Shard] = []
    for done, (detector, split) in enumerate(jobs, 1):
        found = _pages(store, detector, split, problems)
        if found is None:
            continue
        seen = [_shard(store, page, shard, problems) for page in found for shard in page.shards]
        shards += [shard for page in found for shard in page.shards]
        wanted = image_ids.get(SplitName(split).source)
        if wanted is not None and all(ids is not None for ids in seen):
            got = np.concatenate([np.empty(0, np.int64), *(ids for ids in seen if ids is not None)])
            problems += _coverage(store, detector, split, got, wanted)
        if stray := store.unlisted(detector, split):
            place = f"detections/{detector}/{split}"
            notes.append(f"{place} has {len(stray)} files that the ledger does not list: safe to delete.")
        if progress:
            progress(done, len(jobs))
    _check_results(store, problems, notes)
    for file in store.folder.list("selfaware"):
        _check_self_aware(store, f"selfaware/{file}", problems, notes)
    images, detections = sum(shard.images for shard in shards), sum(shard.detections for shard in shards)
    return Verdict(len(shards), images, detections, problems, notes)


def _check_results(store: Store, problems: list[Problem], notes: list[str]) -> None:
    """Whether results.json is what scoring wrote, and of the detections that are there now."""
    if not store.folder.exists(FILE):
        return
    try:
        results = read_results(store)
    except SaodError as error:
        what, _, _ = str(error).partition(": run ")
        fault = what.removeprefix(f"{store.folder.display_path(FILE)} ")
        problems.append(Problem(FILE, fault, f"saod-ray score {store.uri}"))
        return
    if seals.KEY not in results:
        notes.append(f"{FILE} has no digest, as an earlier version wrote it: score the store again to add one.")
    for detector, splits in results["provenance"]["detections"].items():
        with suppress(SaodError):  # a damaged ledger is a problem of its own
            if {split: seals.origins(store, detector, split) for split in splits} != splits:
                notes.append(_stale(FILE, detector))


def _check_self_aware(store: Store, file: str, problems: list[Problem], notes: list[str]) -> None:
    """Whether a self-aware detector is what scoring wrote, and fitted on the detections that are there now."""
    value = seals.read_sealed(store.folder.read(file))
    if value is None:
        problems.append(Problem(file, "is damaged or was changed", f"saod-ray score {store.uri}"))
    elif seals.KEY not in value:
        notes.append(f"{file} has no digest, as an earlier version wrote it: score the store again to add one.")
    else:
        detector, splits = str(value.get("detector")), value.get("fitted_on", {})
        with suppress(SaodError):
            if seals.origin_digests(store, detector, list(splits)) != splits:
                notes.append(_stale(file, detector))


def _stale(file: str, detector: str) -> str:
    return f"{file} is of other detections of '{detector}' than there are now: score the store again."


def _pages(store: Store, detector: str, split: str, problems: list[Problem]) -> list[Page] | None:
    """What the ledger says of a split; None and a problem where it is damaged."""
    try:
        return store.pages(detector, split)
    except SaodError as error:
        what, _, repair = str(error).rpartition(": ")
        problems.append(Problem(f"ledger/{detector}/{split}", what, repair.rstrip(".")))
        return None


def _image_ids(store: Store, problems: list[Problem]) -> dict[str, np.ndarray]:
    """The image ids of each source whose manifest is whole; the others become problems."""
    found = {}
    for source in store.description.manifests:
        repair = f"saod-ray import into another store: the ground truth of {store.uri} is not what it was"
        try:
            found[source] = store.manifest(source).images["image_id"].to_numpy()
        except SaodError as error:
            problems.append(Problem(f"manifest/{source}", str(error), repair))
    return found


def _repair(store: Store, page: Page, file: str) -> str:
    if page.origin.kind == RUN:  # a shard that is gone is made again
        return f"delete {file}, then {store.run_command(page.detector, page.split)}"
    split = page.split if page.unit == "all" else f"{page.split}/{page.unit}"
    return f"{store.import_command(page.detector, split, page.origin.file)} --replace"


def _shard(store: Store, page: Page, shard: Shard, problems: list[Problem]) -> np.ndarray | None:
    """The shard's image ids, or None and a problem."""
    where = store.shard_file(page.detector, page.split, shard.name)

    def problem(what: str) -> None:
        problems.append(Problem(where, what, _repair(store, page, where)))

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
        problem("has other counts than the ledger says")
        return None
    return rows.image_id


def _coverage(store: Store, detector: str, split: str, got: np.ndarray, wanted: np.ndarray) -> list[Problem]:
    where = f"{detector} on {split}"
    command = store.completion_command(detector, split)
    missing = np.setdiff1d(wanted, got)
    strangers = np.setdiff1d(got, wanted)
    values, counts = np.unique(got, return_counts=True)
    twice = values[counts > 1]
    problems = []
    if len(missing) == len(wanted) and len(wanted):
        problems.append(Problem(where, f"has no detections: all {len(wanted):,} images are missing", command))
    elif len(missing):
        problems.append(Problem(where, f"lacks {len(missing):,} images ({join_truncated(missing)})", command))
    if len(strangers):
        problems.append(
            Problem(
                where, f"has images that the use case does not ({join_truncated(strangers)})", f"{command} --replace"
            )
        )
    if len(twice):
        again = command if store.was_run(detector) else f"{command} --replace"
        problems.append(Problem(where, f"has images twice ({join_truncated(twice)})", again))
    return problems
