"""Scoring on a cluster: tasks over shards, then one per detector, fill the store's cache for whoever scores next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from saod_ray.config import ScoreSettings, source_of
from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.split import ground_truth, look_ahead
from saod_ray.store.ledger import Shard
from saod_ray.store.store import Store

PATIENCE = 180.0  # seconds without a finished task, after which the driver computes what is missing


def score_ahead(
    benchmark: Benchmark, detectors: Sequence[str], progress: Callable[[int, int], None] | None = None
) -> None:
    """Score on the connected cluster; a scoring with the same settings then reads all of it from the cache.

    Nothing depends on it: whoever scores computes what is missing, so lost tasks are ignored and slow ones given up.
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
                for call in calls:
                    ray.cancel(call)
                return
            _refuse_what_scoring_refuses(ready[0])
            done += 1
            if progress:
                progress(done, total)


def _refuse_what_scoring_refuses(call: Any) -> None:
    """Raise what is wrong with the store; a lost task or result is ignored."""
    try:
        ray.get(call, timeout=PATIENCE)
    except RayTaskError as error:
        if isinstance(error.cause, SaodError):
            raise error.cause from None
    except RayError:
        return


def _score_shard(uri: str, detector: str, split: str, shard: Shard, settings: ScoreSettings) -> None:
    store = Store.open(uri)
    look_ahead(store, detector, split, shard, ground_truth(store, source_of(split)), settings)


def _score_detector(
    uri: str, detector: str, settings: ScoreSettings, partial: bool, resamples: Bootstrap | None
) -> None:
    Benchmark(Store.open(uri), settings, partial, resamples).score([detector])
