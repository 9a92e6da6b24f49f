"""How many images may fail before a run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saod_ray.engine.plan import Plan
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.engine.workers import Receipt


class FailureBudget:
    """Counts the images that each detector failed on, in this run and before, and ends a run with too many."""

    def __init__(self, plan: Plan, max_share: float) -> None:
        self.failed = dict(plan.failed)
        self._totals = {name: plan.missing[name] + plan.cached[name] for name in plan.missing}
        self._max_share = max_share

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
                    f"{self._max_share}: look at the `error` column of its shards, fix the cause, and run again with "
                    "--retry-failed."
                )


class TooManyFailedError(SaodError):
    """A run that failed on too many images."""

    code = 3
