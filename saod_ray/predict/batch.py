"""Verdicts on many images through the engine's pipeline, in the order of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from saod_ray.data.prepare import ImageRequest, PrepareOptions
from saod_ray.engine.attempts import DEFAULT_HANG, FATAL, Guard, HangLimit
from saod_ray.engine.cluster import cluster_totals
from saod_ray.engine.driver import Callbacks, Driver
from saod_ray.engine.pipeline import (
    PipelineOptions,
    PreparedUnit,
    Problem,
    UnitList,
    UnitRequest,
    attempt_log,
    build,
    encode_message,
)
from saod_ray.engine.resources import PREPARE_CPUS, ResourceOptions, Resources
from saod_ray.predict.predictor import Outcome, Setup
from saod_ray.store.units import Unit

UNIT_IMAGES = 8
IMAGE_BYTES = 6e6  # of pixels: their sizes are not known before they are read


@dataclass(frozen=True)
class PredictConfig:
    """What a worker needs to know."""

    setup: Setup
    draw: bool


class PredictWorker:
    """An actor that holds a self-aware detector and yields the outcomes of each unit's files."""

    def __init__(self, config: PredictConfig, units: UnitList, guard: Guard) -> None:
        self._config, self._units, self._guard = config, units, guard
        self._problem = guard.build([config.setup.entry.name], self._build)

    def _build(self) -> None:
        self._predictor = self._config.setup.predictor()

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        """Judge the images of a prepared unit."""
        if self._problem:
            yield encode_message(Problem(self._problem))
            return
        number, images = PreparedUnit.from_table(batch)
        request = self._units[number]
        files = [image.file_name for image in request.images]
        task = f"images {request.unit.name}"
        history = self._guard.begin(task)
        if history.is_stopping or not images:
            return

        def judge(positions: Sequence[int]) -> list[Outcome]:
            chosen = [files[k] for k in positions], [images[k] for k in positions]
            return self._predictor.outcomes(*chosen, self._config.draw)

        is_exact_alone = self._config.setup.batch_size == 1
        results = self._guard.run(task, history, range(len(images)), judge, is_exact_alone=is_exact_alone)
        self._guard.end(task)
        yield encode_message([results.get(k) or Outcome(file, None, FATAL) for k, file in enumerate(files)])


def predict_batch(
    setup: Setup,
    files: Sequence[str],
    draw: bool,
    callbacks: Callbacks | None = None,
    hang: HangLimit = DEFAULT_HANG,
) -> Iterator[Outcome]:
    """The outcome of each file, in order, on the connected Ray cluster."""
    size = max(UNIT_IMAGES, setup.batch_size)
    requests = []
    for start in range(0, len(files), size):
        images = [ImageRequest(k, file) for k, file in enumerate(files[start : start + size])]
        requests.append(UnitRequest(Unit("predict", start, start + len(images)), images))
    cpus, gpus = cluster_totals()
    count = max(1, int(min(gpus or cpus, cpus)))
    resources = Resources.from_cluster(ResourceOptions(actors=(1, count)), cpus, gpus)
    options = PipelineOptions(
        prepare=PrepareOptions(str(Path.cwd()), is_any_path=True),
        actors=resources.actors,
        actor_cpus=resources.actor_cpus,
        actor_gpus=resources.actor_gpus,
        prepare_cpus=PREPARE_CPUS,
        unit_bytes=IMAGE_BYTES * size,
        is_ordered=True,
        hang=hang,
    )
    with attempt_log() as log:
        dataset = build(UnitList(requests), PredictWorker, PredictConfig(setup, draw), log, options)
        with closing(Driver(dataset, log, options, callbacks or Callbacks()).messages()) as messages:
            for outcomes in messages:
                yield from outcomes
