"""Scoring on a cluster: tasks over shards, then one a detector, leave in the store's cache what a scoring looks up."""

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


def score_ahead(
    store: Store,
    detectors: Sequence[str],
    settings: ScoreSettings,
    partial: bool,
    resamples: Bootstrap | None,
    progress: Callable[[int, int], None],
) -> None:
    """Score on the cluster that is connected; a scoring with the same settings then finds all of it in the cache.

    Nothing depends on it: what a task could not do is computed by whoever scores.
    """
    for source in ("val", "id", "ood"):
        ground_truth(store, source)  # once, before all tasks want it
    shard_task: Any = ray.remote(num_cpus=1)(_shard)
    detector_task: Any = ray.remote(num_cpus=1)(_detector)
    units = [(name, split, each) for name in detectors for split in store.splits for each in store.shards(name, split)]
    total, done = len(units) + len(detectors), 0
    for calls in (
        [shard_task.remote(store.absolute, *unit, settings) for unit in units],
        [detector_task.remote(store.absolute, name, settings, partial, resamples) for name in detectors],
    ):
        while calls:
            (ready,), calls = ray.wait(calls, num_returns=1)
            _finish(ready)
            progress(done := done + 1, total)


def _finish(call: Any) -> None:
    """A store that cannot be scored is refused here as anywhere; a task that was lost is no matter."""
    try:
        ray.get(call)
    except RayTaskError as error:
        if isinstance(error.cause, SaodError):
            raise error.cause from None
    except RayError:
        return


def _shard(uri: str, detector: str, split: str, shard: Shard, settings: ScoreSettings) -> None:
    store = Store.open(uri)
    look_ahead(store, detector, split, shard, ground_truth(store, source_of(split)), settings)


def _detector(uri: str, detector: str, settings: ScoreSettings, partial: bool, resamples: Bootstrap | None) -> None:
    Benchmark(Store.open(uri), settings, partial, resamples).score([detector])
