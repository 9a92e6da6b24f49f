"""One split of one detector as arrays, put together from shards and what is cached about them.

Nothing here depends on the settings except which uncertainty is asked for. What is computed for a shard is kept in
the store under the shard's digest and the ground truth's, so that a second scoring starts from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError, join_truncated
from saod_ray.score import uncertainty as unc
from saod_ray.score.matching import overlaps
from saod_ray.score.objects import GroundTruth, area_bits
from saod_ray.splits import SplitName
from saod_ray.store.cache import cache_key
from saod_ray.store.ledger import Shard
from saod_ray.store.store import Store

Array = np.ndarray
FORMAT = 1  # of what is cached: raise it when any of the computations changes


@dataclass(frozen=True)
class SplitDetections:
    """Detections by rising image id; `images` are positions among the source's sorted image ids.

    The overlaps of detection d are at pair_start[d] to pair_start[d + 1].
    """

    images: Array
    offsets: Array
    label: Array
    score: Array
    area: Array
    pair_start: Array
    pair_object: Array
    pair_iou: Array

    @classmethod
    def from_boxes(
        cls, images: Array, offsets: Array, label: Array, score: Array, box: Array, size: Array, objects: GroundTruth
    ) -> SplitDetections:
        """Detections with their boxes, which matching needs as overlaps with the objects alone."""
        ground = (objects.start, objects.label, objects.box, objects.size, objects.crowd)
        detection, thing, iou = overlaps(images, offsets, label, box, size, *ground)
        pairs = np.bincount(detection, minlength=len(label))
        return cls(
            images=images,
            offsets=offsets,
            label=label,
            score=score,
            area=area_bits(size[:, 0] * size[:, 1]),
            pair_start=np.concatenate([[0], np.cumsum(pairs, dtype=np.int64)]),
            pair_object=thing,
            pair_iou=iou,
        )

    def with_score(self, score: Array) -> SplitDetections:
        """The same detections with other scores."""
        return replace(self, score=score)

    def select(self, keep: Array) -> SplitDetections:
        """The detections of a mask; all images stay."""
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
        """The detections that a function masks."""
        return self.select(keep(self))

    def on_images(self, keep: Array) -> SplitDetections:
        """Only the images of a mask, with their detections."""
        some = self.select(np.repeat(keep, np.diff(self.offsets)))
        counts = np.diff(some.offsets)[keep]
        return replace(some, images=self.images[keep], offsets=np.concatenate([[0], np.cumsum(counts)]))


def ground_truth(store: Store, source: str) -> GroundTruth:
    """The objects of val, id or ood, as arrays that are made once."""
    known = store.description
    key = cache_key("objects", FORMAT, known.manifests[source], len(known.classes), *known.subsets)
    arrays = store.cache.arrays(key)
    if arrays is not None:
        return GroundTruth(**arrays, classes=len(known.classes))
    made = GroundTruth.from_manifest(store.manifest(source), len(known.classes), known.subsets)
    store.cache.put_arrays(key, {name: value for name, value in vars(made).items() if name != "classes"})
    return made


def load(
    store: Store,
    detector: str,
    split: str,
    objects: GroundTruth,
    keep: Callable[[SplitDetections], Array] | None = None,
) -> SplitDetections:
    """Put a split that has shards together; how its images are spread over shards and rows does not matter.

    `keep` gives a mask of the detections that are wanted: the others are left behind before shards are joined.
    """
    parts = []
    for shard in store.shards(detector, split):
        part = load_shard(store, detector, split, shard, objects)
        parts.append(part if keep is None else part.select(keep(part)))
    return _by_image([part for part in parts if len(part.images)] or parts[:1])


def load_shard(store: Store, detector: str, split: str, shard: Shard, objects: GroundTruth) -> SplitDetections:
    """The detections of one shard in its order."""
    key = _key(store, split, shard, "geometry")
    known = store.cache.arrays(key) or _geometry(store, detector, split, shard, objects, key)
    return SplitDetections(
        images=positions(objects.image_ids, known["image_id"], split),
        offsets=known["offsets"],
        label=known["label"],
        score=known["score"].astype(np.float64),
        area=known["area"],
        pair_start=np.concatenate([[0], np.cumsum(known["pairs"], dtype=np.int64)]),
        pair_object=known["object"],
        pair_iou=known["iou"],
    )


def _geometry(
    store: Store, detector: str, split: str, shard: Shard, objects: GroundTruth, key: str
) -> dict[str, Array]:
    """What matching needs of a shard: labels, scores, and the overlaps with objects in place of the boxes."""
    rows = store.read_shard(detector, split, shard, ["label", "score", "box", "size"])
    images = positions(objects.image_ids, rows.image_id, split)
    # copies of what Arrow lends read-only: the kernels are compiled for arrays of one kind
    label = np.array(rows.columns["label"])
    if len(label) and not 0 <= label.min() <= label.max() < objects.classes:
        raise SaodError(
            f"The shard {shard.name} of {detector} on {split} has labels outside of the use case's classes."
        )
    box = rows.columns["box"].astype(np.float64)
    size = np.array(rows.columns["size"]) if "size" in rows.columns else box[:, 2:] - box[:, :2]
    made = SplitDetections.from_boxes(images, rows.offsets, label, rows.columns["score"], box, size, objects)
    known = {
        "iou": made.pair_iou,
        "offsets": rows.offsets,
        "image_id": rows.image_id,
        "object": made.pair_object,
        "score": made.score,
        "label": label,
        "pairs": np.diff(made.pair_start).astype(np.uint16),
        "area": made.area,
    }
    store.cache.put_arrays(key, known)
    return known


def positions(image_ids: Array, wanted: Array, split: str) -> Array:
    """Where image ids are among the source's; an id that is not there means another use case."""
    at = np.minimum(np.searchsorted(image_ids, wanted), max(len(image_ids) - 1, 0))
    if len(wanted) and not (len(image_ids) and (image_ids[at] == wanted).all()):
        raise SaodError(
            f"A shard of {split} has images that the use case does not: run `saod-ray verify` on the store."
        )
    return at


def _by_image(parts: list[SplitDetections]) -> SplitDetections:
    parts = sorted(parts, key=lambda part: int(part.images[0]) if len(part.images) else -1)
    whole = _concatenated(parts) if len(parts) > 1 else parts[0]
    if (np.diff(whole.images) > 0).all():
        return whole
    order = np.argsort(whole.images, kind="stable")
    if (np.diff(whole.images[order]) == 0).any():
        raise SaodError("An image occurs in two shards: run `saod-ray verify` on the store.")
    counts = np.diff(whole.offsets)
    detections, offsets = _ranges(whole.offsets[order], counts[order])
    pairs = np.diff(whole.pair_start)[detections]
    taken, pair_start = _ranges(whole.pair_start[detections], pairs)
    return SplitDetections(
        images=whole.images[order],
        offsets=offsets,
        label=whole.label[detections],
        score=whole.score[detections],
        area=whole.area[detections],
        pair_start=pair_start,
        pair_object=whole.pair_object[taken],
        pair_iou=whole.pair_iou[taken],
    )


def _ranges(starts: Array, lengths: Array) -> tuple[Array, Array]:
    """The indices of ranges laid end to end, and where each begins there.

    >>> _ranges(np.array([5, 0]), np.array([2, 3]))[0].tolist()
    [5, 6, 0, 1, 2]
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths), offsets


def _concatenated(parts: list[SplitDetections]) -> SplitDetections:
    def joined(name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts])

    def chained(name: str) -> Array:
        ends = np.cumsum([0, *(getattr(part, name)[-1] for part in parts)])
        starts = [getattr(part, name)[:-1] + end for part, end in zip(parts, ends, strict=False)]
        return np.concatenate([*starts, ends[-1:]])

    return SplitDetections(
        images=joined("images"),
        offsets=chained("offsets"),
        label=joined("label"),
        score=joined("score"),
        area=joined("area"),
        pair_start=chained("pair_start"),
        pair_object=joined("pair_object"),
        pair_iou=joined("pair_iou"),
    )


def _key(store: Store, split: str, shard: Shard, what: str) -> str:
    """Content decides: the shard's bytes, the ground truth's, and what was computed."""
    return cache_key(FORMAT, shard.sha256, store.description.manifests[SplitName(split).source], what)


# image-level uncertainty ----------------------------------------------------------------------------------------


def image_uncertainty(
    store: Store, detector: str, split: str, kind: str, aggregate: str, image_ids: Array, val: unc.Range | None = None
) -> tuple[Array, Array]:
    """The positions of a split's images, rising, and their uncertainties."""
    many = unc.used_of(aggregate)
    where, values = [np.empty(0, np.int64)], [np.empty(0)]
    for shard in store.shards(detector, split):
        known = _sums(store, detector, split, shard, kind, many, val)
        where.append(positions(image_ids, known["image_id"], split))
        column = known["sums"][:, many - 1 if many <= unc.KEPT else 0]
        values.append(unc.aggregated(aggregate, column, known["count"]))
    images = np.concatenate(where)
    order = np.argsort(images, kind="stable")
    if (np.diff(images[order]) == 0).any():
        twice = image_ids[images[order][1:][np.diff(images[order]) == 0]]
        raise SaodError(
            f"Images {join_truncated(twice)} of {split} occur in two shards: run `saod-ray verify {store.uri}`."
        )
    return images[order], np.concatenate(values)[order]


def _sums(
    store: Store, detector: str, split: str, shard: Shard, kind: str, many: int, val: unc.Range | None
) -> dict[str, Array]:
    """Sums of the smallest uncertainties of each of a shard's images: running ones where those that are kept suffice."""
    cut = many <= unc.KEPT
    key = _key(store, split, shard, f"{kind} {'smallest' if cut else many} {val or ''}")
    known = store.cache.arrays(key)
    if known is None:
        columns = dict.fromkeys([*unc.columns_of(kind), "score"])
        rows = store.read_shard(detector, split, shard, list(columns))
        each = unc.per_detection(kind, rows.columns, val) if rows.detections else np.empty(0)
        score = rows.columns["score"].astype(np.float64)
        if cut:
            sums, count = unc.smallest_sums(rows.offsets, each, score)
        else:
            sums, count = unc.ascending_sums(rows.offsets, each, score, many)
        known = {"image_id": rows.image_id, "sums": sums, "count": count}
        store.cache.put_arrays(key, known)
    return known


def look_ahead(
    store: Store, detector: str, split: str, shard: Shard, objects: GroundTruth, settings: ScoreSettings
) -> None:
    """Leave in the store's cache what a scoring looks up about a shard: its overlaps with objects, and uncertainties."""
    if SplitName(split).has_objects:
        load_shard(store, detector, split, shard, objects)
    if settings.uncertainty != "joint-entropy-normalised":  # which needs all of val first
        _sums(store, detector, split, shard, settings.uncertainty, unc.used_of(settings.aggregate), None)


def entropy_ranges(store: Store, detector: str) -> unc.Range:
    """The ranges of classification and localisation entropy over val's detections."""
    entropy, gaussian = [], []
    for shard in store.shards(detector, "val"):
        rows = store.read_shard(detector, "val", shard, ["entropy", "variance"])
        if rows.detections or rows.columns:
            entropy.append(unc.per_detection("entropy", rows.columns))
            gaussian.append(unc.per_detection("gaussian-entropy", rows.columns))
    both = [np.concatenate(values) if values else np.zeros(1) for values in (entropy, gaussian)]
    lows_highs = [(float(values.min()), float(values.max())) if len(values) else (0.0, 0.0) for values in both]
    return unc.Range(*lows_highs)
