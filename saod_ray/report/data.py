"""The data of a report beyond results.json: small tables per detector, computed from the store.

A detector's tables are cached in the store under the digests of its shards, the ground truth and the settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.report import acceptance, calibration, shift
from saod_ray.report.records import CalibrationTables, DetectorTables, Failure
from saod_ray.report.results import results as results_of
from saod_ray.report.results_source import ResultsSource, to_source
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

FORMAT = 2  # of the cached tables; increment it when any of them changes
MOST_FAILURES = 200  # listed per detector
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImageRecords:
    """What the shards of a split record per image beside the detections."""

    images: np.ndarray  # (n,) int64, positions in the manifest, ascending
    corruption: list[str | None]
    error: list[str | None]


@dataclass(frozen=True)
class ReportData:
    """Everything a report shows except the pictures.

    `other_daq` is DAQ under the conventions that the results do not use. The dictionaries are keyed by detector.
    """

    results: BenchmarkResult
    other_daq: dict[str, float | None]
    tables: dict[str, DetectorTables]
    selfaware: dict[str, SelfAware]
    benchmark: Benchmark


def gather(
    place: Store | ResultsSource, progress: Progress | None = None, results: BenchmarkResult | None = None
) -> ReportData:
    """Collect the data of a report on the results of a store or a results file, or on `results`.

    Raises:
        SaodError: The results do not follow from the store's current detections.
    """
    source = to_source(place)
    store, results = source.known_store, results or source.results
    names = sorted(results.detectors)
    settings = ScoreSettings.from_options(**msgspec.to_builtins(results.settings))
    for name in names:
        store.choose([name])
    resamples = None if results.is_sealed else _resamples(results)  # without a digest, intervals are recomputed
    benchmark = Benchmark(store, settings, results.is_partial, resamples)
    scored = benchmark.score(names)
    _refuse_stale(source, results, results_of(benchmark.store, settings, scored, results.is_partial, resamples))
    other = settings.model_copy(update={"conventions": "paper" if settings.conventions == "official" else "official"})
    scored_otherwise = Benchmark(store, other, results.is_partial).score(names)
    self_aware = {name: SelfAware.from_json(scored[name].selfaware) for name in names}
    tables = {}
    for number, name in enumerate(names, 1):
        tables[name] = _tables(benchmark, name, self_aware[name], results[name])
        if progress:
            progress(number, len(names))
    other_daq = {name: scored_otherwise[name].result.daq for name in names}
    return ReportData(results, other_daq, tables, self_aware, benchmark)


def _resamples(results: BenchmarkResult) -> Bootstrap | None:
    record = results.resampling
    return None if record is None else Bootstrap(record.replicates, record.seed)


def _refuse_stale(source: ResultsSource, results: BenchmarkResult, expected: BenchmarkResult) -> None:
    """Raise unless values, recomputed intervals and provenance agree with what the store gives now."""
    where = "there" if source.is_store else f"in {source.known_store.uri}"
    for name, current in expected.detectors.items():
        stated = msgspec.structs.replace(results[name], metrics=msgspec.UNSET)
        if expected.resampling is None:
            stated = msgspec.structs.replace(stated, intervals=msgspec.UNSET)
        if not _agree(msgspec.to_builtins(stated), msgspec.to_builtins(current)):
            raise SaodError(
                f"{source.title} does not match the current detections of '{name}' {where}: run "
                f"`{source.score_command}` again with the settings you want."
            )
    for key in ("use_case", "detections"):
        if getattr(results.provenance, key) != getattr(expected.provenance, key):
            raise SaodError(
                f"{source.title} was computed from other data ({key}) than the store has now: run "
                f"`{source.score_command}` again."
            )


def _agree(stated: object, current: object) -> bool:
    """Whether two JSON values are equal up to rounding, which may differ between package versions."""
    if isinstance(stated, dict) and isinstance(current, dict):
        return stated.keys() == current.keys() and all(_agree(stated[key], current[key]) for key in current)
    if isinstance(stated, list) and isinstance(current, list):
        return len(stated) == len(current) and all(map(_agree, stated, current))
    if isinstance(stated, float) and isinstance(current, float):
        return math.isclose(stated, current, rel_tol=1e-9, abs_tol=1e-12)
    return stated == current


def _tables(benchmark: Benchmark, detector: str, self_aware: SelfAware, result: DetectorResult) -> DetectorTables:
    """The cached tables of a detector, or else compute and cache them."""
    store = benchmark.store
    formats = (FORMAT, SCORE_FORMAT, RESULT_FORMAT)
    settings = benchmark.settings.model_dump_json()
    key = cache_key("report", *formats, detector, settings, *store.content_digests(detector))
    value = store.cache.value(key)
    if value is None:
        value = msgspec.to_builtins(_compute_tables(benchmark, detector, self_aware, result))
        store.cache.put_value(key, value)
    return msgspec.convert(value, DetectorTables)


def _compute_tables(
    benchmark: Benchmark, detector: str, self_aware: SelfAware, result: DetectorResult
) -> DetectorTables:
    coverage = result.coverage
    present = [split for split in coverage if coverage[split].missing_count < coverage[split].images]
    records = {
        split: read_image_records(benchmark, detector, split) for split in benchmark.store.splits if split in present
    }
    uncertainty = _uncertainties(benchmark, detector, self_aware, list(records))
    edges = acceptance.bin_edges(uncertainty)
    failures = [row for split in records for row in _failures(benchmark, detector, split, records[split])]
    tables = DetectorTables(
        histogram=acceptance.histogram(uncertainty, edges),
        roc=acceptance.roc_curves(uncertainty),
        decisions=acceptance.decisions(uncertainty, self_aware, benchmark.settings),
        failures=failures[:MOST_FAILURES],
        severities=[],
        corruptions=[],
        bin_ap=[],
        calibration=CalibrationTables(),
    )
    truth = benchmark.objects["id"]
    for split in [split for split in records if SplitName(split).source == "id"]:
        raw = load(benchmark.store, detector, split, truth)
        evaluation = evaluate_split(benchmark.store, detector, split, truth, self_aware, raw.kept_by)
        tables.severities.append(shift.severity(evaluation, raw, benchmark))
        tables.corruptions.extend(shift.corruptions(evaluation, raw, benchmark, records[split].corruption))
        tables.bin_ap.extend(acceptance.accuracy_by_bin(split, raw, evaluation.uncertainty, benchmark, edges))
        if split == "id":
            on_id = calibration.calibration_tables(evaluation, raw, benchmark, self_aware)
            tables = msgspec.structs.replace(tables, calibration=on_id)
    return tables


def _uncertainties(
    benchmark: Benchmark, detector: str, self_aware: SelfAware, present: list[str]
) -> dict[str, np.ndarray]:
    """The image-level uncertainties, (images,) float64, of the ID splits and of each OOD subset (`ood/NAME`)."""
    store = benchmark.store
    uncertainty: dict[str, np.ndarray] = {}
    for split in [split for split in present if SplitName(split).source != "val"]:
        truth = benchmark.objects[SplitName(split).source]
        decisions = decide(store, detector, split, truth, self_aware)
        if split != "ood":
            uncertainty[split] = decisions.uncertainty
            continue
        for number, name in enumerate(store.description.subsets):
            uncertainty[f"ood/{name}"] = decisions.uncertainty[truth.subset[decisions.images] == number]
    return uncertainty


def read_image_records(benchmark: Benchmark, detector: str, split: str) -> ImageRecords:
    """The drawn corruption and the error of each image of a split.

    Raises:
        SaodError: A shard is missing or damaged.
    """
    store = benchmark.store
    ids, corruption, errors = [np.empty(0, np.int64)], [], []
    for shard in store.shards(detector, split):
        file = store.shard_file(detector, split, shard.name)
        try:
            with store.folder.open(file) as source:
                table = pq.read_table(source, columns=["image_id", "corruption", "error"], use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise SaodError(
                f"The shard {store.folder.display_path(file)} is missing or damaged: `saod-ray verify {store.uri}` says how to "
                "repair it."
            ) from error
        ids.append(table["image_id"].to_numpy())
        corruption += table["corruption"].to_pylist()
        errors += table["error"].to_pylist()
    images = positions(benchmark.objects[SplitName(split).source].image_ids, np.concatenate(ids), split)
    order = np.argsort(images, kind="stable")
    return ImageRecords(images[order], [corruption[k] for k in order], [errors[k] for k in order])


def _failures(benchmark: Benchmark, detector: str, split: str, records: ImageRecords) -> list[Failure]:
    ids = benchmark.objects[SplitName(split).source].image_ids[records.images]
    rows = zip(ids.tolist(), records.error, strict=True)
    return [Failure(detector, split, image, error) for image, error in rows if error]
