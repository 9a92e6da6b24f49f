"""A benchmark run: plan, stream, put small shards together. Scoring reads the store afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from saod_ray.config import DetectorSpec, UseCase
from saod_ray.detect import registry
from saod_ray.detect.registry import Entry
from saod_ray.engine import plan as planning
from saod_ray.engine.plan import Asked, Inputs, Plan, Work
from saod_ray.engine.workers import Crew, Receipt
from saod_ray.errors import SaodError
from saod_ray.score.coverage import Coverage, coverage
from saod_ray.store.compaction import compact
from saod_ray.store.store import Store, check_name

CPU_ACTOR, CPU_DECODE = 0.75, 0.25  # of a core: each core has room for one of both, and decoding always has some
AHEAD = 2  # units that are decoded before an actor asks for them


class Sizes(NamedTuple):
    """How a run is spread: actors of a group of detectors, detectors in a group, GPUs of an actor.

    None is by what the cluster has when the run begins; one that grows from nothing has to be told.
    """

    actors: tuple[int, int] | None = None
    group: int | None = None
    gpus: float | None = None
    batch_size: int = 1  # in larger batches the last bits of a detection depend on the images beside it
    unit_images: int = planning.UNIT_IMAGES


class Scope(NamedTuple):
    """The detectors that are scored after a run; a trial's results are kept beside those of the store."""

    detectors: list[str]
    is_partial: bool
    is_trial: bool


@dataclass(frozen=True)
class Job:
    """What is run on what, into which store."""

    case: UseCase
    store: Store
    entries: list[Entry]
    specs: list[DetectorSpec]
    weights: Path
    inputs: Inputs

    @classmethod
    def of(cls, case: UseCase, uri: str, detectors: str, weights: Path, seed: int) -> Job:
        """Everything that can be refused is refused here, before anything is started."""
        store = Store.of_use_case(uri, case)
        classes = store.description.classes
        entries = registry.choose(case.name, detectors)
        for entry in entries:
            check_name(entry.name)
        specs = [registry.describe(entry, classes, weights) for entry in entries]
        inputs = Inputs(store, seed)
        planning.refuse_other_seed(inputs, [name for name in store.detectors() if name not in {s.name for s in specs}])
        return cls(case, store, entries, specs, weights, inputs)

    def plan(self, sizes: Sizes, asked: Asked = planning.ALL) -> Plan:
        """What is missing."""
        return planning.plan(self.inputs, self.specs, sizes.unit_images, asked)

    def keys(self, work: Work) -> dict[str, str]:
        """The shards of a unit, by detector."""
        return {
            spec.name: self.inputs.key(spec.fingerprint, work.unit)
            for spec in self.specs
            if spec.name in work.detectors
        }

    def coverage(self) -> dict[str, dict[str, Coverage]]:
        """What became of the images, of the detectors that are there and of those of the run."""
        totals = {source: self.inputs.manifest(source).images.height for source in ("val", "id", "ood")}
        names = sorted({*self.store.detectors(), *(spec.name for spec in self.specs)})
        return {name: coverage(self.store, name, totals) for name in names}

    def failed(self) -> int:
        """Images that the run's detectors failed on, by what the store says."""
        found = self.coverage()
        return sum(each["failed"] for spec in self.specs for each in found[spec.name].values())

    def scope(self, is_limited: bool) -> Scope:
        """What is scored after a run: its detectors, and all others that are complete.

        Where a limited run leaves some of its detectors incomplete, they alone are, beside complete ones that stay as they are.
        """
        found = self.coverage()
        complete = {name for name, splits in found.items() if not any(each["missing"] for each in splits.values())}
        mine = {spec.name for spec in self.specs}
        if not is_limited or mine <= complete:
            return Scope(sorted(mine | complete), is_partial=False, is_trial=False)
        return Scope(sorted(mine if complete else found), is_partial=True, is_trial=bool(complete))

    def refuse_strangers(self) -> None:
        """Refuse what another run with other weights or another seed wrote beside this one."""
        for spec in self.specs:
            for split in self.store.splits:
                for page in self.store.pages(spec.name, split):
                    if not self.inputs.is_valid(page, spec.fingerprint):
                        raise SaodError(
                            f"Another run, with other weights or another --seed, wrote detections of '{spec.name}' on "
                            f"{split} into {self.store.uri} meanwhile: say --replace to make them anew, or use another "
                            "store for one of the two."
                        )

    def compact(self) -> None:
        """Few large shards instead of many small ones, where a split is complete."""
        for spec in self.specs:
            for split in [*self.store.splits, *self.store.val_shift]:
                key = lambda unit, spec=spec: self.inputs.key(spec.fingerprint, unit)  # noqa: E731
                compact(self.store, spec.name, split, self.inputs.images(split).height, spec.fingerprint, key)


def stream(
    job: Job,
    made: Plan,
    sizes: Sizes,
    told: Callable[[Receipt], None],
    decoded: Callable[[int], None] = lambda images: None,
) -> dict[str, Any]:
    """Do a plan's work on the Ray cluster that is connected; returns what is worth knowing about how it went."""
    import ray

    from saod_ray.engine.pool import Pool, Size
    from saod_ray.engine.stream import Limits, Stream
    from saod_ray.engine.workers import Worker

    def begun(names: Sequence[str]) -> None:
        planning.discard(job.store, [page for page in made.stale if page.detector in names])

    begun([name for name, missing in made.missing.items() if not missing])  # other pages have the same images
    has = ray.cluster_resources()
    gpus, cpus = has.get("GPU", 0.0), has.get("CPU", 1.0)
    share = sizes.gpus if sizes.gpus is not None else float(gpus > 0)
    slots = gpus // share if share else 0.0  # actors that have a GPU, or a part of one, right now
    busy = [k for k, spec in enumerate(job.specs) if made.missing[spec.name]]
    groups = grouped(busy, sizes.group or _group(len(busy), slots, cpus, share))
    low, high = sizes.actors or _actors(len(groups), slots if share else cpus)
    actor: Any = ray.remote(
        max_restarts=0, max_task_retries=0, num_gpus=share, num_cpus=_cpus(cpus, min(len(groups) * high, slots))
    )(Worker)
    pools = [
        Pool(_crew(job, group, "cuda" if share else "cpu", sizes), Size(low, high), actor.remote) for group in groups
    ]
    room = min(has.get("object_store_memory", 2**31) * 0.3 / _bytes(job, made), len(groups) * high + AHEAD)
    limits = Limits(job.case.root, CPU_DECODE, max(2, math.floor(room)))
    Stream(job.inputs, pools, limits, told, decoded, begun).run(made.work, job.keys)
    return {"actors": {",".join(p.names): {"started": p.started, "lost": p.lost} for p in pools}}


def _crew(job: Job, group: Sequence[int], device: str, sizes: Sizes) -> Crew:
    return Crew(
        entries=tuple(job.entries[k] for k in group),
        specs=tuple(job.specs[k] for k in group),
        classes=tuple(job.store.description.classes),
        weights=job.weights,
        store=job.store.absolute,
        store_digest=job.store.identity(),
        device=device,
        batch_size=sizes.batch_size,
        threads=1,
    )


def grouped(numbers: Sequence[int], size: int) -> list[list[int]]:
    """Groups of at most so many.

    >>> grouped([0, 1, 4], 2)
    [[0, 1], [4]]
    """
    return [list(numbers[k : k + size]) for k in range(0, len(numbers), size)]


def _group(detectors: int, slots: float, cpus: float, share: float) -> int:
    """One detector an actor where each can have its own share of GPUs (or two cores); else as many as it takes.

    >>> _group(6, 8, 16, 1.0), _group(6, 2, 16, 1.0), _group(6, 0, 2, 0.0), _group(6, 0, 4, 1.0)
    (1, 3, 6, 1)
    """
    if share:
        return math.ceil(detectors / slots) if slots else 1
    return 1 if cpus >= 2 * detectors else max(1, detectors)


def _cpus(cpus: float, actors: float) -> float:
    """Of an actor: less where so many have GPUs that they would leave no core to decode on.

    >>> _cpus(8, 4), _cpus(2, 4), _cpus(2, 0)
    (0.75, 0.375, 0.75)
    """
    return min(CPU_ACTOR, CPU_ACTOR * cpus / actors) if actors else CPU_ACTOR


def _actors(groups: int, slots: float) -> tuple[int, int]:
    """At least one; at most all that the other groups leave, so that a slow detector gets more.

    >>> _actors(1, 2), _actors(6, 8), _actors(6, 0)
    ((2, 2), (1, 3), (1, 1))
    """
    high = max(1, int(slots) - groups + 1)
    return (1 if groups > 1 else high), high


def _bytes(job: Job, made: Plan) -> float:
    """Of a unit's pixels in memory, on average; 1 MB an image where its size is not known."""
    work = made.work[0].unit
    images = job.inputs.images(work.split)
    pixels = (images["width"].cast(float) * images["height"].cast(float) * 3).fill_null(1e6).mean()
    largest = max(each.unit.stop - each.unit.start for each in made.work)
    return max(1.0, float(pixels or 1e6) * largest)  # type: ignore[arg-type]


class Errors:
    """How many images each detector failed on, in this run and before, and how many may."""

    def __init__(self, made: Plan, most: float) -> None:
        self.failed = dict(made.failed)
        self._totals = {name: made.missing[name] + made.cached[name] for name in made.missing}
        self._most = most

    def note(self, receipt: Receipt) -> None:
        """Count a shard's, and end a run that has too many."""
        self.failed[receipt.detector] += receipt.failed
        self.refuse_too_many()

    def refuse_too_many(self) -> None:
        """Refuse a detector that failed on too many images."""
        for name, count in self.failed.items():
            if count > self._most * self._totals[name]:
                raise TooManyFailedError(
                    f"'{name}' failed on {count:,} of {self._totals[name]:,} images, more than --max-errors {self._most}: "
                    "look at the `error` column of its shards, mend the cause, and run again with --retry-failed."
                )


class TooManyFailedError(SaodError):
    """A run that failed on too many images."""

    code = 3
