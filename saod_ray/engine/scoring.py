"""Scoring on a cluster: one task per shard, then one per detector, fill the store's cache for the next scoring."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.split import cache_shard, ground_truth
from saod_ray.splits import SplitName
from saod_ray.store.ledger import Shard
from saod_ray.store.store import Store

PATIENCE = 180.0  # seconds without a finished task before the driver gives up and computes the rest itself

logger = logging.getLogger(__name__)


def score_ahead(
    benchmark: Benchmark, detectors: Sequence[str], progress: Callable[[int, int], None] | None = None
) -> None:
    """Fill the cache on the connected cluster; a scoring with the same settings then reads everything from it.

    No result depends on it: a scoring computes what the cache lacks, so lost tasks are ignored and slow ones cancelled.
    Raises SaodError if the store cannot be scored.
    """
    store, settings = benchmark.store, benchmark.settings
    shard_task: Any = ray.remote(num_cpus=1, max_retries=0)(_score_shard)
    detector_task: Any = ray.remote(num_cpus=1, max_retries=0)(_score_detector)
    units = [
        (name, split, shard) for name in detectors for split in store.splits for shard in store.shards(name, split)
    ]
    done, total = 0, len(units) + len(detectors)
    for calls in (
        [shard_task.remote(store.absolute, *unit, settings) for unit in units],
        [
            detector_task.remote(store.absolute, name, settings, benchmark.partial, benchmark.resamples)
            for name in detectors
        ],
    ):
        while calls:
            ready, calls = ray.wait(calls, num_returns=1, timeout=PATIENCE, fetch_local=False)
            if not ready:  # for instance because a node is cut off
                logger.info("No task finished for %g s: the driver computes the rest.", PATIENCE)
                for call in calls:
                    ray.cancel(call)
                return
            _raise_refusal(ready[0])
            done += 1
            if progress:
                progress(done, total)


def _raise_refusal(call: Any) -> None:
    """Raise the SaodError of a task; lost tasks and results are ignored."""
    try:
        ray.get(call, timeout=PATIENCE)
    except RayTaskError as error:
        if isinstance(error.cause, SaodError):
            raise error.cause from error
    except RayError as error:
        logger.debug("A task was lost.", exc_info=error)


def _score_shard(uri: str, detector: str, split: str, shard: Shard, settings: ScoreSettings) -> None:
    store = Store.open(uri)
    cache_shard(store, detector, split, shard, ground_truth(store, SplitName(split).source), settings)


def _score_detector(
    uri: str, detector: str, settings: ScoreSettings, partial: bool, resamples: Bootstrap | None
) -> None:
    Benchmark(Store.open(uri), settings, partial, resamples).score([detector])
