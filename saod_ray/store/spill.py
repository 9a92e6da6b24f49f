"""Detections on their way from a file's order to shards, which are runs of consecutive images, through files on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from saod_ray.errors import SaodError, join_truncated
from saod_ray.store import coco_results
from saod_ray.store.rows import UNCERTAINTIES, Array, Rows
from saod_ray.store.store import Store

SHARD_IMAGES = 4096
# what bounds the memory of an import
SHARD_DETECTIONS = 1_000_000
IMAGE_DETECTIONS = 1_000_000
BUCKETS = 512
HALVING = 200_000  # detections read at a time


@dataclass(frozen=True)
class Index:
    """From the ids in the file to image ids by rising order, and from categories to labels."""

    source_ids: Array  # sorted
    position: Array  # of each source id among the image ids
    image_ids: Array  # sorted
    categories: Array  # sorted
    label: Array  # of each category
    use_case: str

    @classmethod
    def of(cls, store: Store, split: str, unit: str) -> Index:
        images = store.images(split, unit)
        by_source = images.sort("source_id")
        image_ids = np.sort(images["image_id"].to_numpy())
        return cls(
            source_ids=by_source["source_id"].to_numpy(),
            position=np.searchsorted(image_ids, by_source["image_id"].to_numpy()),
            image_ids=image_ids,
            categories=np.sort(store.description.category_ids),
            label=np.argsort(store.description.category_ids).astype(np.int16),
            use_case=store.description.name,
        )

    def positions(self, ids: Array, file: str) -> Array:
        found: Array = self.position[_find(self.source_ids, ids, "image id", self.use_case, file)]
        return found

    def labels(self, categories: Array, file: str) -> Array:
        return self.label[_find(self.categories, categories, "category id", self.use_case, file)]


def _find(known: Array, ids: Array, what: str, use_case: str, file: str) -> Array:
    """Where each id is among the sorted known ones; unknown ones are refused by name."""
    at = np.searchsorted(known, ids)
    found = at < len(known)
    if len(known):
        found &= known[np.minimum(at, len(known) - 1)] == ids
    if not found.all():
        strangers = join_truncated(np.unique(ids[~found]).tolist())
        raise SaodError(
            f"{file}: {what} {strangers} is not in the use case '{use_case}': check --split and --use-case."
        )
    return at


@dataclass
class Spill:
    """Detections on their way from the file's order to one run of images a shard."""

    folder: Path
    index: Index
    file: Path
    shard_images: int
    seen: int = 0
    widths: tuple[int, int] | None = None
    exact: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        images = max(len(self.index.image_ids), 1)
        self.bucket = self.shard_images  # images a spill file; some whole number of them makes a shard
        while self.bucket % 2 == 0 and images // self.bucket < BUCKETS // 2:
            self.bucket //= 2
        self.counts = np.zeros(images, np.int64)  # detections an image

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
        self.counts += np.bincount(position, minlength=len(self.counts))
        self._refuse_crowded()
        self._append(records, position // self.bucket * self.bucket)

    def _refuse_crowded(self) -> None:
        most = int(self.counts.max())
        if most > IMAGE_DETECTIONS:
            raise SaodError(
                f"{self.file}: image {self.index.image_ids[self.counts.argmax()]} has over {IMAGE_DETECTIONS:,} detections: "
                "keep those with the highest scores and import again."
            )

    def _append(self, records: Array, first: Array) -> None:
        """Append records to the spill files of the runs that begin at image `first`."""
        order = np.argsort(first, kind="stable")
        starts, at = np.unique(first[order], return_index=True)
        for start, part in zip(starts, np.split(order, at[1:]), strict=True):
            with (self.folder / f"{start}").open("ab") as out:
                out.write(records[part].tobytes())

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
        with np.errstate(over="ignore"):
            for name, values in (("box", box), *_columns(records).items()):
                checks[name] = bool((values.astype(np.float32) == values).all())
        for name, holds in checks.items():
            self.exact[name] = self.exact.get(name, True) and holds

    def shards(self) -> Iterator[Rows]:
        """The rows of each shard, by rising image id; images without detections are rows too.

        A shard is a run of images with spill files of its own; the runs of crowded images are cut in half until
        they are small.
        """
        images = len(self.counts)
        waiting = [(first, min(first + self.bucket, images)) for first in range(0, images, self.bucket)][::-1]
        taken: list[tuple[int, int]] = []
        while waiting:
            first, last = waiting.pop()
            if last - first > 1 and self._many(first, last):
                waiting += self._halved(first, last)[::-1]
                continue
            if taken and (self._many(taken[0][0], last) or last - taken[0][0] > self.shard_images):
                yield self._rows(taken)
                taken = []
            taken.append((first, last))
        yield self._rows(taken)

    def _many(self, first: int, last: int) -> bool:
        return int(self.counts[first:last].sum()) > SHARD_DETECTIONS

    def _halved(self, first: int, last: int) -> list[tuple[int, int]]:
        """Spill a run again as two, reading a bounded part of it at a time."""
        middle = (first + last) // 2
        whole = (self.folder / f"{first}").rename(self.folder / "halving")
        with whole.open("rb") as file:
            while data := file.read(self._record().itemsize * HALVING):
                records = np.frombuffer(data, self._record())
                self._append(records, np.where(records["position"] < middle, first, middle))
        whole.unlink()
        return [(first, middle), (middle, last)]

    def _rows(self, runs: list[tuple[int, int]]) -> Rows:
        position = np.arange(runs[0][0], min(runs[-1][1], len(self.index.image_ids)))
        records = np.concatenate([self._taken(first) for first, _ in runs])
        records = records[np.argsort(records["position"], kind="stable")]
        offsets = np.searchsorted(records["position"], np.arange(runs[0][0], runs[0][0] + len(position) + 1))
        columns = {"label": np.ascontiguousarray(records["label"]), "box": _corners(records["bbox"])}
        columns |= _columns(records)
        for name, values in columns.items():
            if name != "label" and self.exact.get(name, True):
                columns[name] = values.astype(np.float32)
        if not self.exact.get("size", True):
            columns["size"] = np.ascontiguousarray(records["bbox"][:, 2:])
        return Rows(self.index.image_ids[position], offsets, columns)

    def _taken(self, first: int) -> Array:
        path = self.folder / f"{first}"
        if not path.exists():
            return np.empty(0, self._record())
        records = np.fromfile(path, self._record())
        path.unlink()
        return records


def _corners(bbox: Array) -> Array:
    return np.concatenate([bbox[:, :2], bbox[:, :2] + bbox[:, 2:]], axis=1)


def _columns(records: Array) -> dict[str, Array]:
    """The float columns of a shard except the box."""
    names = UNCERTAINTIES[: records["uncertainty"].shape[1]]
    columns = {name: np.ascontiguousarray(records["uncertainty"][:, k]) for k, name in enumerate(names)}
    if records["variance"].shape[1]:
        columns["variance"] = np.ascontiguousarray(records["variance"])
    return {"score": np.ascontiguousarray(records["score"]), **columns}
