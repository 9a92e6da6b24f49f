"""The driver's loop: tasks decode units, and pools of actors take the pictures by reference.

The driver keeps nothing that matters: what is done is in the store. An actor that dies is replaced and its unit done
again; a unit that ends three actors is tried in ever smaller parts until the images at fault are known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayError, RayTaskError

from saod_ray.engine.pictures import Picture, Wanted, prepare
from saod_ray.engine.plan import Inputs, Work, boxes_by_image
from saod_ray.engine.pool import Pool
from saod_ray.engine.workers import Receipt
from saod_ray.errors import SaodError
from saod_ray.store.units import Unit

PART = 32  # images that a task decodes
DEATHS = 3  # of actors, before a unit is taken apart
TICK = 0.5  # seconds that the driver waits for something to happen
FATAL = "The detector's process ended on this image, three times."


@dataclass
class Flight:
    """A unit that is on its way: its parts (first image → pictures by reference) and the pools that still miss it."""

    unit: Unit
    keys: dict[str, str]  # detector → shard
    wanted: list[Wanted]
    parts: dict[int, Any] = field(default_factory=dict)
    pools: list[Pool] = field(default_factory=list)
    deaths: int = 0
    failures: dict[str, dict[int, str]] = field(default_factory=dict)

    def pictures(self) -> list[Any]:
        """References to its pictures, in order."""
        return [self.parts[start] for start in sorted(self.parts)]

    def keys_of(self, pool: Pool) -> dict[str, str]:
        """The shards that a pool is to make of it."""
        return {name: key for name, key in self.keys.items() if name in pool.names}


class Detect(NamedTuple):
    """A job: make a unit's shards."""

    flight: Flight


class Try(NamedTuple):
    """A job: find out whether a detector survives some of a unit's images; `open` counts the tries still out."""

    flight: Flight
    name: str
    start: int
    stop: int
    open: list[int]


class Limits(NamedTuple):
    """What a stream may use."""

    root: str
    decode_cpus: float
    flying: int  # units at once
    patience: float = 900.0  # seconds without any progress


class Stream:
    """All work of a plan, from decoding to receipts."""

    def __init__(self, inputs: Inputs, pools: list[Pool], limits: Limits, told: Callable[[Receipt], None]) -> None:
        self._inputs, self._pools, self._limits, self._told = inputs, pools, limits, told
        self._calls: dict[Any, Callable[[Any], None]] = {}
        self._flying: list[Flight] = []
        # two results: a small one that is looked at here, and the pictures, which stay where they are
        self._prepare: Any = ray.remote(num_cpus=limits.decode_cpus, max_retries=1, num_returns=2)(prepare)
        self._moved = time.monotonic()

    def run(self, work: list[Work], keys: Callable[[Work], dict[str, str]]) -> None:
        """Do all of it; what is done stays done whatever ends this."""
        todo = self._flights(work, keys)
        left = True
        try:
            while left or self._flying:
                while left and len(self._flying) < self._limits.flying:
                    flight = next(todo, None)
                    left = flight is not None
                    if flight is not None:
                        self._take_off(flight)
                self._staff(left)
                self._dispatch()
                self._wait()
        finally:
            for pool in self._pools:
                pool.shrink(ray.kill, is_over=True)
                for actor in pool.busy.values():
                    ray.kill(actor)

    # units ----------------------------------------------------------------------------------------------------

    def _flights(self, work: list[Work], keys: Callable[[Work], dict[str, str]]) -> Iterator[Flight]:
        boxes: dict[int, Any] = {}
        for each in work:
            if each.unit.split == "pseudo-ood" and not boxes:
                boxes = boxes_by_image(self._inputs.manifest("val").objects)
            images = self._inputs.images(each.unit.split)[each.unit.start : each.unit.stop]
            wanted = [
                Wanted(image_id, name, boxes.get(image_id) if each.unit.split == "pseudo-ood" else None)
                for image_id, name in images.select("image_id", "file_name").iter_rows()
            ]
            yield Flight(each.unit, keys(each), wanted)

    def _take_off(self, flight: Flight) -> None:
        self._flying.append(flight)
        flight.pools = [pool for pool in self._pools if flight.keys_of(pool)]
        open_parts = [0]
        for start in range(0, len(flight.wanted), PART):
            self._decode(flight, start, min(start + PART, len(flight.wanted)), open_parts)

    def _decode(self, flight: Flight, start: int, stop: int, open_parts: list[int]) -> None:
        """Decode a part; one that ends its process is cut in two, down to the image at fault."""
        open_parts[0] += 1
        wanted = flight.wanted[start:stop]
        call, flight.parts[start] = self._prepare.remote(
            self._limits.root, wanted, flight.unit.severity, self._inputs.seed
        )

        def done(call: Any) -> None:
            open_parts[0] -= 1
            trouble = _trouble(call)
            if trouble is not None:
                del flight.parts[start]
                if stop - start == 1:
                    error = f"The process that decodes it ended ({trouble})."
                    flight.parts[start] = ray.put([Picture(wanted[0].image_id, None, None, error)])
                else:
                    middle = (start + stop) // 2
                    self._decode(flight, start, middle, open_parts)
                    self._decode(flight, middle, stop, open_parts)
            if not open_parts[0]:
                for pool in flight.pools:
                    pool.queue.append(Detect(flight))

        self._calls[call] = done

    def _landed(self, flight: Flight, pool: Pool) -> None:
        flight.pools.remove(pool)
        if not flight.pools:
            self._flying.remove(flight)

    # actors ---------------------------------------------------------------------------------------------------

    def _staff(self, left: bool) -> None:
        for pool in self._pools:
            needed = left or any(pool in flight.pools for flight in self._flying)
            for call in pool.grow() if needed else []:
                self._calls[call] = self._readied(pool)
            pool.shrink(ray.kill, is_over=not needed)

    def _readied(self, pool: Pool) -> Callable[[Any], None]:
        def done(call: Any) -> None:
            actor = pool.starting.pop(call, None)
            if actor is None:
                return
            try:
                problem = ray.get(call)
            except RayError:
                pool.lost += 1
                if pool.lost > DEATHS * (pool.size.high + len(self._flying)):
                    raise SaodError(
                        f"The processes of {', '.join(pool.names)} end before they are ready: look at the memory, and try "
                        "`--actors 1:1`."
                    ) from None
                return
            if problem:
                raise SaodError(problem)
            pool.rest(actor)

        return done

    def _dispatch(self) -> None:
        for pool in self._pools:
            while pool.queue and pool.idle:
                job = pool.queue.popleft()
                actor, _ = pool.idle.popitem()
                self._give(pool, actor, job)

    def _give(self, pool: Pool, actor: Any, job: Detect | Try) -> None:
        flight = job.flight
        if isinstance(job, Detect):
            call = actor.work.remote(flight.unit, flight.keys_of(pool), flight.failures, *flight.pictures())
        else:
            call = actor.attempt.remote(job.name, job.start, job.stop, *flight.pictures())
        pool.busy[call] = actor

        def done(call: Any) -> None:
            actor = pool.busy.pop(call)
            try:
                result = ray.get(call)
            except RayActorError:
                pool.lost += 1
                self._died(pool, job)
                return
            except ObjectLostError:
                pool.rest(actor)
                pool.queue.append(job)
                return
            except RayTaskError as error:
                cause = error.cause
                raise cause if isinstance(cause, SaodError) else error from None
            pool.rest(actor)
            if isinstance(job, Detect):
                for receipt in result:
                    self._told(receipt)
                self._landed(flight, pool)
            else:
                self._tried(pool, job)

        self._calls[call] = done

    # images that end an actor ---------------------------------------------------------------------------------

    def _died(self, pool: Pool, job: Detect | Try) -> None:
        flight = job.flight
        if isinstance(job, Detect):
            flight.deaths += 1
            if flight.deaths < DEATHS:
                pool.queue.appendleft(job)
                return
            flight.deaths = 0
            count = [0]
            for name in flight.keys_of(pool):
                self._try(pool, Try(flight, name, 0, len(flight.wanted), count))
        elif job.stop - job.start == 1:
            flight.failures.setdefault(job.name, {})[job.start] = FATAL
            self._tried(pool, job)
        else:
            middle = (job.start + job.stop) // 2
            self._try(pool, job._replace(stop=middle))
            self._try(pool, job._replace(start=middle))
            self._tried(pool, job)

    def _try(self, pool: Pool, job: Try) -> None:
        job.open[0] += 1
        pool.queue.appendleft(job)

    def _tried(self, pool: Pool, job: Try) -> None:
        job.open[0] -= 1
        if not job.open[0]:
            pool.queue.appendleft(Detect(job.flight))

    # time -----------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Handle what has happened; nothing for long ends the run with the reason."""
        if not self._calls:
            time.sleep(TICK)
            return
        ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=TICK, fetch_local=False)
        for call in ready:
            self._calls.pop(call)(call)
            self._moved = time.monotonic()
        if time.monotonic() - self._moved > self._limits.patience:
            raise SaodError(self._stuck())

    def _stuck(self) -> str:
        states = [
            f"{','.join(pool.names)}: {len(pool.busy)} busy, {len(pool.idle)} idle, {len(pool.starting)} starting, "
            f"{len(pool.queue)} waiting"
            for pool in self._pools
        ]
        free = {name: value for name, value in ray.available_resources().items() if name in ("CPU", "GPU")}
        return (
            f"Nothing has happened for {self._limits.patience:.0f} seconds ({'; '.join(states)}; free: {free}): see that "
            "the cluster has the CPUs and GPUs that are asked for, and run the same command to go on."
        )


def _trouble(call: Any) -> str | None:
    """Why a task failed, or None."""
    try:
        ray.get(call)
    except RayTaskError as error:
        if isinstance(error.cause, SaodError):
            raise error.cause from None
        return type(error.cause).__name__
    except RayError as error:
        return type(error).__name__
    return None
