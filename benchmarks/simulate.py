"""The engine on 1 to 256 GPUs, simulated: python -m benchmarks.simulate.

One pipeline per group of detectors: cores prepare units in order, as long as few enough are in flight; the driver handles
every unit once; GPUs take prepared units, and each runs all detectors of the group on them. The table says which costs are
measured and which are assumed. Every cost is an option.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from saod_ray.engine.pipeline import UNITS_PER_ACTOR
from saod_ray.engine.plan import UNIT_IMAGES

SPLITS = {"val": 5000, "pseudo-ood": 5000, "id": 45391, "id-c1": 45391, "id-c3": 45391, "id-c5": 45391, "ood": 110428}
RATES = {"f-rcnn": 21.0, "rs-rcnn": 21.0, "atss": 20.0, "d-detr": 12.0, "nll-rcnn": 20.0, "es-rcnn": 20.0}
GPUS = (1, 2, 4, 6, 8, 16, 32, 64, 128, 256)
WAYS = (
    ("every GPU holds all six detectors: the default", 6),
    ("three at a time: --group 3", 3),
    ("one at a time: --group 1", 1),
)


def _cost(value: float, unit: str, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "source": source})


@dataclass(frozen=True)
class Costs:
    """The costs of each step, and the resources of a cluster."""

    decode_ms: float = _cost(1.0, "CPU-ms per image", "640x480, docs/corruptions.md")
    corrupt_ms: float = _cost(1.3, "CPU-ms per image of id-c*", "mean of 15 at 640x480, docs/performance.md")
    put_ms: float = _cost(0.13, "CPU-ms per image", "pixels into the object store, measured")
    image_mb: float = _cost(0.92, "MB per image", "640x480x3")
    driver_ms: float = _cost(12.0, "ms per unit", "the driver's CPU in `benchmarks.stream push`")
    commit_ms: float = _cost(7.0, "ms per shard", "128 images with 83 detections each, on a local disk, measured")
    network_gbs: float = _cost(1.25, "GB/s per actor", "assumed: 10 Gbit/s, and all pixels come from another node")
    actor_start: float = _cost(20.0, "s", "assumed: process, imports, weights to the GPU")
    cluster_start: float = _cost(5.0, "s", "a local cluster, measured; machines are already running")
    cpus: float = _cost(8.0, "cores per GPU", "assumed")
    price: float = _cost(2.0, "per GPU-hour", "assumed")


class Load(NamedTuple):
    """A unit: its number of images, and the CPU-seconds to prepare each."""

    images: int
    seconds: float


class Outcome(NamedTuple):
    """Result of one simulation. Busy times are seconds, summed over GPUs, cores and the driver."""

    gpus: int
    wall: float
    detecting: float
    preparing: float
    driving: float
    cores: int
    price: float

    @property
    def hours(self) -> float:
        """Paid GPU-hours."""
        return self.gpus * self.wall / 3600


class Simulation:
    """The pipelines of a run, in sequence."""

    def __init__(self, costs: Costs, gpus: int, rates: Sequence[float], group: int | None = None) -> None:
        size = group or len(rates)
        self._costs, self._gpus = costs, gpus
        self._groups = [rates[k : k + size] for k in range(0, len(rates), size)]
        self._cores = max(1, math.floor(gpus * costs.cpus - gpus))
        self._detecting = self._preparing = self._driving = 0.0

    def run(self, loads: Sequence[Load]) -> Outcome:
        """Run all units through all groups."""
        now = self._costs.cluster_start
        for rates in self._groups:
            now = self._pipeline(loads, rates, now)
        busy = (self._detecting, self._preparing, self._driving)
        return Outcome(self._gpus, now, *busy, cores=self._cores, price=self._costs.price)

    def _pipeline(self, loads: Sequence[Load], rates: Sequence[float], start: float) -> float:
        """The time at which the last unit is committed."""
        costs, driver = self._costs, start
        cores = [start] * self._cores  # when each core is free
        actors = [start + costs.actor_start] * self._gpus
        in_flight: list[float] = []  # when units leave the object store
        for load in loads:
            began = heapq.heappop(cores)
            if len(in_flight) > UNITS_PER_ACTOR * self._gpus:
                began = max(began, heapq.heappop(in_flight))
            prepared = began + load.images * load.seconds
            heapq.heappush(cores, prepared)
            driver = max(driver, prepared) + costs.driver_ms / 1e3
            detecting = sum(load.images / rate for rate in rates)
            moving = load.images * costs.image_mb / 1e3 / costs.network_gbs
            end = max(driver, heapq.heappop(actors)) + moving + detecting + len(rates) * costs.commit_ms / 1e3
            heapq.heappush(actors, end)
            heapq.heappush(in_flight, end)
            self._detecting += detecting
            self._preparing += load.images * load.seconds
            self._driving += costs.driver_ms / 1e3
        return max(actors)


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
    loads = loads_of(SPLITS, costs)
    print(f"{sum(SPLITS.values()):,} images of 640x480, {len(loads):,} units, {len(RATES)} detectors. Costs:")
    for item in fields(Costs):
        print(f"  {item.name:14}{getattr(costs, item.name):8g} {item.metadata['unit']:28} {item.metadata['source']}")
    print(f"  images per second on one GPU, assumed: {', '.join(f'{name} {rate:g}' for name, rate in rates.items())}")
    for title, group in WAYS:
        print(f"\n{title}\n GPUs     hours  GPU-hours      cost  GPUs busy  cores busy  driver busy")
        for gpus in options.gpus:
            print(_row(Simulation(costs, gpus, tuple(rates.values()), group).run(loads)), flush=True)
    detecting = sum(load.images / rate for load in loads for rate in rates.values())
    driving = len(loads) * costs.driver_ms / 1e3
    print(f"\nThe driver is the bottleneck with more than {detecting / driving:,.0f} GPUs.")


def _row(outcome: Outcome) -> str:
    shares = (
        outcome.detecting / (outcome.gpus * outcome.wall),
        outcome.preparing / (outcome.cores * outcome.wall),
        outcome.driving / outcome.wall,
    )
    busy = "".join(f"{share:{width}.0%}" for share, width in zip(shares, (11, 12, 13), strict=True))
    cost = outcome.hours * outcome.price
    return f"{outcome.gpus:5}{outcome.wall / 3600:10.2f}{outcome.hours:11.1f}{cost:10.0f}{busy}"


def _options() -> tuple[Costs, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", default=GPUS)
    parser.add_argument("--speed", type=float, default=1.0, help="a factor for the detectors' images per second")
    for item in fields(Costs):
        about = f"{item.metadata['unit']}; {item.metadata['source']}"
        parser.add_argument(f"--{item.name.replace('_', '-')}", type=float, default=item.default, help=about)
    options = parser.parse_args()
    return Costs(**{item.name: getattr(options, item.name) for item in fields(Costs)}), options


if __name__ == "__main__":
    main()
