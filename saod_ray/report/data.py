"""What a report shows beyond results.json, read from the store: small tables of plain values, computed once.

A detector's tables are kept in the store's cache under the digests of its shards, the ground truth and the settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from saod_ray.config import ScoreSettings, source_of
from saod_ray.errors import SaodError
from saod_ray.report import acceptance, calibration, shift
from saod_ray.report.judged import judge
from saod_ray.report.results import results as results_value
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.split import FORMAT as SCORE_FORMAT
from saod_ray.score.split import image_uncertainty, positions
from saod_ray.selfaware import SelfAware
from saod_ray.store.cache import content_key
from saod_ray.store.results_file import read_results
from saod_ray.store.seals import KEY
from saod_ray.store.store import Store

FORMAT = 1  # of the cached tables: raise it when any of them changes
MOST_FAILURES = 200  # of a detector, listed one by one
Progress = Callable[[int, int], None]
Table = list[dict[str, Any]]


@dataclass(frozen=True)
class Heads:
    """What a split's shards say of images beside their detections, by rising position."""

    images: np.ndarray
    corruption: list[str | None]
    error: list[str | None]


@dataclass(frozen=True)
class Gathered:
    """results.json, DAQ under the other conventions, each detector's tables and its self-aware detector."""

    results: dict[str, Any]
    other_daq: dict[str, float | None]
    tables: dict[str, dict[str, Any]]
    selfaware: dict[str, SelfAware]
    benchmark: Benchmark


def gather(store: Store, progress: Progress | None = None) -> Gathered:
    """Everything a report shows but the pictures. Refuses results that the store's detections no longer give."""
    results = read_results(store)
    names = sorted(results["detectors"])
    known = {key: value for key, value in results["settings"].items() if key in ScoreSettings.model_fields}
    settings = ScoreSettings.of(**known)
    partial = bool(results.get("partial"))
    for name in names:
        store.choose([name])
    resamples = None if KEY in results else _resamples(results)  # what no digest vouches for is computed again
    benchmark = Benchmark(store, settings, partial, resamples)
    scored = benchmark.score(names)
    _refuse_stale(store, results, results_value(benchmark.store, settings, scored, partial, resamples))
    other = settings.model_copy(update={"conventions": "paper" if settings.conventions == "official" else "official"})
    others = Benchmark(store, other, partial).score(names)
    mine = {name: SelfAware.of_json(scored[name].selfaware) for name in names}
    tables = {}
    for number, name in enumerate(names, 1):
        tables[name] = _tables(benchmark, name, mine[name], results["detectors"][name])
        if progress:
            progress(number, len(names))
    return Gathered(results, {name: others[name].figures["daq"] for name in names}, tables, mine, benchmark)


def _resamples(results: dict[str, Any]) -> Bootstrap | None:
    asked = results.get("bootstrap")
    return None if asked is None else Bootstrap(asked["replicates"], asked["seed"])


def _refuse_stale(store: Store, results: dict[str, Any], expected: dict[str, Any]) -> None:
    """Refuse results that the store does not give now: values, intervals where they were computed again, provenance."""
    now = json.loads(json.dumps(expected))
    for name, values in now["detectors"].items():
        then = results["detectors"][name]
        if any(then.get(key) != value for key, value in values.items()):
            raise SaodError(
                f"results.json in {store.uri} is not what the detections of '{name}' there give now: run "
                f"`saod-ray score {store.uri}` again with the settings you want."
            )
    for key in ("use_case", "detections"):
        if results["provenance"][key] != now["provenance"][key]:
            raise SaodError(
                f"results.json in {store.uri} names another origin ({key}) than the store has: run `saod-ray score "
                f"{store.uri}` again."
            )


def _tables(benchmark: Benchmark, detector: str, mine: SelfAware, figures: dict[str, Any]) -> dict[str, Any]:
    store = benchmark.store
    parts = ["report", str(FORMAT), str(SCORE_FORMAT), detector, benchmark.settings.model_dump_json()]
    parts += store.description.manifests.values()
    for split in store.splits:
        parts += [split, *(shard.sha256 for shard in store.shards(detector, split))]
    key = content_key(*parts)
    known: dict[str, Any] | None = store.cache.value(key)
    if known is None:
        known = json.loads(json.dumps(_computed(benchmark, detector, mine, figures), allow_nan=False))
        store.cache.put_value(key, known)
    return known


def _computed(benchmark: Benchmark, detector: str, mine: SelfAware, figures: dict[str, Any]) -> dict[str, Any]:
    covered = figures["coverage"]
    present = [split for split in covered if covered[split].get("missing", 0) < covered[split]["images"]]
    heads = {split: read_heads(benchmark, detector, split) for split in benchmark.store.splits if split in present}
    uncertainty = _uncertainties(benchmark, detector, mine, list(heads))
    edges = acceptance.edges(uncertainty)
    out: dict[str, Any] = {
        "histogram": acceptance.histogram(uncertainty, edges),
        "roc": acceptance.curves(uncertainty),
        "decisions": acceptance.decisions(uncertainty, mine, benchmark.settings),
        "failures": [row for split in heads for row in _failures(benchmark, detector, split, heads[split])],
        "severities": [],
        "corruptions": [],
        "bin_ap": [],
    }
    out["failures"] = out["failures"][:MOST_FAILURES]
    for split in [split for split in heads if source_of(split) == "id"]:
        each = judge(benchmark, detector, split, mine)
        out["severities"].append(shift.severity(each, benchmark))
        out["corruptions"] += shift.corruptions(each, benchmark, heads[split].corruption)
        out["bin_ap"] += acceptance.accuracy_by_bin(each, benchmark, edges)
        if split == "id":
            out |= calibration.tables(each, benchmark, mine)
    return out


def _uncertainties(benchmark: Benchmark, detector: str, mine: SelfAware, present: list[str]) -> dict[str, np.ndarray]:
    """The image-level uncertainties of the ID splits and of each OOD subset (`ood/NAME`)."""
    store, settings = benchmark.store, benchmark.settings
    kind = settings.uncertainty, settings.aggregate
    out: dict[str, np.ndarray] = {}
    for split in [split for split in present if source_of(split) != "val"]:
        objects = benchmark.objects[source_of(split)]
        images, values = image_uncertainty(store, detector, split, *kind, objects.image_ids, mine.ranges)
        if split != "ood":
            out[split] = values
            continue
        for number, name in enumerate(store.description.subsets):
            out[f"ood/{name}"] = values[objects.subset[images] == number]
    return out


def read_heads(benchmark: Benchmark, detector: str, split: str) -> Heads:
    """The corruption drawn and the error of each image of a split."""
    store = benchmark.store
    ids, corruption, error = [np.empty(0, np.int64)], [], []
    for shard in store.shards(detector, split):
        file = store.shard_file(detector, split, shard.name)
        try:
            with store.folder.open(file) as source:
                table = pq.read_table(source, columns=["image_id", "corruption", "error"], use_threads=False)
        except (OSError, pa.ArrowException):
            raise SaodError(
                f"The shard {store.folder.shown(file)} is gone or damaged: `saod-ray verify {store.uri}` says how to "
                "repair it."
            ) from None
        ids.append(table["image_id"].to_numpy())
        corruption += table["corruption"].to_pylist()
        error += table["error"].to_pylist()
    images = positions(benchmark.objects[source_of(split)].image_ids, np.concatenate(ids), split)
    order = np.argsort(images, kind="stable")
    return Heads(images[order], [corruption[k] for k in order], [error[k] for k in order])


def _failures(benchmark: Benchmark, detector: str, split: str, heads: Heads) -> Table:
    ids = benchmark.objects[source_of(split)].image_ids[heads.images]
    rows = zip(ids.tolist(), heads.error, strict=True)
    return [{"detector": detector, "split": split, "image": image, "error": error} for image, error in rows if error]
