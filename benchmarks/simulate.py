"""How long 302,000 images and six detectors take on 1 to 256 GPUs, by a simulation of the engine: python -m benchmarks.simulate.

The events are those of `saod_ray.engine`: its own pools and sizes, a driver that handles one call after the other, tasks
that decode on the cores the actors leave, and actors that fetch, detect and commit unit by unit. What it assumes is
printed with where it comes from; every number is an option.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from saod_ray.engine.plan import UNIT_IMAGES
from saod_ray.engine.pool import Pool, Size
from saod_ray.engine.run import AHEAD, _group, grouped
from saod_ray.engine.stream import PART
from saod_ray.engine.workers import Crew

SPLITS = {"val": 5000, "pseudo-ood": 5000, "id": 45391, "id-c1": 45391, "id-c3": 45391, "id-c5": 45391, "ood": 110428}
RATES = {"f-rcnn": 21.0, "rs-rcnn": 21.0, "atss": 20.0, "d-detr": 12.0, "nll-rcnn": 20.0, "es-rcnn": 20.0}
GPUS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 64, 96, 128, 192, 256)
WAYS = (
    ("by default", False, None),
    ("all actors at once: --actors N:N", True, None),
    ("every actor holds all detectors: --group 6", True, len(RATES)),
)
STORE_SHARE = 0.3  # of the object store, that units in flight may take


def _known(value: float, unit: str, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "source": source})


@dataclass(frozen=True)
class Costs:
    """What things cost, and what a cluster has."""

    decode_ms: float = _known(1.0, "CPU-ms an image", "640×480, docs/corruptions.md")
    corrupt_ms: float = _known(1.3, "CPU-ms an image of id-c*", "mean of 15 at 640×480, docs/performance.md")
    put_ms: float = _known(0.13, "CPU-ms an image", "pixels into the object store: ray.put of 32, measured")
    image_mb: float = _known(0.92, "MB an image", "640×480×3")
    driver_ms: float = _known(1.0, "ms a call", "half of the driver's CPU a unit in `benchmarks.stream push`")
    wait_us: float = _known(0.35, "µs a call that is out, at every wait", "ray.wait on 1,000 and 2,000 calls, measured")
    commit_ms: float = _known(
        7.0, "ms a shard", "128 images with 83 detections and its page, on a local disk, measured"
    )
    network_gbs: float = _known(1.25, "GB/s an actor", "assumed: 10 Gbit/s, and all pixels come from another node")
    actor_start: float = _known(20.0, "s", "assumed: process, imports, weights to the GPU")
    cluster_start: float = _known(5.0, "s", "a local cluster, measured; machines are there already")
    cpus: float = _known(8.0, "cores a GPU", "assumed")
    store_gb: float = _known(16.0, "GB of object store a GPU", "assumed")
    price: float = _known(2.0, "a GPU-hour", "assumed")


class Load(NamedTuple):
    """Consecutive images of one split: how many, and CPU seconds of each until they can be detected on."""

    images: int
    seconds: float


class Outcome(NamedTuple):
    """Of one simulation; busy times are seconds summed over GPUs, cores and the driver."""

    gpus: int
    used: int  # GPUs that get an actor
    wall: float
    detecting: float
    decoding: float
    driving: float
    decoders: int
    units: int
    price: float

    @property
    def hours(self) -> float:
        """GPU-hours that are paid for."""
        return self.gpus * self.wall / 3600


@dataclass(eq=False)
class Flight:
    """A unit on its way; no two are the same."""

    images: int
    decoding: int  # parts that are not there yet
    left: int  # detectors that still miss it


@dataclass(eq=False)
class Job:
    """A detector's share of a unit."""

    flight: Flight
    rate: float


class Actor:
    """Nothing but an identity, with the call that says when it is ready."""

    def __init__(self) -> None:
        self.ready = self

    def remote(self) -> object:
        return object()


class Simulation:
    """The engine's driver, with time that jumps from one call's end to the next."""

    def __init__(
        self, costs: Costs, gpus: int, rates: Sequence[float], at_once: bool = False, group: int | None = None
    ) -> None:
        self._costs = costs
        cpus = gpus * costs.cpus
        groups = grouped(range(len(rates)), group or _group(len(rates), gpus, cpus, 1.0))
        high = max(1, int(gpus // len(groups)))  # equal shares; the engine lets a slow detector have more
        low = 1 if len(groups) > 1 else high
        size = Size(high if at_once else low, high)
        crews = [Crew((), (), (), Path(), f"group {k}", "", "cuda", 1, 1) for k in range(len(groups))]
        self._pools = [Pool(crew, size, lambda crew: Actor()) for crew in crews]
        self._rates = [[rates[k] for k in group] for group in groups]
        room = costs.store_gb * 1e3 * gpus * STORE_SHARE / (costs.image_mb * UNIT_IMAGES)
        self._most = max(2, math.floor(min(room, len(groups) * high + AHEAD)))
        self._cores = [0.0] * max(1, math.floor(cpus - len(groups) * high))  # when each is free
        self._gpus, self._used = gpus, len(groups) * high
        self._now = costs.cluster_start
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._flying: list[Flight] = []
        self._busy = {"detecting": 0.0, "decoding": 0.0, "driving": 0.0}

    def run(self, loads: Sequence[Load]) -> Outcome:
        """All of it, in order."""
        todo = list(reversed(loads))
        while todo or self._flying:
            while todo and len(self._flying) < self._most:
                self._take_off(todo.pop())
            self._staff()
            self._dispatch()
            self._wait()
        costs = self._costs
        return Outcome(
            self._gpus,
            self._used,
            self._now,
            **self._busy,
            decoders=len(self._cores),
            units=len(loads),
            price=costs.price,
        )

    def _take_off(self, load: Load) -> None:
        parts = [min(PART, load.images - start) for start in range(0, load.images, PART)]
        flight = Flight(load.images, len(parts), sum(map(len, self._rates)))
        self._flying.append(flight)
        for images in parts:
            seconds = images * load.seconds
            end = max(self._now, heapq.heappop(self._cores)) + seconds
            heapq.heappush(self._cores, end)
            self._busy["decoding"] += seconds
            self._call(end, partial(self._decoded, flight))

    def _decoded(self, flight: Flight) -> None:
        flight.decoding -= 1
        if not flight.decoding:
            for pool, rates in zip(self._pools, self._rates, strict=True):
                pool.queue.extend(Job(flight, rate) for rate in rates)

    def _staff(self) -> None:
        for pool in self._pools:
            for call in pool.grow():
                self._call(self._now + self._costs.actor_start, partial(_ready, pool, call))

    def _dispatch(self) -> None:
        for pool in self._pools:
            while pool.queue and pool.idle:
                job = pool.queue.popleft()
                actor, _ = pool.idle.popitem()
                pool.busy[job] = actor
                self._call(self._now + self._seconds(job), partial(self._done, pool, job))

    def _seconds(self, job: Job) -> float:
        """Of an actor: it fetches, detects and commits one after the other."""
        images, costs = job.flight.images, self._costs
        self._busy["detecting"] += images / job.rate
        return images * costs.image_mb / 1e3 / costs.network_gbs + images / job.rate + costs.commit_ms / 1e3

    def _done(self, pool: Pool, job: Job) -> None:
        pool.rest(pool.busy.pop(job))
        job.flight.left -= 1
        if not job.flight.left:
            self._flying.remove(job.flight)

    def _call(self, end: float, done: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (end, next(self._number), done))

    def _wait(self) -> None:
        """The call that ends first; the driver is busy with it before it looks at the next."""
        spent = self._costs.driver_ms / 1e3 + self._costs.wait_us / 1e6 * len(self._calls)
        end, _, done = heapq.heappop(self._calls)
        self._now = max(self._now, end) + spent
        self._busy["driving"] += spent
        done()


def _ready(pool: Pool, call: object) -> None:
    pool.rest(pool.starting.pop(call))


def loads_of(splits: dict[str, int], costs: Costs) -> list[Load]:
    """The units of a run."""
    loads = []
    for name, images in splits.items():
        ms = costs.decode_ms + costs.put_ms + (costs.corrupt_ms if name.startswith("id-c") else 0)
        loads += [Load(min(UNIT_IMAGES, images - start), ms / 1e3) for start in range(0, images, UNIT_IMAGES)]
    return loads


def main() -> None:
    costs, options = _options()
    rates = {name: rate * options.speed for name, rate in RATES.items()}
    print(f"{sum(SPLITS.values()):,} images of 640×480, {len(RATES)} detectors. Assumed, and from where:")
    for each in fields(Costs):
        print(f"  {each.name:14}{getattr(costs, each.name):8g} {each.metadata['unit']:40} {each.metadata['source']}")
    print(f"  images a second on one GPU, assumed: {', '.join(f'{name} {rate:g}' for name, rate in rates.items())}")
    for title, at_once, group in WAYS:
        print(f"\n{title}\n GPUs  used     hours  GPU-hours      cost  GPUs busy  cores busy  driver busy   limited by")
        for gpus in options.gpus:
            simulation = Simulation(costs, gpus, tuple(rates.values()), at_once, group)
            print(_row(simulation.run(loads_of(SPLITS, costs))), flush=True)
    print(f"\n{_saturation(costs, tuple(rates.values()))}")


def _saturation(costs: Costs, rates: Sequence[float]) -> str:
    """From where on something else than GPUs is the limit, when nobody ever waits."""
    loads = loads_of(SPLITS, costs)
    detecting = sum(load.images / rate for load in loads for rate in rates)
    decoding = sum(load.images * load.seconds for load in loads)
    calls = sum(math.ceil(load.images / PART) + len(rates) for load in loads)
    committing = len(loads) * len(rates) / detecting
    return (
        f"The driver is busy all the time from {detecting / (calls * costs.driver_ms / 1e3):,.0f} GPUs on; decoding takes "
        f"{decoding / detecting:.3f} cores a GPU; each GPU commits {committing:.2f} shards a second; the object store holds "
        f"{costs.image_mb * UNIT_IMAGES / 1e3:.2f} GB a unit, of which {AHEAD} more than actors fly."
    )


def _row(found: Outcome) -> str:
    busy = {
        "GPUs": found.detecting / (found.gpus * found.wall),
        "cores that decode": found.decoding / (found.decoders * found.wall),
        "the driver": found.driving / found.wall,
    }
    most = max(busy, key=lambda name: busy[name])
    limit = most if busy[most] > 0.8 else "GPUs without work"
    shares = "".join(f"{share:{width}.0%}" for share, width in zip(busy.values(), (11, 12, 13), strict=True))
    return (
        f"{found.gpus:5}{found.used:6}{found.wall / 3600:10.2f}{found.hours:11.1f}{found.hours * found.price:10.0f}"
        f"{shares}   {limit}"
    )


def _options() -> tuple[Costs, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", default=GPUS)
    parser.add_argument("--speed", type=float, default=1.0, help="a factor for the detectors' images a second")
    for each in fields(Costs):
        about = f"{each.metadata['unit']}; {each.metadata['source']}"
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=float, default=each.default, help=about)
    options = parser.parse_args()
    return Costs(**{each.name: getattr(options, each.name) for each in fields(Costs)}), options


if __name__ == "__main__":
    main()
