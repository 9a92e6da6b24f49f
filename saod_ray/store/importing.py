"""Import of COCO result lists: one pass that spills detections by shard, one that commits the shards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from saod_ray.config import UseCase, source_of
from saod_ray.errors import SaodError, some
from saod_ray.store import coco_results, ledger
from saod_ray.store.json_stream import JsonList
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import UNCERTAINTIES, Array, Rows
from saod_ray.store.scratch import Scratch
from saod_ray.store.store import Store, check_name, check_split

SHARD_IMAGES = 4096
SPILL_BYTES = 192 << 20  # of JSON a shard: what bounds the memory of an import


def import_results(
    uri: str,
    case: UseCase,
    detector: str,
    split: str,
    detections: Path,
    replace: bool = False,
    shard_images: int = SHARD_IMAGES,
    progress: Callable[[int, int], None] | None = None,
) -> Page:
    """Import a COCO result list as the detections of one split (or of one OOD subset, `ood/NAME`).

    All or nothing: the ledger page is committed last, and until then nothing of the store has changed.
    """
    check_name(detector)
    if not detections.is_file():
        raise SaodError(f"There is no file {detections}: give the COCO result JSON with --detections.")
    store = Store.of_use_case(uri, case)
    name, unit = check_split(store, split)
    known = [page.unit for page in store.pages(detector, name)]
    clash = [other for other in known if other == unit or "all" in (other, unit)]
    if clash and not replace:
        raise SaodError(f"{uri} has detections of '{detector}' on {split} already: add --replace to import them again.")
    store.folder.sweep()
    old = {shard.name for shard in store.shards(detector, name)}
    try:
        with Scratch(store) as scratch:
            spill = _Spill(scratch.folder, _Index.of(store, name, unit), detections, shard_images)
            source = JsonList(detections, progress)
            for block in source.blocks():
                spill.add(block)
            origin = Origin("import", detections.name, source.sha256)
            shards = []
            for rows in spill.shards():
                shard_name = _shard_name(store, detector, name, origin, rows.image_id)
                scratch.announce(store.shard_file(detector, name, shard_name))
                shards.append(store.write_shard(detector, name, shard_name, rows))
            page = Page(detector, name, unit, origin, shards)
            ledger.write_page(store.folder, page)
    except OSError as error:
        raise SaodError(
            f"{detections} cannot be imported ({error}): mend that and run the same command again."
        ) from None
    for other in clash:
        if other != unit:
            store.folder.delete(ledger.page_name(detector, name, other))
    for gone in old - {shard.name for shard in store.shards(detector, name)}:
        store.folder.delete(store.shard_file(detector, name, gone))
    return page


def _shard_name(store: Store, detector: str, split: str, origin: Origin, image_ids: Array) -> str:
    """A name made of what the shard is made from: the same work has the same name everywhere."""
    state = hashlib.blake2b(digest_size=16)
    for part in (detector, split, origin.kind, origin.sha256, store.description.manifests[source_of(split)]):
        state.update(part.encode() + b"\0")
    state.update(np.ascontiguousarray(image_ids, "<i8").tobytes())
    return state.hexdigest()


@dataclass(frozen=True)
class _Index:
    """From the ids in the file to image ids by rising order, and from categories to labels."""

    source_ids: Array  # sorted
    position: Array  # of each source id among the image ids
    image_ids: Array  # sorted
    categories: Array
    use_case: str

    @classmethod
    def of(cls, store: Store, split: str, unit: str) -> _Index:
        images = store.images(split, unit)
        by_source = images.sort("source_id")
        image_ids = np.sort(images["image_id"].to_numpy())
        return cls(
            source_ids=by_source["source_id"].to_numpy(),
            position=np.searchsorted(image_ids, by_source["image_id"].to_numpy()),
            image_ids=image_ids,
            categories=np.array(store.description.category_ids),
            use_case=store.description.name,
        )

    def positions(self, ids: Array, file: str) -> Array:
        found: Array = self.position[_find(self.source_ids, ids, "image id", self.use_case, file)]
        return found

    def labels(self, categories: Array, file: str) -> Array:
        return _find(self.categories, categories, "category id", self.use_case, file).astype(np.int16)


def _find(known: Array, ids: Array, what: str, use_case: str, file: str) -> Array:
    """Where each id is among the sorted known ones; unknown ones are refused by name."""
    at = np.searchsorted(known, ids)
    found = at < len(known)
    if len(known):
        found &= known[np.minimum(at, len(known) - 1)] == ids
    if not found.all():
        strangers = some(np.unique(ids[~found]).tolist())
        raise SaodError(
            f"{file}: {what} {strangers} is not in the use case '{use_case}': check --split and --use-case."
        )
    return at


@dataclass
class _Spill:
    """Detections on their way from the file's order to one run of images a shard."""

    folder: Path
    index: _Index
    file: Path
    shard_images: int
    seen: int = 0
    widths: tuple[int, int] | None = None
    exact: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unpacked = self.file.stat().st_size * (12 if self.file.name.endswith(".gz") else 1)
        images = max(len(self.index.image_ids), 1)
        self.parts = max(-(-images // self.shard_images), min(-(-unpacked // SPILL_BYTES), images))
        self.part_images = -(-images // self.parts)

    def add(self, block: bytes) -> None:
        """Check a block of detections and append each to its shard's spill file."""
        x = coco_results.parse(block, self.seen, str(self.file))
        widths = (x.uncertainty.shape[1], x.variance.shape[1])
        if self.widths not in (None, widths):
            raise SaodError(
                f"{self.file}: detections from number {self.seen} on have {sum(widths)} uncertainties where earlier ones "
                f"have {sum(self.widths or ())}: give every detection the same."
            )
        self.widths = widths
        position = self.index.positions(x.image_id, str(self.file))
        records = np.empty(len(position), self._record())
        records["position"] = position
        records["label"] = self.index.labels(x.category_id, str(self.file))
        records["bbox"], records["score"] = x.bbox, x.score
        records["uncertainty"], records["variance"] = x.uncertainty, x.variance
        self._note_exactness(records)
        self.seen += len(records)
        part = position // self.part_images
        order = np.argsort(part, kind="stable")
        starts = np.searchsorted(part[order], np.arange(self.parts + 1))
        for number in range(self.parts):
            if starts[number] < starts[number + 1]:
                with (self.folder / f"{number}").open("ab") as out:
                    out.write(records[order[starts[number] : starts[number + 1]]].tobytes())

    def _record(self) -> np.dtype:
        uncertainties, variances = self.widths or (0, 0)
        return np.dtype(
            [
                ("position", "i4"),
                ("label", "i2"),
                ("bbox", "f8", (4,)),
                ("score", "f8"),
                ("uncertainty", "f8", (uncertainties,)),
                ("variance", "f8", (variances,)),
            ]
        )

    def _note_exactness(self, records: Array) -> None:
        """Remember what float32 holds exactly, and whether x2 - x1 gives the widths back."""
        box = _corners(records["bbox"])
        checks = {"size": bool((box[:, 2:] - box[:, :2] == records["bbox"][:, 2:]).all())}
        for name, values in (("box", box), *_columns(records).items()):
            checks[name] = bool((values.astype(np.float32) == values).all())
        for name, holds in checks.items():
            self.exact[name] = self.exact.get(name, True) and holds

    def shards(self) -> Iterator[Rows]:
        """The rows of each shard, by rising image id; images without detections are rows too."""
        for number in range(self.parts):
            first = number * self.part_images
            image_ids = self.index.image_ids[first : first + self.part_images]
            if len(image_ids) == 0 and number:
                continue
            path = self.folder / f"{number}"
            records = np.fromfile(path, self._record()) if path.exists() else np.empty(0, self._record())
            path.unlink(missing_ok=True)
            records = records[np.argsort(records["position"], kind="stable")]
            offsets = np.searchsorted(records["position"], first + np.arange(len(image_ids) + 1))
            columns = {"label": np.ascontiguousarray(records["label"]), "box": _corners(records["bbox"])}
            columns |= _columns(records)
            for name, values in columns.items():
                if name != "label" and self.exact.get(name, True):
                    columns[name] = values.astype(np.float32)
            if not self.exact.get("size", True):
                columns["size"] = np.ascontiguousarray(records["bbox"][:, 2:])
            yield Rows(image_ids, offsets, columns)


def _corners(bbox: Array) -> Array:
    return np.concatenate([bbox[:, :2], bbox[:, :2] + bbox[:, 2:]], axis=1)


def _columns(records: Array) -> dict[str, Array]:
    """The float columns of a shard except the box."""
    names = UNCERTAINTIES[: records["uncertainty"].shape[1]]
    columns = {name: np.ascontiguousarray(records["uncertainty"][:, k]) for k, name in enumerate(names)}
    if records["variance"].shape[1]:
        columns["variance"] = np.ascontiguousarray(records["variance"])
    return {"score": np.ascontiguousarray(records["score"]), **columns}
