"""The engine's only pipeline, on Ray Data: tasks prepare units of images, and a pool of actors takes them.

    ray.data.read_datasource(UnitSource)      one row per unit: its number
      .map_batches(prepare_units)             tasks: read, decode, blank or corrupt
      .map_batches(worker, ActorPoolStrategy) actors: detect, and commit or judge
      .iter_batches()                         messages, read by the driver

One row is one unit throughout, so that Ray Data can neither split nor merge units. Ray Data also handles recovery: it
restarts processes that die and replays their work; `attempts` finds the image to blame. The pipeline has no state of its
own: finished work is in the store.
"""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext, Datasource, ExecutionResources, ReadTask
from ray.data.block import BlockMetadata
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from saod_ray.data.prepare import ImageRequest, PreparedImage, PrepareOptions, failed_image, prepare
from saod_ray.engine.attempts import DEFAULT_HANG, FATAL, AttemptLog, Guard, HangLimit
from saod_ray.store.units import Unit

UNITS_PER_ACTOR = 2  # one in hand, and the next one on its way
MIN_STORE_BYTES = 64 * 2**20  # where units are so small that the overhead of tasks would count as theirs
SMALL_UNIT = 64 * 2**10  # bytes of pixels: units below share blocks, and so do their messages
# tasks that prepare units: each costs the driver as much as a few images; beyond these limits one prepares several units
MIN_TASKS, MAX_TASKS, IMAGES_PER_TASK = 64, 4096, 32


class UnitRequest(NamedTuple):
    """One row of the pipeline: the images of a unit, and the shards to compute from them."""

    unit: Unit
    images: list[ImageRequest]
    shards: dict[str, str] = {}  # detector → shard to commit  # noqa: RUF012


class PreparedUnit:
    """A unit's images as one Arrow row; their pixels are in one cell, which is read without a copy."""

    @staticmethod
    def to_table(number: int, images: Sequence[PreparedImage]) -> pa.Table:
        """The row of unit `number`."""
        arrays = [image.pixels for image in images if image.pixels is not None]
        pixels = np.concatenate([array.reshape(-1) for array in arrays] or [np.zeros(0, np.uint8)])
        offsets = pa.py_buffer(np.array([0, len(pixels)], np.int64))
        cell = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(pixels)])
        shapes = [() if image.pixels is None else image.pixels.shape for image in images]
        rest = pickle.dumps(([image._replace(pixels=None) for image in images], shapes))
        return pa.table({"number": [number], "pixels": cell, "images": pa.array([rest], pa.large_binary())})

    @staticmethod
    def from_table(table: pa.Table) -> tuple[int, list[PreparedImage]]:
        """A unit's number and its images; their pixels are views of the table's memory."""
        (cell,) = table["pixels"].chunks
        _, offsets, values = cell.buffers()  # an Arrow scalar would be a copy
        start = int(np.frombuffer(offsets, np.int64)[cell.offset])
        pixels = np.frombuffer(values, np.uint8)
        images, shapes = pickle.loads(table["images"][0].as_buffer())
        for k, shape in enumerate(shapes):
            if shape:
                stop = start + math.prod(shape)
                images[k] = images[k]._replace(pixels=pixels[start:stop].reshape(shape))
                start = stop
        return table["number"][0].as_py(), images


class UnitList:
    """All units of a run, in Ray's object store; a process reads the unit it needs without copying the others."""

    def __init__(self, units: Sequence[UnitRequest]) -> None:
        self._count = len(units)
        images = sum(len(unit.images) for unit in units)
        self.tasks = min(len(units), MAX_TASKS, max(MIN_TASKS, images // IMAGES_PER_TASK))
        self._ref = ray.put(pa.array(map(pickle.dumps, units), pa.large_binary()))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> UnitRequest:
        request: UnitRequest = pickle.loads(_fetch(self._ref)[number].as_buffer())
        return request


@lru_cache(maxsize=2)
def _fetch(ref: Any) -> pa.Array:
    return ray.get(ref)


@dataclass(frozen=True)
class PipelineOptions:
    """The resources and options of a pipeline."""

    prepare: PrepareOptions
    actors: tuple[int, int]  # at least, at most
    actor_cpus: float
    actor_gpus: float
    prepare_cpus: float
    unit_bytes: float  # of a unit's pixels
    is_ordered: bool = False  # yield messages in the order of the units
    hang: HangLimit = DEFAULT_HANG

    @property
    def object_store_bytes(self) -> int:
        """How much of Ray's object store units may use; Ray Data leaves about a third of it free."""
        return max(MIN_STORE_BYTES, int(self.unit_bytes * 2 * UNITS_PER_ACTOR * self.actors[1]))


@contextmanager
def attempt_log() -> Iterator[Any]:
    """The attempt log of a run, on the driver's node so that it outlives all workers."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(AttemptLog)
    log = actor.options(scheduling_strategy=here).remote()
    try:
        yield log
    finally:
        ray.kill(log)


class UnitSource(Datasource):
    """The numbers of all units; a task reads those of one unit or of several consecutive ones."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def estimate_inmemory_data_size(self) -> int:
        """In bytes."""
        return 8 * self._count

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        """As many tasks as `parallelism` says, at most one per unit."""
        parts = np.array_split(np.arange(self._count), min(parallelism, self._count))
        return [ReadTask(partial(_number_table, part), _metadata(len(part))) for part in parts]


def _number_table(numbers: np.ndarray) -> list[pa.Table]:
    return [pa.table({"number": numbers})]


def _metadata(rows: int) -> BlockMetadata:
    return BlockMetadata(num_rows=rows, size_bytes=8 * rows, input_files=None, exec_stats=None)


def build(units: UnitList, worker: type, config: Any, log: Any, options: PipelineOptions) -> ray.data.Dataset:
    """The pipeline as a lazy dataset of messages. `worker(config, units, guard)` takes prepared units."""
    guard = Guard(log, options.hang)
    low, high = options.actors
    prepare_task: Any = prepare_units  # Ray's types know functions of one argument only
    with DataContext.current(_context(options)):
        return (
            # with the CPUs of the next stage, which has no batch size, so that Ray Data fuses the two
            ray.data.read_datasource(
                UnitSource(len(units)), override_num_blocks=units.tasks, num_cpus=options.prepare_cpus
            )
            .map_batches(
                prepare_task,
                fn_args=(units, guard, options.prepare),
                batch_size=None,
                batch_format="pyarrow",
                num_cpus=options.prepare_cpus,
            )
            .map_batches(
                worker,
                fn_constructor_args=(config, units, guard),
                compute=ActorPoolStrategy(min_size=low, max_size=high, max_tasks_in_flight_per_actor=UNITS_PER_ACTOR),
                batch_size=1,
                batch_format="pyarrow",
                num_cpus=options.actor_cpus,
                num_gpus=options.actor_gpus,
            )
        )


def _context(options: PipelineOptions) -> DataContext:
    """Ray Data's settings for a pipeline; docs/engine.md says why each is needed."""
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.enable_auto_log_stats = False
    # a row leaves as soon as it is ready, unless units are so small that the overhead of blocks dominates
    context.target_max_block_size = SMALL_UNIT if options.unit_bytes < SMALL_UNIT else 1
    context.memory_usage_poll_interval_s = None  # it reads a process's whole page table each second
    context.execution_options.preserve_order = options.is_ordered
    context.execution_options.resource_limits = ExecutionResources(object_store_memory=options.object_store_bytes)
    context.autoscaling_config.actor_pool_util_upscaling_threshold = UNITS_PER_ACTOR  # else a pool never grows
    context.execution_no_progress_timeout_s = -1  # hung processes end themselves, and waiting for GPUs is no error
    return context


def prepare_units(batch: pa.Table, units: UnitList, guard: Guard, options: PrepareOptions) -> Iterator[pa.Table]:
    """Prepare the images of units one by one; runs as a task, once for all detectors."""
    for number in batch["number"].to_pylist():
        yield _prepare_unit(number, units[number], guard, options)


def _prepare_unit(number: int, request: UnitRequest, guard: Guard, options: PrepareOptions) -> pa.Table:
    unit = request.unit
    task = f"images {unit.name} of {unit.split}"
    history = guard.begin(task)
    if history.is_stopping:
        return PreparedUnit.to_table(number, [])
    prepared = guard.run(
        task,
        history,
        range(len(request.images)),
        lambda positions: prepare(options, [request.images[position] for position in positions], unit.severity),
        is_exact_alone=True,
    )
    images = [
        prepared.get(position) or failed_image(image, unit.severity, options.seed, FATAL)
        for position, image in enumerate(request.images)
    ]
    table = PreparedUnit.to_table(number, images)
    guard.end(task, len(images))
    return table


class WorkerProblem(NamedTuple):
    """A message that ends the run: what is wrong, as one sentence."""

    sentence: str


def encode_message(message: Any) -> pa.Table:
    """A message as a worker yields it to the driver."""
    return pa.table({"message": pa.array([pickle.dumps(message)], pa.large_binary())})
