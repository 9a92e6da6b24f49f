"""Whether every image of every split is accounted for: detected + empty + failed = the number of images."""

from __future__ import annotations

from typing import TypedDict

from saod_ray.errors import SaodError, join_truncated
from saod_ray.splits import SplitName
from saod_ray.store.store import Store
from saod_ray.store.units import RUN


class Coverage(TypedDict):
    """Images of a split by what became of them."""

    images: int
    empty: int
    failed: int
    missing: int


def coverage(store: Store, detector: str, totals: dict[str, int]) -> dict[str, Coverage]:
    """Counts per split from the ledger; `totals` is the number of images of each source."""
    out: dict[str, Coverage] = {}
    for split in store.splits:
        shards = store.shards(detector, split)
        present = sum(shard.images for shard in shards)
        out[split] = {
            "images": totals[SplitName(split).source],
            "empty": sum(shard.empty for shard in shards),
            "failed": sum(shard.failed for shard in shards),
            "missing": totals[SplitName(split).source] - present,
        }
    return out


def refuse_gaps(store: Store, detector: str, found: dict[str, Coverage]) -> None:
    """Refuse to score what is incomplete, naming what is missing and the command that completes it."""
    over = [split for split, each in found.items() if each["missing"] < 0]
    if over:
        raise SaodError(f"'{detector}' has images twice in {join_truncated(over)}: run `saod-ray verify {store.uri}`.")
    gaps = [f"{split} ({each['missing']:,} images)" for split, each in found.items() if each["missing"]]
    if gaps:
        first = next(split for split, each in found.items() if each["missing"])
        raise SaodError(
            f"'{detector}' in {store.uri} is incomplete: {join_truncated(gaps, 9)} missing; complete it with "
            f"`{store.completion_command(detector, first)}`, or score what is there with --partial."
        )


def refuse_mixture(store: Store, detector: str) -> None:
    """Refuse detections that runs made with more than one version of a detector."""
    pages = [page for split in store.splits for page in store.pages(detector, split) if page.origin.kind == RUN]
    if len(versions := {page.origin.file for page in pages}) > 1:
        raise SaodError(
            f"'{detector}' in {store.uri} has detections of {len(versions)} versions of its weights, options or packages: "
            f"redo one of them with `{store.run_command(detector, 'val')} --replace`."
        )
