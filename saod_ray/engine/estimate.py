"""What a run would take: bytes, actor-hours and cost, from rates that were measured here or in an earlier run."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from saod_ray.detect import registry
from saod_ray.engine.pictures import Wanted, prepare
from saod_ray.engine.plan import Plan
from saod_ray.engine.run import Job
from saod_ray.store.store import Store

BYTES = 4000  # of an image's detections, where the store has none yet: 80 detections of 50 bytes
PROBE = 20.0  # seconds, for all detectors together
PROBED = 32  # images that a probe reads


@dataclass(frozen=True)
class Estimate:
    """A detector's share of a run; what is not known is None."""

    detector: str
    missing: int  # images
    cached: int
    shards: int
    bytes: int
    images_a_second: float | None  # of one actor
    hours: float | None  # of actors
    cost: float | None


def estimate(job: Job, made: Plan, probe: bool = False, price: float | None = None) -> list[Estimate]:
    """One for every detector of a plan."""
    rates = probed(job, made) if probe else measured(job.store)
    shards = Counter(name for each in made.work for name in each.detectors)
    found = []
    for name, missing in made.missing.items():
        rate = rates.get(name)
        hours = missing / rate / 3600 if rate else None
        cost = hours * price if hours is not None and price is not None else None
        size = round(missing * _bytes(job.store, name))
        found.append(Estimate(name, missing, made.cached[name], shards[name], size, rate, hours, cost))
    return found


def measured(store: Store) -> dict[str, float]:
    """Images a second of one actor, as the store's last run had them."""
    found = {name: each["images_a_second_of_an_actor"] for name, each in store.last_run().detectors.items()}
    return {name: rate for name, rate in found.items() if rate}


def probed(job: Job, made: Plan) -> dict[str, float]:
    """Images a second of each detector on this machine, on the first images that are missing."""
    import torch

    busy = [entry for entry in job.entries if made.missing[entry.name]]
    if not busy:
        return {}
    unit = made.work[0].unit
    images = job.inputs.images(unit.split)[unit.start : unit.start + PROBED]
    wanted = [Wanted(number, name, None) for number, name in images.select("image_id", "file_name").iter_rows()]
    _, pictures = prepare(job.case.root, wanted, unit.severity, job.inputs.seed)
    pixels = [picture.pixels for picture in pictures if picture.pixels is not None]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rates = {}
    for entry in busy if pixels else []:
        detector = registry.build(entry, job.store.description.classes, job.weights, device, threads=1)
        detector.detect(pixels[:2])  # the first is always slower
        began, count = time.monotonic(), 0
        while time.monotonic() - began < PROBE / len(busy):
            detector.detect(pixels)
            count += len(pixels)
        rates[entry.name] = count / (time.monotonic() - began)
    return rates


def _bytes(store: Store, detector: str) -> float:
    """Of an image's rows, on average over what the store has of a detector."""
    shards = [shard for split in store.splits for shard in store.shards(detector, split)]
    images = sum(shard.images for shard in shards)
    return sum(shard.bytes for shard in shards) / images if images else BYTES
