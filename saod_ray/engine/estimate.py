"""Estimates of a run: bytes, actor-hours and cost, from rates measured here or in an earlier run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from saod_ray.config import UseCase
from saod_ray.data.prepare import ImageRequest, prepare
from saod_ray.detect import registry
from saod_ray.engine.job import Job
from saod_ray.engine.plan import Plan, PlanOptions
from saod_ray.splits import SplitName, val_shift
from saod_ray.store.store import Store

BYTES_PER_IMAGE = 4000  # where the store has no detections yet: 80 detections of 50 bytes
PROBE_SECONDS = 20.0  # for all detectors together
PROBE_IMAGES = 32


@dataclass(frozen=True)
class Estimate:
    """One detector's share of a run; None is unknown."""

    detector: str
    missing: int  # images
    cached: int
    shards: int
    bytes: int
    images_a_second: float | None  # per actor; the name is a key of `run --dry-run --json`
    hours: float | None  # actor-hours
    cost: float | None


def estimate(job: Job, plan: Plan, probe: bool = False, price: float | None = None) -> list[Estimate]:
    """One estimate per detector of a plan.

    With `probe` the detectors are measured on this machine; `price` is per actor-hour.
    """
    rates = probed_rates(job, plan) if probe else measured_rates(job.store)
    shards = Counter(name for planned in plan.units for name in planned.detectors)
    estimates = []
    for name, missing in plan.missing.items():
        rate = rates.get(name)
        hours = missing / rate / 3600 if rate else None
        cost = hours * price if hours is not None and price is not None else None
        size = round(missing * _bytes_per_image(job.store, name))
        estimates.append(Estimate(name, missing, plan.cached[name], shards[name], size, rate, hours, cost))
    return estimates


def published_estimate(
    case: UseCase, detectors: Sequence[str], options: PlanOptions, unit_images: int
) -> list[Estimate]:
    """One estimate per detector from the published sizes of a use case whose data does not exist yet.

    Returns an empty list if a size is unknown. Nothing says how fast the detectors are.
    """
    images = dict.fromkeys(("val", "id", "ood"), 0)
    for name, source in case.sources().items():
        kind = name.partition("/")[0]
        if kind != "train":
            if source.about.images is None:
                return []
            images[kind] += source.about.images
    splits = [*case.split_names(), *(val_shift(case.splits.id.severities) if options.val_shift else ())]
    counts = [images[SplitName(split).source] for split in splits]
    counts = [min(count, options.limit or count) for count in counts]
    missing, shards = sum(counts), sum(-(-count // unit_images) for count in counts)
    return [Estimate(name, missing, 0, shards, missing * BYTES_PER_IMAGE, None, None, None) for name in detectors]


def measured_rates(store: Store) -> dict[str, float]:
    """Images per second of one actor, by detector, as measured in the store's last run."""
    rates = {}
    for name, record in store.last_run().detectors.items():
        rate = record.get("images_per_second_per_actor") or record.get("images_a_second_of_an_actor")  # older runs
        if rate:
            rates[name] = rate
    return rates


def probed_rates(job: Job, plan: Plan) -> dict[str, float]:
    """Images per second of each detector on this machine, measured on the first missing images."""
    import torch

    busy = [entry for entry in job.entries if plan.missing[entry.name]]
    if not busy:
        return {}
    unit = plan.units[0].unit
    images = job.inputs.images(unit.split)[unit.start : unit.start + PROBE_IMAGES]
    requests = [ImageRequest(image_id, name) for image_id, name in images.select("image_id", "file_name").iter_rows()]
    prepared = prepare(job.prepare_options, requests, unit.severity)
    pixels = [image.pixels for image in prepared if image.pixels is not None]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rates = {}
    for entry in busy if pixels else []:
        detector = registry.build(entry, job.store.description.classes, job.weights, device, threads=1)
        detector.detect(pixels[:2])  # the first call is always slower
        began, count = time.monotonic(), 0
        while time.monotonic() - began < PROBE_SECONDS / len(busy):
            detector.detect(pixels)
            count += len(pixels)
        rates[entry.name] = count / (time.monotonic() - began)
    return rates


def _bytes_per_image(store: Store, detector: str) -> float:
    """The mean size of a detector's detections on an image, in the store."""
    shards = [shard for split in store.splits for shard in store.shards(detector, split)]
    images = sum(shard.images for shard in shards)
    return sum(shard.bytes for shard in shards) / images if images else BYTES_PER_IMAGE
