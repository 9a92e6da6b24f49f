"""A benchmark run on the connected Ray cluster: one pipeline per group of detectors, one receipt per shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import msgspec
import ray

from saod_ray.engine import plan as planning
from saod_ray.engine.attempts import DEFAULT_HANG, HangLimit
from saod_ray.engine.cluster import cluster_totals
from saod_ray.engine.driver import Callbacks, Driver
from saod_ray.engine.job import Job
from saod_ray.engine.pipeline import PipelineOptions, UnitList, attempt_log, build
from saod_ray.engine.plan import Plan
from saod_ray.engine.resources import PREPARE_CPUS, ResourceOptions, Resources
from saod_ray.engine.workers import READY, DetectorWorker, Receipt


class RunStatistics(msgspec.Struct):
    """Statistics of a run's pipelines, for run.json."""

    actors: dict[str, dict[str, int]] = {}  # group of detectors → actors started, and lost with a unit in hand


class Run:
    """All pipelines of a plan. Committed shards stay, whatever ends the run."""

    def __init__(self, job: Job, plan: Plan, options: ResourceOptions, *, may_grow: bool = False) -> None:
        """`may_grow` says that the cluster may get more nodes, so that the run waits for missing resources."""
        self._job, self._plan, self._options, self._may_grow = job, plan, options, may_grow
        self.statistics = RunStatistics()

    def detect(
        self,
        on_receipt: Callable[[Receipt], None],
        callbacks: Callbacks | None = None,
        hang: HangLimit = DEFAULT_HANG,
    ) -> RunStatistics:
        """Detect with the groups of detectors in turn."""
        plan = self._plan
        complete = [page for page in plan.stale if not plan.missing[page.detector]]
        planning.discard(self._job.store, complete)  # other pages cover the same images
        for group in self._options.groups(plan.busy_detectors):
            self._detect_group(group, on_receipt, callbacks or Callbacks(), hang)
        return self.statistics

    def _detect_group(
        self, group: Sequence[str], on_receipt: Callable[[Receipt], None], callbacks: Callbacks, hang: HangLimit
    ) -> None:
        job, plan = self._job, self._plan
        resources = self._resources(callbacks)
        requests = job.requests(plan, group)
        stale = [page for page in plan.stale if page.detector in group]
        options = PipelineOptions(
            prepare=job.prepare_options,
            actors=resources.actors,
            actor_cpus=resources.actor_cpus,
            actor_gpus=resources.actor_gpus,
            prepare_cpus=PREPARE_CPUS,
            unit_bytes=job.unit_bytes([request.unit for request in requests]),
            hang=hang,
        )
        config = job.worker_config(group, resources.device, self._options.batch_size, replaces=bool(stale))
        with attempt_log() as log:
            dataset = build(UnitList(requests), DetectorWorker, config, log, options)
            driver = Driver(dataset, log, options, callbacks)
            try:
                with closing(driver.messages()) as messages:
                    for message in messages:
                        if message == READY:
                            planning.discard(job.store, stale)
                            stale = []
                            log.allow_commits.remote()
                        else:
                            on_receipt(message)
            finally:
                self.statistics.actors[",".join(group)] = {"started": driver.workers, "lost": driver.deaths}

    def _resources(self, callbacks: Callbacks) -> Resources:
        """The resources to request from Ray; on a cluster that does not grow, no more than it has."""
        resources = Resources.from_cluster(self._options, *cluster_totals())
        if self._may_grow:
            return resources
        fitting = resources.fit([node["Resources"] for node in ray.nodes() if node["Alive"]])
        if fitting != resources and self._options.actors is not None:
            callbacks.on_message(
                f"--actors {resources.actors[1]}: there is room for {fitting.actors[1]} on this cluster."
            )
        return fitting
