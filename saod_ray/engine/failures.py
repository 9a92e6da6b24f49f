"""How many images may fail before a run ends, and why images failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saod_ray.engine.plan import Plan
from saod_ray.errors import SaodError, ShardGoneError
from saod_ray.splits import SplitName
from saod_ray.store.store import Store

if TYPE_CHECKING:
    from saod_ray.engine.workers import Receipt

MAX_REASON = 200  # characters of a reason in messages


@dataclass(frozen=True)
class FailureReason:
    """The most frequent reason for a detector's failed images, and one of these images."""

    reason: str
    count: int  # images with this reason
    failed: int  # images with any reason
    image: str  # file name
    split: str

    def clause(self) -> str:
        """The reason and an example, as part of a sentence."""
        share = "" if self.count == self.failed else f" on {self.count:,} of them"
        reason = self.reason if len(self.reason) <= MAX_REASON else f"{self.reason[:MAX_REASON]} …"
        return f'most often{share} because of "{reason}", for instance {self.image} of {self.split}'


def most_frequent_failure(store: Store, detector: str) -> FailureReason | None:
    """Why a detector failed on most of its failed images, according to the store; None if no image failed."""
    reasons: Counter[str] = Counter()
    examples: dict[str, tuple[str, str, str]] = {}
    for split in [*store.splits, *store.val_shift]:
        for name, error in _failed_images(store, detector, split):
            key = error.replace(name, "IMAGE")  # the same reason for all images
            reasons[key] += 1
            examples.setdefault(key, (error, name, split))
    if not reasons:
        return None
    key, count = reasons.most_common(1)[0]
    reason, image, split = examples[key]
    return FailureReason(reason.rstrip("."), count, reasons.total(), image, split)


def _failed_images(store: Store, detector: str, split: str) -> Iterator[tuple[str, str]]:
    """The file names and errors of a split's failed images."""
    shards = [shard for shard in store.shards(detector, split) if shard.failed]
    if not shards:
        return
    names = dict(store.manifest(SplitName(split).source).images.select("image_id", "file_name").iter_rows())
    for shard in shards:
        with suppress(ShardGoneError):  # another run merged it meanwhile
            rows = store.read_shard(detector, split, shard)
            for image_id, status, error in zip(rows.image_id.tolist(), rows.status, rows.error, strict=True):
                if status == "failed":
                    yield names.get(image_id, f"image {image_id}"), error or "an unknown error"


class FailureBudget:
    """Counts the images that each detector failed on, in this run and before, and ends a run with too many."""

    def __init__(self, plan: Plan, max_share: float, store: Store) -> None:
        self.failed = dict(plan.failed)
        self._totals = {name: plan.missing[name] + plan.cached[name] for name in plan.missing}
        self._max_share = max_share
        self._store = store

    def count(self, receipt: Receipt) -> None:
        """Add a shard's failures. Raises TooManyFailedError."""
        self.failed[receipt.detector] += receipt.failed
        self.refuse_too_many()

    def refuse_too_many(self) -> None:
        """Raise TooManyFailedError if a detector failed on more images than allowed."""
        for name, count in self.failed.items():
            if count > self._max_share * self._totals[name]:
                raise TooManyFailedError(
                    f"'{name}' failed on {count:,} of {self._totals[name]:,} images, more than --max-errors "
                    f"{self._max_share}{_comma(most_frequent_failure(self._store, name))}: fix the cause, and run the same "
                    "command with --retry-failed."
                )


def failure_sentences(store: Store, detectors: list[str]) -> list[str]:
    """One sentence per detector that failed on images: how many, the most frequent reason, and an example."""
    reasons = {name: most_frequent_failure(store, name) for name in detectors}
    return [
        f"'{name}' failed on {reason.failed:,} image{'s' * (reason.failed != 1)}{_comma(reason)}: run the same command "
        "with --retry-failed to try again."
        for name, reason in reasons.items()
        if reason is not None
    ]


def _comma(reason: FailureReason | None) -> str:
    return "" if reason is None else f", {reason.clause()}"


class TooManyFailedError(SaodError):
    """A run that failed on too many images."""

    code = 3
