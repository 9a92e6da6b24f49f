"""One split of one detector as arrays, read from its shards or from the cache.

Nothing here depends on the settings except the kind of uncertainty. What is computed for a shard is cached in the store
under the digests of the shard and of the ground truth, so that the next scoring does not compute it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from saod_ray.config import UNCERTAINTIES, ScoreSettings
from saod_ray.errors import SaodError, join_truncated
from saod_ray.score import uncertainty as unc
from saod_ray.score.matching import overlaps
from saod_ray.score.objects import GroundTruth, area_bits
from saod_ray.splits import SplitName
from saod_ray.store.cache import cache_key
from saod_ray.store.ledger import Shard
from saod_ray.store.rows import OPTIONAL
from saod_ray.store.store import Store

Array = np.ndarray
FORMAT = 1  # of cache entries: increase it when any of the computations changes


@dataclass(frozen=True)
class SplitDetections:
    """Detections in ascending order of image ids, with their overlaps with objects in place of boxes.

    The detections of image i are at offsets[i] to offsets[i + 1], the overlaps of detection d at pair_start[d] to
    pair_start[d + 1].
    """

    images: Array  # (images,) positions among the sorted image ids of the source
    offsets: Array  # (images + 1,) int64
    label: Array  # (detections,) int16
    score: Array  # (detections,) float64
    area: Array  # (detections,) uint8: bits of area ranges, see `area_bits`
    pair_start: Array  # (detections + 1,) int64
    pair_object: Array  # (pairs,) int32: index of the object
    pair_iou: Array  # (pairs,) float64

    @classmethod
    def from_boxes(
        cls, images: Array, offsets: Array, label: Array, score: Array, box: Array, size: Array, objects: GroundTruth
    ) -> SplitDetections:
        """Compute overlaps from boxes, (detections, 4): x1, y1, x2, y2, and sizes, (detections, 2): width, height."""
        ground = (objects.start, objects.label, objects.box, objects.size, objects.crowd)
        pair_detection, pair_object, pair_iou = overlaps(images, offsets, label, box, size, *ground)
        pairs = np.bincount(pair_detection, minlength=len(label))
        return cls(
            images=images,
            offsets=offsets,
            label=label,
            score=score,
            area=area_bits(size[:, 0] * size[:, 1]),
            pair_start=np.concatenate([[0], np.cumsum(pairs, dtype=np.int64)]),
            pair_object=pair_object,
            pair_iou=pair_iou,
        )

    def with_score(self, score: Array) -> SplitDetections:
        """The same detections with other scores."""
        return replace(self, score=score)

    def select(self, keep: Array) -> SplitDetections:
        """The detections of a mask. All images are kept."""
        chosen = np.flatnonzero(keep)
        taken, pair_start = _ranges(self.pair_start[chosen], self.pair_start[chosen + 1] - self.pair_start[chosen])
        return SplitDetections(
            images=self.images,
            offsets=np.searchsorted(chosen, self.offsets),
            label=self.label[chosen],
            score=self.score[chosen],
            area=self.area[chosen],
            pair_start=pair_start,
            pair_object=self.pair_object[taken],
            pair_iou=self.pair_iou[taken],
        )

    def kept_by(self, keep: Callable[[SplitDetections], Array]) -> SplitDetections:
        """The detections that a mask function selects."""
        return self.select(keep(self))

    def on_images(self, keep: Array) -> SplitDetections:
        """The images of a mask, with their detections."""
        selected = self.select(np.repeat(keep, np.diff(self.offsets)))
        counts = np.diff(selected.offsets)[keep]
        return replace(selected, images=self.images[keep], offsets=np.concatenate([[0], np.cumsum(counts)]))


def ground_truth(store: Store, source: str) -> GroundTruth:
    """The ground truth of val, id or ood, from the cache if possible."""
    description = store.description
    classes = len(description.classes)
    key = cache_key("objects", FORMAT, description.manifests[source], classes, *description.subsets)
    arrays = store.cache.arrays(key)
    if arrays is not None:
        return GroundTruth(**arrays, classes=classes)
    truth = GroundTruth.from_manifest(store.manifest(source), classes, description.subsets)
    store.cache.put_arrays(key, {name: value for name, value in vars(truth).items() if name != "classes"})
    return truth


def load(
    store: Store,
    detector: str,
    split: str,
    objects: GroundTruth,
    keep: Callable[[SplitDetections], Array] | None = None,
) -> SplitDetections:
    """Load all shards of a split. The result does not depend on how images are distributed over shards.

    `keep` returns a mask of the detections to load. It is applied shard by shard, to save memory. The split must have
    shards.
    """
    parts = []
    for shard in store.shards(detector, split):
        part = load_shard(store, detector, split, shard, objects)
        parts.append(part if keep is None else part.select(keep(part)))
    return _by_image([part for part in parts if len(part.images)] or parts[:1])


def load_shard(store: Store, detector: str, split: str, shard: Shard, objects: GroundTruth) -> SplitDetections:
    """The detections of one shard, in its order."""
    key = _shard_key(store, split, shard, "geometry")
    arrays = store.cache.arrays(key) or _geometry(store, detector, split, shard, objects, key)
    return SplitDetections(
        images=positions(objects.image_ids, arrays["image_id"], split),
        offsets=arrays["offsets"],
        label=arrays["label"],
        score=arrays["score"].astype(np.float64),
        area=arrays["area"],
        pair_start=np.concatenate([[0], np.cumsum(arrays["pairs"], dtype=np.int64)]),
        pair_object=arrays["object"],
        pair_iou=arrays["iou"],
    )


def _geometry(
    store: Store, detector: str, split: str, shard: Shard, objects: GroundTruth, key: str
) -> dict[str, Array]:
    """Compute and cache what matching needs of a shard: labels, scores, and overlaps with objects."""
    rows = store.read_shard(detector, split, shard, ["label", "score", "box", "size"])
    images = positions(objects.image_ids, rows.image_id, split)
    # copies, because the kernels are compiled for writable arrays and Arrow's are read-only
    label = np.array(rows.columns["label"])
    if len(label) and not 0 <= label.min() <= label.max() < objects.classes:
        raise SaodError(
            f"The shard {shard.name} of {detector} on {split} has labels that are not classes of the use case: run "
            f"`saod-ray verify {store.uri}`."
        )
    box = rows.columns["box"].astype(np.float64)
    size = np.array(rows.columns["size"]) if "size" in rows.columns else box[:, 2:] - box[:, :2]
    computed = SplitDetections.from_boxes(images, rows.offsets, label, rows.columns["score"], box, size, objects)
    arrays = {
        "iou": computed.pair_iou,
        "offsets": rows.offsets,
        "image_id": rows.image_id,
        "object": computed.pair_object,
        "score": computed.score,
        "label": label,
        "pairs": np.diff(computed.pair_start).astype(np.uint16),
        "area": computed.area,
    }
    store.cache.put_arrays(key, arrays)
    return arrays


def positions(image_ids: Array, shard_ids: Array, split: str) -> Array:
    """The positions of a shard's image ids among the sorted ids of the source; SaodError for an unknown id."""
    at = np.minimum(np.searchsorted(image_ids, shard_ids), max(len(image_ids) - 1, 0))
    if len(shard_ids) and not (len(image_ids) and (image_ids[at] == shard_ids).all()):
        raise SaodError(
            f"A shard of {split} has images that the use case does not: run `saod-ray verify` on the store."
        )
    return at


def _by_image(parts: list[SplitDetections]) -> SplitDetections:
    """Concatenate parts and sort them by image; SaodError if an image is in two of them."""
    parts = sorted(parts, key=lambda part: int(part.images[0]) if len(part.images) else -1)
    merged = _concatenate(parts) if len(parts) > 1 else parts[0]
    if (np.diff(merged.images) > 0).all():
        return merged
    order = np.argsort(merged.images, kind="stable")
    if (np.diff(merged.images[order]) == 0).any():
        raise SaodError("An image occurs in two shards: run `saod-ray verify` on the store.")
    counts = np.diff(merged.offsets)
    detections, offsets = _ranges(merged.offsets[order], counts[order])
    pairs = np.diff(merged.pair_start)[detections]
    taken, pair_start = _ranges(merged.pair_start[detections], pairs)
    return SplitDetections(
        images=merged.images[order],
        offsets=offsets,
        label=merged.label[detections],
        score=merged.score[detections],
        area=merged.area[detections],
        pair_start=pair_start,
        pair_object=merged.pair_object[taken],
        pair_iou=merged.pair_iou[taken],
    )


def _ranges(starts: Array, lengths: Array) -> tuple[Array, Array]:
    """The concatenated indices of ranges, and where each range begins in them.

    >>> _ranges(np.array([5, 0]), np.array([2, 3]))[0].tolist()
    [5, 6, 0, 1, 2]
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths), offsets


def _concatenate(parts: list[SplitDetections]) -> SplitDetections:
    def concatenated(name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts])

    def shifted_starts(name: str) -> Array:
        ends = np.cumsum([0, *(getattr(part, name)[-1] for part in parts)])
        starts = [getattr(part, name)[:-1] + end for part, end in zip(parts, ends, strict=False)]
        return np.concatenate([*starts, ends[-1:]])

    return SplitDetections(
        images=concatenated("images"),
        offsets=shifted_starts("offsets"),
        label=concatenated("label"),
        score=concatenated("score"),
        area=concatenated("area"),
        pair_start=shifted_starts("pair_start"),
        pair_object=concatenated("pair_object"),
        pair_iou=concatenated("pair_iou"),
    )


def _shard_key(store: Store, split: str, shard: Shard, what: str) -> str:
    """The cache key of something (`what`) that is computed from a shard and the ground truth."""
    return cache_key(FORMAT, shard.sha256, store.description.manifests[SplitName(split).source], what)


# image-level uncertainty ----------------------------------------------------------------------------------------


def uncertainty_kinds(store: Store, detector: str) -> list[str]:
    """The uncertainties that the detector's shards have the columns for, in the order of `UNCERTAINTIES`."""
    columns = {"score", *OPTIONAL}
    for split in ("val", "id", "ood"):
        shards = [shard for shard in store.shards(detector, split) if shard.detections]
        if shards:
            columns &= {"score", *store.read_shard(detector, split, shards[0], OPTIONAL).columns}
    return [kind for kind in UNCERTAINTIES if columns.issuperset(unc.required_columns(kind))]


def refuse_lacking(store: Store, kind: str, detectors: Sequence[str]) -> None:
    """Raise SaodError if some detectors do not have the columns of an uncertainty; it names those that have them."""
    if kind == "score":
        return
    kinds = {name: uncertainty_kinds(store, name) for name in detectors}
    lacking = [name for name in detectors if kind not in kinds[name]]
    if not lacking:
        return
    required = unc.required_columns(kind)
    columns = f"column{'s' * (len(required) > 1)} " + " and ".join(f"'{column}'" for column in required)
    able = [name for name in detectors if kind in kinds[name]]
    common = [other for other in UNCERTAINTIES if all(other in kinds[name] for name in detectors)]
    choice = f"give --detectors {','.join(able)} to use those that have it, or" if able else "use"
    raise SaodError(
        f"The uncertainty '{kind}' needs the {columns}, which {join_truncated(lacking)} "
        f"{'lacks' if len(lacking) == 1 else 'lack'}: {choice} another --uncertainty ({join_truncated(common, 11)})."
    )


def image_uncertainty(
    store: Store, detector: str, split: str, kind: str, aggregate: str, image_ids: Array, val: unc.Range | None = None
) -> tuple[Array, Array]:
    """The positions of a split's images in ascending order, and their uncertainties, (images,) float64.

    Args:
        store: The store.
        detector: Name of the detector.
        split: Name of the split.
        kind: The setting `uncertainty`.
        aggregate: The setting `aggregate`.
        image_ids: Sorted image ids of the source.
        val: Ranges of val's entropies, if `kind` needs them.
    """
    limit = unc.smallest_count(aggregate)
    positions_by_shard, values = [np.empty(0, np.int64)], [np.empty(0)]
    for shard in store.shards(detector, split):
        arrays = _sums(store, detector, split, shard, kind, limit, val)
        positions_by_shard.append(positions(image_ids, arrays["image_id"], split))
        column = arrays["sums"][:, limit - 1 if limit <= unc.CACHED_SMALLEST else 0]
        values.append(unc.aggregate_sums(aggregate, column, arrays["count"]))
    images = np.concatenate(positions_by_shard)
    order = np.argsort(images, kind="stable")
    if (np.diff(images[order]) == 0).any():
        repeated = image_ids[images[order][1:][np.diff(images[order]) == 0]]
        raise SaodError(
            f"Images {join_truncated(repeated)} of {split} occur in two shards: run `saod-ray verify {store.uri}`."
        )
    return images[order], np.concatenate(values)[order]


def _sums(
    store: Store, detector: str, split: str, shard: Shard, kind: str, limit: int, val: unc.Range | None
) -> dict[str, Array]:
    """Sums of the `limit` smallest uncertainties of each image of a shard; running sums if `limit` is small."""
    is_running = limit <= unc.CACHED_SMALLEST
    key = _shard_key(store, split, shard, f"{kind} {'smallest' if is_running else limit} {val or ''}")
    arrays = store.cache.arrays(key)
    if arrays is None:
        columns = dict.fromkeys([*unc.required_columns(kind), "score"])
        rows = store.read_shard(detector, split, shard, list(columns))
        values = unc.per_detection(kind, rows.columns, val) if rows.detections else np.empty(0)
        score = rows.columns["score"].astype(np.float64)
        if is_running:
            sums, count = unc.smallest_sums(rows.offsets, values, score)
        else:
            sums, count = unc.ascending_sums(rows.offsets, values, score, limit)
        arrays = {"image_id": rows.image_id, "sums": sums, "count": count}
        store.cache.put_arrays(key, arrays)
    return arrays


def cache_shard(
    store: Store, detector: str, split: str, shard: Shard, objects: GroundTruth, settings: ScoreSettings
) -> None:
    """Compute and cache what a scoring needs of a shard: overlaps with objects, and uncertainties."""
    if SplitName(split).has_objects:
        load_shard(store, detector, split, shard, objects)
    if settings.uncertainty != "joint-entropy-normalised":  # needs all of val first
        _sums(store, detector, split, shard, settings.uncertainty, unc.smallest_count(settings.aggregate), None)


def entropy_ranges(store: Store, detector: str) -> unc.Range:
    """The ranges of classification and localisation entropy over all detections on val."""
    entropy, gaussian = [], []
    for shard in store.shards(detector, "val"):
        rows = store.read_shard(detector, "val", shard, ["entropy", "variance"])
        if rows.detections or rows.columns:
            entropy.append(unc.per_detection("entropy", rows.columns))
            gaussian.append(unc.per_detection("gaussian-entropy", rows.columns))
    return unc.Range(_range(entropy), _range(gaussian))


def _range(parts: list[Array]) -> tuple[float, float]:
    values = np.concatenate(parts) if parts else np.zeros(1)
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
