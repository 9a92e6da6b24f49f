"""Sort detections of a file into shards of consecutive images, through temporary files on disk."""

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
# limits that bound the memory of an import
SHARD_DETECTIONS = 1_000_000
IMAGE_DETECTIONS = 1_000_000
BUCKETS = 512  # about the largest number of spill files
HALVING = 200_000  # detections read at a time while a spill file is cut in half


@dataclass(frozen=True)
class SpillIndex:
    """Maps image ids of the file to positions among the sorted image ids, and category ids to labels."""

    source_ids: Array  # sorted
    position: Array  # of each source id among the image ids
    image_ids: Array  # sorted
    categories: Array  # sorted
    label: Array  # of each category
    use_case: str

    @classmethod
    def from_store(cls, store: Store, split: str, unit: str) -> SpillIndex:
        """The ids of a split, or of the OOD subset `unit`."""
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
        """Positions of image ids; SaodError for an id that the use case does not have."""
        positions: Array = self.position[_find(self.source_ids, ids, "image id", self.use_case, file)]
        return positions

    def labels(self, categories: Array, file: str) -> Array:
        """Labels of category ids; SaodError for an id that the use case does not have."""
        return self.label[_find(self.categories, categories, "category id", self.use_case, file)]


def _find(valid_ids: Array, ids: Array, what: str, use_case: str, file: str) -> Array:
    """The index of each id in the sorted valid ids; SaodError lists the others."""
    at = np.searchsorted(valid_ids, ids)
    is_valid = at < len(valid_ids)
    if len(valid_ids):
        is_valid &= valid_ids[np.minimum(at, len(valid_ids) - 1)] == ids
    if not is_valid.all():
        unknown_ids = join_truncated(np.unique(ids[~is_valid]).tolist())
        raise SaodError(
            f"{file}: {what} {unknown_ids} is not in the use case '{use_case}': check --split and --use-case."
        )
    return at


@dataclass
class Spill:
    """Collects detections in the order of the file, and yields the rows of one shard at a time."""

    folder: Path  # for the spill files
    index: SpillIndex
    file: Path  # that is imported, for errors
    shard_images: int
    detection_count: int = 0
    widths: tuple[int, int] | None = None  # numbers of uncertainties and variances per detection
    exact: dict[str, bool] = field(default_factory=dict)  # column → whether float32 holds it exactly

    def __post_init__(self) -> None:
        images = max(len(self.index.image_ids), 1)
        self.bucket = self.shard_images  # images per spill file; a shard is made of one or more spill files
        while self.bucket % 2 == 0 and images // self.bucket < BUCKETS // 2:
            self.bucket //= 2
        self.counts = np.zeros(images, np.int64)  # detections per image

    def add(self, block: bytes) -> None:
        """Check a block of detections and append them to spill files."""
        x = coco_results.parse(block, self.detection_count, str(self.file))
        widths = (x.uncertainty.shape[1], x.variance.shape[1])
        if self.widths not in (None, widths):
            raise SaodError(
                f"{self.file}: detections from number {self.detection_count} on have {sum(widths)} uncertainties where earlier ones "
                f"have {sum(self.widths or ())}: give every detection the same."
            )
        self.widths = widths
        position = self.index.positions(x.image_id, str(self.file))
        records = np.empty(len(position), self._record_dtype())
        records["position"] = position
        records["label"] = self.index.labels(x.category_id, str(self.file))
        records["bbox"], records["score"] = x.bbox, x.score
        records["uncertainty"], records["variance"] = x.uncertainty, x.variance
        self._note_exactness(records)
        self.detection_count += len(records)
        self.counts += np.bincount(position, minlength=len(self.counts))
        self._refuse_crowded()
        self._append(records, position // self.bucket * self.bucket)

    def _refuse_crowded(self) -> None:
        if int(self.counts.max()) > IMAGE_DETECTIONS:
            raise SaodError(
                f"{self.file}: image {self.index.image_ids[self.counts.argmax()]} has over {IMAGE_DETECTIONS:,} detections: "
                "keep those with the highest scores and import again."
            )

    def _append(self, records: Array, first: Array) -> None:
        """Append records to spill files; `first` has the first image of the file that each belongs to."""
        order = np.argsort(first, kind="stable")
        starts, at = np.unique(first[order], return_index=True)
        for start, part in zip(starts, np.split(order, at[1:]), strict=True):
            with (self.folder / f"{start}").open("ab") as out:
                out.write(records[part].tobytes())

    def _record_dtype(self) -> np.dtype:
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
        """Record which columns float32 holds exactly, and whether x2 - x1 is exactly the width."""
        box = _corners(records["bbox"])
        checks = {"size": bool((box[:, 2:] - box[:, :2] == records["bbox"][:, 2:]).all())}
        with np.errstate(over="ignore"):
            for name, values in (("box", box), *_columns(records).items()):
                checks[name] = bool((values.astype(np.float32) == values).all())
        for name, holds in checks.items():
            self.exact[name] = self.exact.get(name, True) and holds

    def shards(self) -> Iterator[Rows]:
        """Yield the rows of each shard in ascending order of image ids, including images without detections.

        A shard is a range of images with its own spill files. A range with too many detections is cut in half until it
        is small enough.
        """
        images = len(self.counts)
        pending = [(first, min(first + self.bucket, images)) for first in range(0, images, self.bucket)][::-1]
        shard_ranges: list[tuple[int, int]] = []
        while pending:
            first, last = pending.pop()
            if last - first > 1 and self._is_too_large(first, last):
                pending += self._cut_in_half(first, last)[::-1]
                continue
            start = shard_ranges[0][0] if shard_ranges else first
            if shard_ranges and (self._is_too_large(start, last) or last - start > self.shard_images):
                yield self._rows(shard_ranges)
                shard_ranges = []
            shard_ranges.append((first, last))
        yield self._rows(shard_ranges)

    def _is_too_large(self, first: int, last: int) -> bool:
        return int(self.counts[first:last].sum()) > SHARD_DETECTIONS

    def _cut_in_half(self, first: int, last: int) -> list[tuple[int, int]]:
        """Split a spill file in two, reading a bounded part of it at a time."""
        middle = (first + last) // 2
        original = (self.folder / f"{first}").rename(self.folder / "halving")
        with original.open("rb") as file:
            while data := file.read(self._record_dtype().itemsize * HALVING):
                records = np.frombuffer(data, self._record_dtype())
                self._append(records, np.where(records["position"] < middle, first, middle))
        original.unlink()
        return [(first, middle), (middle, last)]

    def _rows(self, ranges: list[tuple[int, int]]) -> Rows:
        """The rows of consecutive ranges of images."""
        position = np.arange(ranges[0][0], min(ranges[-1][1], len(self.index.image_ids)))
        records = np.concatenate([self._take_records(first) for first, _ in ranges])
        records = records[np.argsort(records["position"], kind="stable")]
        offsets = np.searchsorted(records["position"], np.arange(ranges[0][0], ranges[0][0] + len(position) + 1))
        columns = {"label": np.ascontiguousarray(records["label"]), "box": _corners(records["bbox"])}
        columns |= _columns(records)
        for name, values in columns.items():
            if name != "label" and self.exact.get(name, True):
                columns[name] = values.astype(np.float32)
        if not self.exact.get("size", True):
            columns["size"] = np.ascontiguousarray(records["bbox"][:, 2:])
        return Rows(self.index.image_ids[position], offsets, columns)

    def _take_records(self, first: int) -> Array:
        """Read and delete the spill file of the range that begins at image `first`."""
        path = self.folder / f"{first}"
        if not path.exists():
            return np.empty(0, self._record_dtype())
        records = np.fromfile(path, self._record_dtype())
        path.unlink()
        return records


def _corners(bbox: Array) -> Array:
    """From x, y, width, height to x1, y1, x2, y2."""
    return np.concatenate([bbox[:, :2], bbox[:, :2] + bbox[:, 2:]], axis=1)


def _columns(records: Array) -> dict[str, Array]:
    """The float columns of a shard except the box."""
    names = UNCERTAINTIES[: records["uncertainty"].shape[1]]
    columns = {name: np.ascontiguousarray(records["uncertainty"][:, k]) for k, name in enumerate(names)}
    if records["variance"].shape[1]:
        columns["variance"] = np.ascontiguousarray(records["variance"])
    return {"score": np.ascontiguousarray(records["score"]), **columns}
