"""The driver's loop: tasks decode units, and pools of actors take the pictures by reference.

The driver keeps nothing that matters: what is done is in the store. An actor that dies or hangs is replaced and its
job done again; a job that ends three actors is tried in ever smaller parts until the images at fault are known.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray
from ray.exceptions import ObjectLostError, RayError, RayTaskError

from saod_ray.engine import pool as pools_of
from saod_ray.engine.pictures import Picture, Wanted, prepare
from saod_ray.engine.plan import Inputs, Work, boxes_by_image
from saod_ray.engine.pool import Pool
from saod_ray.engine.workers import Receipt
from saod_ray.errors import SaodError
from saod_ray.store.units import Unit

PART = 32  # images that a task decodes
RETRIES = 1  # of a task that decodes, and how often Ray makes lost pictures again by itself
DEATHS = 3  # of actors, before a job is taken apart, and of an image alone, before it is given up
ROUNDS = 10  # of taking a job apart without finding an image at fault
TICK = 0.5  # seconds that the driver waits for something to happen
FATAL = "The detector's process ended or hung on this image, three times."


@dataclass(eq=False)
class Flight:
    """A unit that is on its way: its parts (first image → pictures by reference) and the detectors that still miss it."""

    unit: Unit
    keys: dict[str, str]  # detector → shard
    wanted: list[Wanted]
    left: set[str] = field(default_factory=set)
    parts: dict[int, Any] = field(default_factory=dict)
    decoding: int = 0  # parts that are not there yet
    waiting: list[tuple[Pool, Detect | Try]] = field(default_factory=list)  # for the pictures
    deaths: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failures: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))

    def pictures(self) -> list[Any]:
        """References to its pictures, in order."""
        return [self.parts[start] for start in sorted(self.parts)]


class Detect(NamedTuple):
    """A job: make a unit's shard of a detector."""

    flight: Flight
    name: str

    @property
    def images(self) -> int:
        """How many it is about."""
        return len(self.flight.wanted)


class Try(NamedTuple):
    """A job: find out whether a detector survives some of a unit's images; `open` counts the tries still out."""

    flight: Flight
    name: str
    start: int
    stop: int
    open: list[int]
    deaths: int = 0

    @property
    def images(self) -> int:
        """How many it is about."""
        return self.stop - self.start


class Limits(NamedTuple):
    """What a stream may use."""

    root: str
    decode_cpus: float
    flying: int  # units at once
    patience: float = 900.0  # seconds in which nothing happens
    hang: float = 600.0  # seconds of a job after which its actor hangs
    slow: float = 10.0  # seconds more for each of its images


class Stream:
    """All work of a plan, from decoding to receipts."""

    def __init__(
        self,
        inputs: Inputs,
        pools: list[Pool],
        limits: Limits,
        told: Callable[[Receipt], None],
        decoded: Callable[[int], None],
        begun: Callable[[Sequence[str]], None],
    ) -> None:
        self._inputs, self._pools, self._limits = inputs, pools, limits
        self._told, self._decoded, self._begun = told, decoded, begun
        self._calls: dict[Any, Callable[[Any], None]] = {}
        self._flying: list[Flight] = []
        # two results: a small one that is looked at here, and the pictures, which stay where they are
        self._prepare: Any = ray.remote(num_cpus=limits.decode_cpus, max_retries=RETRIES, num_returns=2)(prepare)
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
        split, images = None, list[tuple[int, str]]()
        boxes: dict[int, Any] = {}  # that are blanked, in pseudo-ood
        for each in work:
            if each.unit.split != split:
                split = each.unit.split
                images = list(self._inputs.images(split).select("image_id", "file_name").iter_rows())
                boxes = boxes_by_image(self._inputs.manifest("val").objects) if split == "pseudo-ood" else {}
            there = images[each.unit.start : each.unit.stop]
            yield Flight(each.unit, keys(each), [Wanted(number, name, boxes.get(number)) for number, name in there])

    def _take_off(self, flight: Flight) -> None:
        self._flying.append(flight)
        flight.left = set(flight.keys)
        flight.waiting = [
            (pool, Detect(flight, name)) for pool in self._pools for name in pool.names if name in flight.left
        ]
        self._decode_all(flight)

    def _decode_all(self, flight: Flight) -> None:
        flight.parts.clear()
        for start in range(0, len(flight.wanted), PART):
            self._decode(flight, start, min(start + PART, len(flight.wanted)))

    def _decode(self, flight: Flight, start: int, stop: int) -> None:
        """Decode a part; one that ends its process is cut in two, down to the image at fault."""
        flight.decoding += 1
        wanted = flight.wanted[start:stop]
        call, flight.parts[start] = self._prepare.remote(
            self._limits.root, wanted, flight.unit.severity, self._inputs.seed
        )

        def done(call: Any) -> None:
            flight.decoding -= 1
            trouble = _trouble(call)
            if trouble and stop - start == 1:
                error = f"The process that decodes it ended ({trouble})."
                flight.parts[start] = ray.put([Picture(wanted[0].image_id, None, None, error)])
            elif trouble:
                middle = (start + stop) // 2
                self._decode(flight, start, middle)
                self._decode(flight, middle, stop)
            else:
                self._decoded(stop - start)
            if not flight.decoding:
                for pool, job in flight.waiting:
                    pool.queue.append(job)
                flight.waiting.clear()

        self._calls[call] = done

    def _landed(self, job: Detect) -> None:
        job.flight.left.remove(job.name)
        if not job.flight.left:
            self._flying.remove(job.flight)

    # actors ---------------------------------------------------------------------------------------------------

    def _staff(self, left: bool) -> None:
        is_short = self._is_short()
        for pool in self._pools:
            needed = left or any(flight.left.intersection(pool.names) for flight in self._flying)
            for call in pool.grow() if needed else []:
                self._calls[call] = self._readied(pool)
            pool.shrink(ray.kill, is_over=not needed, is_short=is_short)

    def _is_short(self) -> bool:
        """Whether others may wait for what idle actors hold: a pool that has none, or decoding that does not go on."""
        waits = any(pool.queue and not pool.idle and not pool.busy for pool in self._pools)
        is_calm = time.monotonic() - self._moved > pools_of.IDLE
        return waits or (is_calm and any(flight.decoding for flight in self._flying))

    def _readied(self, pool: Pool) -> Callable[[Any], None]:
        def done(call: Any) -> None:
            actor = pool.starting.pop(call, None)
            if actor is None:
                return
            try:
                problem = ray.get(call)
            except RayError:
                pool.lost += 1
                pool.stillborn += 1
                if pool.stillborn > DEATHS * pool.size.high:
                    raise SaodError(
                        f"The processes of {', '.join(pool.names)} end before they are ready: look at the memory, and try "
                        "`--actors 1:1`."
                    ) from None
                return
            pool.stillborn = 0
            pool.rest(actor)  # before anything is raised: who rests is let go at the end
            if problem:
                raise SaodError(problem)
            if not pool.has_begun:
                self._begun(pool.names)
                pool.has_begun = True

        return done

    def _dispatch(self) -> None:
        for pool in self._pools:
            while pool.queue and pool.idle:
                job = pool.queue.popleft()
                actor, _ = pool.idle.popitem()
                self._give(pool, actor, job)

    def _give(self, pool: Pool, actor: Any, job: Detect | Try) -> None:
        flight = job.flight
        failures = flight.failures[job.name]
        if isinstance(job, Detect):
            call = actor.work.remote(flight.unit, job.name, flight.keys[job.name], failures, *flight.pictures())
        else:
            call = actor.attempt.remote(job.name, job.start, job.stop, failures, *flight.pictures())
        pool.busy[call] = actor
        pool.until[call] = time.monotonic() + self._limits.hang + self._limits.slow * job.images

        def done(call: Any) -> None:
            actor = pool.freed(call)
            try:
                receipt = ray.get(call)
            except RayTaskError as error:
                pool.rest(actor)
                if not isinstance(error.cause, RayError):
                    raise error.cause if isinstance(error.cause, SaodError) else error from None
                self._lost(pool, job)
            except ObjectLostError:
                pool.rest(actor)
                self._lost(pool, job)
            except RayError:
                ray.kill(actor)  # one that cannot be reached may live on
                pool.lost += 1
                self._died(pool, job)
            else:
                pool.rest(actor)
                self._done(pool, job, receipt)

        self._calls[call] = done

    def _done(self, pool: Pool, job: Detect | Try, receipt: Receipt) -> None:
        if isinstance(job, Detect):
            self._landed(job)
            self._told(receipt)
        else:
            self._tried(pool, job)

    def _lost(self, pool: Pool, job: Detect | Try) -> None:
        """Pictures went with their node, and Ray could not make them again: decode the unit once more."""
        job.flight.waiting.append((pool, job))
        if not job.flight.decoding:
            self._decode_all(job.flight)

    # images that end an actor ---------------------------------------------------------------------------------

    def _died(self, pool: Pool, job: Detect | Try) -> None:
        if isinstance(job, Try):
            self._taken_apart(pool, job)
            return
        flight = job.flight
        flight.deaths[job.name] += 1
        if flight.deaths[job.name] % DEATHS:
            pool.queue.appendleft(job)
        elif flight.deaths[job.name] < DEATHS * ROUNDS:
            self._taken_apart(pool, Try(flight, job.name, 0, job.images, [1], DEATHS - 1))
        else:
            raise SaodError(
                f"The processes of '{job.name}' ended {DEATHS * ROUNDS} times on images {flight.unit.name} of "
                f"{flight.unit.split}, but on none of them alone: look at the memory, and try `--unit-images 16`."
            )

    def _taken_apart(self, pool: Pool, job: Try) -> None:
        if job.images > 1:
            middle = (job.start + job.stop) // 2
            self._try(pool, job._replace(stop=middle, deaths=0))
            self._try(pool, job._replace(start=middle, deaths=0))
        elif job.deaths + 1 < DEATHS:
            self._try(pool, job._replace(deaths=job.deaths + 1))
        else:
            job.flight.failures[job.name][job.start] = FATAL
        self._tried(pool, job)

    def _try(self, pool: Pool, job: Try) -> None:
        job.open[0] += 1
        pool.queue.appendleft(job)

    def _tried(self, pool: Pool, job: Try) -> None:
        job.open[0] -= 1
        if not job.open[0]:
            pool.queue.appendleft(Detect(job.flight, job.name))

    # time -----------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Handle what has happened; an actor that hangs is ended, and nothing at all for long ends the run."""
        ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=TICK, fetch_local=False)
        for call in ready:
            self._calls.pop(call)(call)
            self._moved = time.monotonic()
        for pool in self._pools:
            pool.end_overdue(ray.kill)
        busy = any(pool.busy for pool in self._pools)
        if not busy and time.monotonic() - self._moved > self._limits.patience:
            raise SaodError(self._stuck())

    def _stuck(self) -> str:
        states = [
            f"{','.join(pool.names)}: {len(pool.idle)} idle, {len(pool.starting)} starting, {len(pool.queue)} waiting"
            for pool in self._pools
        ]
        decoding = sum(flight.decoding for flight in self._flying)
        free = {name: value for name, value in ray.available_resources().items() if name in ("CPU", "GPU")}
        return (
            f"Nothing has happened for {self._limits.patience:.0f} seconds ({'; '.join(states)}; {decoding} to decode; "
            f"free: {free}): see that the cluster has the CPUs and GPUs that are asked for, and run the same command to "
            "go on."
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
