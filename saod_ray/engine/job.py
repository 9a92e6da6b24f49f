"""A run's job: which detectors run on which use case, into which store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from saod_ray.config import DetectorSpec, UseCase, batched_fingerprint
from saod_ray.data.images import OTHERS_IMAGES, ImageLimits
from saod_ray.data.prepare import ImageRequest, PrepareOptions
from saod_ray.detect import registry
from saod_ray.detect.registry import Entry
from saod_ray.engine import plan as planning
from saod_ray.engine.plan import Plan, PlanOptions, ShardInputs
from saod_ray.errors import SaodError
from saod_ray.files import check_folder
from saod_ray.splits import SplitName
from saod_ray.store.build import refuse_missing
from saod_ray.store.compaction import compact
from saod_ray.store.coverage import Coverage, coverage
from saod_ray.store.store import Store, check_name
from saod_ray.store.units import Unit

if TYPE_CHECKING:
    from saod_ray.engine.pipeline import UnitRequest
    from saod_ray.engine.workers import WorkerConfig

DEFAULT_IMAGE_BYTES = 1e6  # of pixels, where the manifest has no sizes


class Scope(NamedTuple):
    """The detectors to score after a run. The results of a trial are kept apart from the store's."""

    detectors: list[str]
    is_partial: bool
    is_trial: bool


def check_request(case: UseCase, detectors: str, store: str | None) -> None:
    """Raise SaodError for mistakes that show before scenes are drawn or annotations read.

    They are unknown detectors, a store that cannot be written to, and missing annotations. Without `store` nothing will
    be written.
    """
    registry.choose(case.name, detectors)
    if store is not None and "://" not in store:
        check_folder(Path(store), "--store")
    if case.made_by is None:
        refuse_missing(case, with_images=False)


@dataclass(frozen=True)
class Job:
    """The detectors of a run, with their fingerprints, the use case, and the store."""

    case: UseCase
    store: Store
    entries: list[Entry]
    specs: list[DetectorSpec]
    weights: Path
    inputs: ShardInputs
    limits: ImageLimits = OTHERS_IMAGES

    @classmethod
    def from_use_case(
        cls,
        case: UseCase,
        uri: str,
        detectors: str,
        weights: Path,
        *,
        seed: int = 0,
        batch_size: int = 1,
        limits: ImageLimits = OTHERS_IMAGES,
    ) -> Job:
        """Open the store and describe the detectors; raises SaodError for any mistake that shows before the run starts."""
        store = Store.open_or_create(uri, case)
        classes = store.description.classes
        entries = registry.choose(case.name, detectors)
        for entry in entries:
            check_name(entry.name)
        specs = []
        for entry in entries:
            spec = registry.describe(entry, classes, weights)
            tagged = batched_fingerprint(spec.fingerprint, batch_size)
            specs.append(spec.model_copy(update={"fingerprint": tagged}))
        inputs = ShardInputs(store, seed)
        run_names = {spec.name for spec in specs}
        planning.refuse_other_seed(inputs, [name for name in store.detectors() if name not in run_names])
        return cls(case, store, entries, specs, weights, inputs, limits)

    @property
    def prepare_options(self) -> PrepareOptions:
        """How the images of the use case are prepared."""
        return PrepareOptions(self.case.root, self.inputs.seed, *self.limits)

    def plan(self, unit_images: int = planning.UNIT_IMAGES, options: PlanOptions = planning.ALL_IMAGES) -> Plan:
        """The units that the store lacks."""
        return planning.make_plan(self.inputs, self.specs, unit_images, options)

    def coverage(self) -> dict[str, dict[str, Coverage]]:
        """Images done and missing per detector and split, for the detectors of the store and of the run."""
        totals = {source: self.inputs.manifest(source).images.height for source in ("val", "id", "ood")}
        names = sorted({*self.store.detectors(), *(spec.name for spec in self.specs)})
        return {name: coverage(self.store, name, totals) for name in names}

    def failed_images(self) -> int:
        """How many images the run's detectors failed on, according to the store."""
        by_detector = self.coverage()
        return sum(split["failed"] for spec in self.specs for split in by_detector[spec.name].values())

    def scope(self, is_limited: bool) -> Scope:
        """What to score after a run: its detectors, and all other complete ones.

        A limited run that leaves its detectors incomplete in a store with complete ones is a trial: only its own
        detectors are scored.
        """
        by_detector = self.coverage()
        complete = {
            name for name, splits in by_detector.items() if not any(split["missing"] for split in splits.values())
        }
        run_names = {spec.name for spec in self.specs}
        if not is_limited or run_names <= complete:
            return Scope(sorted(run_names | complete), is_partial=False, is_trial=False)
        return Scope(sorted(run_names if complete else by_detector), is_partial=True, is_trial=bool(complete))

    def refuse_mixture(self) -> None:
        """Raise SaodError if another run, with other weights or another seed, wrote detections meanwhile."""
        for spec in self.specs:
            for split in self.store.splits:
                for page in self.store.pages(spec.name, split):
                    if not self.inputs.is_valid(page, spec.fingerprint):
                        raise SaodError(
                            f"Another run, with other weights or another --seed, wrote detections of '{spec.name}' on "
                            f"{split} into {self.store.uri} meanwhile: give --replace to redo them, or use another store "
                            "for one of the two."
                        )

    def compact(self) -> None:
        """Merge small shards into large ones, in complete splits."""
        for spec in self.specs:
            for split in [*self.store.splits, *self.store.val_shift]:
                key = lambda unit, spec=spec: self.inputs.key(spec.fingerprint, unit)  # noqa: E731
                compact(self.store, spec.name, split, self.inputs.images(split).height, spec.fingerprint, key)

    def requests(self, plan: Plan, detectors: Sequence[str]) -> list[UnitRequest]:
        """The units of a pipeline that runs these detectors."""
        from saod_ray.engine.pipeline import UnitRequest

        specs = [spec for spec in self.specs if spec.name in detectors]
        images = {split: self._image_requests(split) for split in {planned.unit.split for planned in plan.units}}
        requests = []
        for planned in plan.units:
            unit = planned.unit
            shards = {
                spec.name: self.inputs.key(spec.fingerprint, unit) for spec in specs if spec.name in planned.detectors
            }
            if shards:
                requests.append(UnitRequest(unit, images[unit.split][unit.start : unit.stop], shards))
        return requests

    def _image_requests(self, split: str) -> list[ImageRequest]:
        boxes: dict[int, list[Any]] = {}
        if SplitName(split).is_pseudo_ood:
            by_image = planning.boxes_by_image(self.inputs.manifest("val").objects)
            boxes = {image_id: array.tolist() for image_id, array in by_image.items()}
        rows = self.inputs.images(split).select("image_id", "file_name").iter_rows()
        return [ImageRequest(image_id, name, boxes.get(image_id)) for image_id, name in rows]

    def unit_bytes(self, units: Sequence[Unit]) -> float:
        """The size of the largest unit's pixels, estimated from the manifest's mean image size."""
        images = self.inputs.images(units[0].split)
        pixels = (images["width"].cast(float) * images["height"].cast(float) * 3).fill_null(DEFAULT_IMAGE_BYTES)
        mean = pixels.mean()
        per_image = float(mean) if isinstance(mean, float) else DEFAULT_IMAGE_BYTES
        return max(1.0, per_image * max(unit.image_count for unit in units))

    def worker_config(self, detectors: Sequence[str], device: str, batch_size: int, replaces: bool) -> WorkerConfig:
        """What the pipeline's actors need to know."""
        from saod_ray.engine.workers import WorkerConfig

        positions = [k for k, spec in enumerate(self.specs) if spec.name in detectors]
        return WorkerConfig(
            entries=tuple(self.entries[k] for k in positions),
            specs=tuple(self.specs[k] for k in positions),
            classes=tuple(self.store.description.classes),
            weights=self.weights,
            store=self.store.absolute,
            store_digest=self.store.identity(),
            device=device,
            batch_size=batch_size,
            threads=1,
            replaces=replaces,
        )
