"""What a report shows beyond results.json, read from the store: small tables of plain values, computed once.

A detector's tables are kept in the store's cache under the digests of its shards, the ground truth and the settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.report import acceptance, calibration, shift
from saod_ray.report.records import CalibrationTables, DetectorTables, Failure
from saod_ray.report.results import read_results
from saod_ray.report.results import results as results_of
from saod_ray.score.benchmark import RESULT_FORMAT, Benchmark
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.evaluation import decide, evaluate_split
from saod_ray.score.results import BenchmarkResult, DetectorResult
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.split import FORMAT as SCORE_FORMAT
from saod_ray.score.split import load, positions
from saod_ray.splits import SplitName
from saod_ray.store.cache import cache_key
from saod_ray.store.store import Store

FORMAT = 2  # of the cached tables: raise it when any of them changes
MOST_FAILURES = 200  # per detector, listed one by one
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Heads:
    """What a split's shards say of images beside their detections, by rising position."""

    images: np.ndarray
    corruption: list[str | None]
    error: list[str | None]


@dataclass(frozen=True)
class ReportData:
    """results.json, DAQ under the other conventions, each detector's tables and its self-aware detector."""

    results: BenchmarkResult
    other_daq: dict[str, float | None]
    tables: dict[str, DetectorTables]
    selfaware: dict[str, SelfAware]
    benchmark: Benchmark


def gather(store: Store, progress: Progress | None = None, results: BenchmarkResult | None = None) -> ReportData:
    """Everything a report shows but the pictures, of results.json unless other results are given.

    Refuses results that the store's detections no longer give.
    """
    results = results or read_results(store)
    names = sorted(results.detectors)
    settings = ScoreSettings.from_options(**msgspec.to_builtins(results.settings))
    for name in names:
        store.choose([name])
    resamples = None if results.is_sealed else _resamples(results)  # what no digest vouches for is computed again
    benchmark = Benchmark(store, settings, results.is_partial, resamples)
    scored = benchmark.score(names)
    _refuse_stale(store, results, results_of(benchmark.store, settings, scored, results.is_partial, resamples))
    other = settings.model_copy(update={"conventions": "paper" if settings.conventions == "official" else "official"})
    others = Benchmark(store, other, results.is_partial).score(names)
    self_aware = {name: SelfAware.from_json(scored[name].selfaware) for name in names}
    tables = {}
    for number, name in enumerate(names, 1):
        tables[name] = _tables(benchmark, name, self_aware[name], results[name])
        if progress:
            progress(number, len(names))
    return ReportData(results, {name: others[name].result.daq for name in names}, tables, self_aware, benchmark)


def _resamples(results: BenchmarkResult) -> Bootstrap | None:
    record = results.resampling
    return None if record is None else Bootstrap(record.replicates, record.seed)


def _refuse_stale(store: Store, results: BenchmarkResult, expected: BenchmarkResult) -> None:
    """Refuse results that the store does not give now: values, intervals where they were recomputed, provenance."""
    for name, now in expected.detectors.items():
        stated = msgspec.structs.replace(results[name], metrics=msgspec.UNSET)
        if expected.resampling is None:
            stated = msgspec.structs.replace(stated, intervals=msgspec.UNSET)
        if not _agree(msgspec.to_builtins(stated), msgspec.to_builtins(now)):
            raise SaodError(
                f"results.json in {store.uri} is not what the detections of '{name}' there give now: run "
                f"`saod-ray score {store.uri}` again with the settings you want."
            )
    for key in ("use_case", "detections"):
        if getattr(results.provenance, key) != getattr(expected.provenance, key):
            raise SaodError(
                f"results.json in {store.uri} names another origin ({key}) than the store has: run `saod-ray score "
                f"{store.uri}` again."
            )


def _agree(stated: Any, now: Any) -> bool:
    """Whether two JSON values are the same but for the last digits, which another version may round differently."""
    if isinstance(stated, dict) and isinstance(now, dict):
        return stated.keys() == now.keys() and all(_agree(stated[key], now[key]) for key in now)
    if isinstance(stated, list) and isinstance(now, list):
        return len(stated) == len(now) and all(map(_agree, stated, now))
    if isinstance(stated, float) and isinstance(now, float):
        return math.isclose(stated, now, rel_tol=1e-9, abs_tol=1e-12)
    return bool(stated == now)


def _tables(benchmark: Benchmark, detector: str, self_aware: SelfAware, result: DetectorResult) -> DetectorTables:
    store = benchmark.store
    formats = (FORMAT, SCORE_FORMAT, RESULT_FORMAT)
    settings = benchmark.settings.model_dump_json()
    key = cache_key("report", *formats, detector, settings, *store.content_digests(detector))
    value = store.cache.value(key)
    if value is None:
        value = msgspec.to_builtins(_computed(benchmark, detector, self_aware, result))
        store.cache.put_value(key, value)
    return msgspec.convert(value, DetectorTables)


def _computed(benchmark: Benchmark, detector: str, self_aware: SelfAware, result: DetectorResult) -> DetectorTables:
    covered = result.coverage
    present = [split for split in covered if covered[split].missing_count < covered[split].images]
    heads = {split: read_heads(benchmark, detector, split) for split in benchmark.store.splits if split in present}
    uncertainty = _uncertainties(benchmark, detector, self_aware, list(heads))
    edges = acceptance.edges(uncertainty)
    failures = [row for split in heads for row in _failures(benchmark, detector, split, heads[split])]
    tables = DetectorTables(
        histogram=acceptance.histogram(uncertainty, edges),
        roc=acceptance.curves(uncertainty),
        decisions=acceptance.decisions(uncertainty, self_aware, benchmark.settings),
        failures=failures[:MOST_FAILURES],
        severities=[],
        corruptions=[],
        bin_ap=[],
        calibration=CalibrationTables(),
    )
    truth = benchmark.objects["id"]
    for split in [split for split in heads if SplitName(split).source == "id"]:
        raw = load(benchmark.store, detector, split, truth)
        evaluation = evaluate_split(benchmark.store, detector, split, truth, self_aware, raw.kept_by)
        tables.severities.append(shift.severity(evaluation, raw, benchmark))
        tables.corruptions.extend(shift.corruptions(evaluation, raw, benchmark, heads[split].corruption))
        tables.bin_ap.extend(acceptance.accuracy_by_bin(split, raw, evaluation.uncertainty, benchmark, edges))
        if split == "id":
            tables_of_id = calibration.tables(evaluation, raw, benchmark, self_aware)
            tables = msgspec.structs.replace(tables, calibration=tables_of_id)
    return tables


def _uncertainties(
    benchmark: Benchmark, detector: str, self_aware: SelfAware, present: list[str]
) -> dict[str, np.ndarray]:
    """The image-level uncertainties of the ID splits and of each OOD subset (`ood/NAME`)."""
    store = benchmark.store
    out: dict[str, np.ndarray] = {}
    for split in [split for split in present if SplitName(split).source != "val"]:
        truth = benchmark.objects[SplitName(split).source]
        decisions = decide(store, detector, split, truth, self_aware)
        if split != "ood":
            out[split] = decisions.uncertainty
            continue
        for number, name in enumerate(store.description.subsets):
            out[f"ood/{name}"] = decisions.uncertainty[truth.subset[decisions.images] == number]
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
                f"The shard {store.folder.display_path(file)} is gone or damaged: `saod-ray verify {store.uri}` says how to "
                "repair it."
            ) from None
        ids.append(table["image_id"].to_numpy())
        corruption += table["corruption"].to_pylist()
        error += table["error"].to_pylist()
    images = positions(benchmark.objects[SplitName(split).source].image_ids, np.concatenate(ids), split)
    order = np.argsort(images, kind="stable")
    return Heads(images[order], [corruption[k] for k in order], [error[k] for k in order])


def _failures(benchmark: Benchmark, detector: str, split: str, heads: Heads) -> list[Failure]:
    ids = benchmark.objects[SplitName(split).source].image_ids[heads.images]
    rows = zip(ids.tolist(), heads.error, strict=True)
    return [Failure(detector, split, image, error) for image, error in rows if error]
