"""The evaluation of a split as polars frames: matches per detection, decisions per image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.evaluation import counted_images, decide, evaluate, keep_rule
from saod_ray.score.matching import DROPPED, FP, IGNORED, TP
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.split import load_shard
from saod_ray.score.uncertainty import NO_DETECTION
from saod_ray.splits import SplitName
from saod_ray.store import frames
from saod_ray.store.ledger import Shard

OUTCOMES = pl.Enum(["tp", "fp", "ignored", "dropped"])
_NAMES = {TP: "tp", FP: "fp", IGNORED: "ignored", DROPPED: "dropped"}


class MatchFrames:
    """Evaluates a split shard by shard. Images do not depend on each other."""

    def __init__(self, benchmark: Benchmark, detector: str, split: str, self_aware: SelfAware) -> None:
        if not SplitName(split).has_objects:
            raise SaodError(f"{split} has no objects to match: use detections('{detector}', '{split}') or images(...).")
        self._benchmark, self._store = benchmark, benchmark.store
        self._detector, self._split, self._self_aware = detector, split, self_aware
        self._truth = benchmark.objects[SplitName(split).source]
        self._detections = frames.DetectionFrames(self._store, detector, split)
        self._decisions = decide(self._store, detector, split, self._truth, self_aware)
        self._object_ids = (
            self._store.manifest(SplitName(split).source).objects["object_id"].to_numpy()[self._truth.rank]
        )
        self.schema: dict[str, pl.DataType] = {
            **self._detections.schema,
            "calibrated": pl.Float64(),
            "outcome": OUTCOMES,
            "iou": pl.Float64(),
            "object_id": pl.Int64(),
            "accepted": pl.Boolean(),
        }

    def shard_frame(self, shard: Shard, columns: Sequence[str]) -> pl.DataFrame:
        """The detections of a shard with their outcomes."""
        part = load_shard(self._store, self._detector, self._split, shard, self._truth)
        keep = keep_rule(self._self_aware, self._decisions, self._truth)(part)
        evaluation = evaluate(
            self._split,
            part.select(keep),
            self._truth,
            self._self_aware.settings,
            calibrators=self._self_aware.calibrators,
            severities=self._store.description.severities,
        )
        rows, matches = np.flatnonzero(keep), evaluation.matches
        calibrated, iou = np.full(len(keep), np.nan), np.zeros(len(keep))
        outcome, matched = np.full(len(keep), DROPPED, np.int8), np.full(len(keep), -1)
        calibrated[rows], iou[rows] = evaluation.calibrated.score, matches.iou
        outcome[rows], matched[rows] = matches.state, matches.object
        accepted = self._decisions.by_position(len(self._truth.image_ids))[part.images]
        object_id = pl.Series(np.append(self._object_ids, 0)[matched], dtype=pl.Int64)
        frame = self._detections.shard_frame(shard, columns)
        return frame.with_columns(
            pl.Series("calibrated", calibrated).fill_nan(None),
            pl.Series("outcome", outcome).replace_strict(_NAMES, return_dtype=OUTCOMES),
            pl.Series("iou", iou),
            pl.select(pl.when(pl.lit(pl.Series(matched >= 0))).then(object_id).alias("object_id")).to_series(),
            pl.Series("accepted", np.repeat(accepted, np.diff(part.offsets))),
        )

    def lazy(self) -> pl.LazyFrame:
        """A lazy frame over all shards of the split."""
        shards = frames.shards_of(self._store, self._detector, self._split)
        return frames.lazy_shards(shards, self.schema, self.shard_frame)

    def counted_objects(self) -> pl.DataFrame:
        """The non-crowd objects on the images that count, see `counted_images`."""
        mask = counted_images(self._split, self._decisions.accepted)
        ids = pl.Series("image_id", self._truth.image_ids[self._decisions.images[mask]])
        table = frames.objects(self._store, SplitName(self._split).source)
        return table.filter(~pl.col("crowd") & pl.col("image_id").is_in(ids.implode()))


def images(benchmark: Benchmark, detector: str, split: str, self_aware: SelfAware) -> pl.DataFrame:
    """One row per image: its uncertainty (null without detections), and whether it is accepted."""
    truth = benchmark.objects[SplitName(split).source]
    decisions = decide(benchmark.store, detector, split, truth, self_aware)
    decided = pl.DataFrame(
        {
            "image_id": truth.image_ids[decisions.images],
            "uncertainty": np.where(decisions.uncertainty == NO_DETECTION, np.nan, decisions.uncertainty),
            "accepted": decisions.accepted,
        }
    ).with_columns(pl.col("uncertainty").fill_nan(None))
    table = frames.images(benchmark.store, detector, split)
    return table.join(decided, on="image_id", how="left", maintain_order="left")
