"""Predictions for many images through the engine's pipeline, in the order of the files."""

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
    UnitList,
    UnitRequest,
    WorkerProblem,
    attempt_log,
    build,
    encode_message,
)
from saod_ray.engine.resources import PREPARE_CPUS, ResourceOptions, Resources
from saod_ray.predict.predictor import Prediction, PredictorConfig
from saod_ray.store.units import Unit

UNIT_IMAGES = 8
IMAGE_BYTES = 6e6  # pixels of a typical image: sizes are unknown before the files are read


@dataclass(frozen=True)
class PredictWorkerConfig:
    """What a worker needs to know."""

    predictor: PredictorConfig
    draw: bool


class PredictWorker:
    """An actor that holds a predictor and yields the predictions for each unit's files."""

    def __init__(self, config: PredictWorkerConfig, units: UnitList, guard: Guard) -> None:
        self._config, self._units, self._guard = config, units, guard
        self._problem = guard.build([config.predictor.entry.name], self._build)

    def _build(self) -> None:
        self._predictor = self._config.predictor.build()

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        """Yield the predictions for a prepared unit, or the problem that ends the work."""
        if self._problem:
            yield encode_message(WorkerProblem(self._problem))
            return
        number, images = PreparedUnit.from_table(batch)
        request = self._units[number]
        files = [image.file_name for image in request.images]
        task = f"images {request.unit.name}"
        history = self._guard.begin(task)
        if history.is_stopping or not images:
            return

        def predict(positions: Sequence[int]) -> list[Prediction]:
            batch_files, batch_images = [files[k] for k in positions], [images[k] for k in positions]
            return self._predictor.predict(batch_files, batch_images, draw=self._config.draw)

        is_exact_alone = self._config.predictor.batch_size == 1
        results = self._guard.run(task, history, range(len(images)), predict, is_exact_alone=is_exact_alone)
        self._guard.end(task)
        yield encode_message([results.get(k) or Prediction(file, None, FATAL) for k, file in enumerate(files)])


def predict_batch(
    config: PredictorConfig,
    files: Sequence[str],
    *,
    draw: bool,
    callbacks: Callbacks | None = None,
    hang: HangLimit = DEFAULT_HANG,
) -> Iterator[Prediction]:
    """Predict on the connected Ray cluster, and yield the predictions in the order of the files."""
    size = max(UNIT_IMAGES, config.batch_size)
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
        dataset = build(UnitList(requests), PredictWorker, PredictWorkerConfig(config, draw), log, options)
        with closing(Driver(dataset, log, options, callbacks or Callbacks()).messages()) as messages:
            for predictions in messages:
                yield from predictions
