"""Coverage: whether detected + empty + failed images add up to the number of images of each split."""

from __future__ import annotations

from typing import TypedDict

from saod_ray.errors import SaodError, join_truncated
from saod_ray.splits import SplitName
from saod_ray.store.store import Store
from saod_ray.store.units import RUN


class Coverage(TypedDict):
    """Numbers of images of a split: in all, without detections, failed, and not processed yet."""

    images: int
    empty: int
    failed: int
    missing: int


def coverage(store: Store, detector: str, totals: dict[str, int]) -> dict[str, Coverage]:
    """Coverage by split, from the ledger. `totals` is the number of images of each source."""
    covered: dict[str, Coverage] = {}
    for split in store.splits:
        shards = store.shards(detector, split)
        present = sum(shard.images for shard in shards)
        covered[split] = {
            "images": totals[SplitName(split).source],
            "empty": sum(shard.empty for shard in shards),
            "failed": sum(shard.failed for shard in shards),
            "missing": totals[SplitName(split).source] - present,
        }
    return covered


def refuse_gaps(store: Store, detector: str, covered: dict[str, Coverage]) -> None:
    """Raise SaodError if images are missing; it names the splits and the command that completes them."""
    repeated = [split for split, counts in covered.items() if counts["missing"] < 0]
    if repeated:
        raise SaodError(
            f"'{detector}' has images twice in {join_truncated(repeated)}: run `saod-ray verify {store.uri}`."
        )
    gaps = [f"{split} ({counts['missing']:,} images)" for split, counts in covered.items() if counts["missing"]]
    if gaps:
        first = next(split for split, counts in covered.items() if counts["missing"])
        raise SaodError(
            f"'{detector}' in {store.uri} is incomplete: {join_truncated(gaps, 9)} missing; complete it with "
            f"`{store.completion_command(detector, first)}`, or score the detections that exist with --partial."
        )


def refuse_mixture(store: Store, detector: str) -> None:
    """Raise SaodError if runs with different versions of the detector wrote its detections."""
    pages = [page for split in store.splits for page in store.pages(detector, split) if page.origin.kind == RUN]
    if len(versions := {page.origin.file for page in pages}) > 1:
        raise SaodError(
            f"'{detector}' in {store.uri} has detections of {len(versions)} versions of its weights, options or packages: "
            f"redo one of them with `{store.run_command(detector, 'val')} --replace`."
        )
