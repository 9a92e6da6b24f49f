"""results.json: every metric, full precision, sorted keys, the same bytes for the same inputs."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping

import msgspec

from saod_ray import __version__
from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.files import Folder
from saod_ray.score import bootstrap
from saod_ray.score.benchmark import ScoredDetector
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.results import (
    BenchmarkResult,
    BootstrapRecord,
    Intervals,
    Provenance,
    SettingsRecord,
    UseCaseRecord,
)
from saod_ray.store import results_file, seals
from saod_ray.store.store import Store
from saod_ray.versions import package_versions

PACKAGES = ("numba", "numpy", "polars", "pyarrow", "scipy")


def results(
    store: Store,
    settings: ScoreSettings,
    scored: Mapping[str, ScoredDetector],
    partial: bool,
    resamples: Bootstrap | None = None,
) -> BenchmarkResult:
    """The content of results.json; with resamples it has intervals, and nothing else differs."""
    description = store.description
    use_case = UseCaseRecord(
        version=description.version, annotations=description.annotations, manifests=description.manifests
    )
    provenance = Provenance(
        saod_ray=__version__,
        python=platform.python_version(),
        packages=package_versions(PACKAGES),
        use_case=use_case,
        detections={name: origins(store, name) for name in scored},
    )
    result = BenchmarkResult(
        use_case=description.name,
        conventions=settings.conventions,
        settings=msgspec.convert(settings.model_dump(mode="json"), SettingsRecord),
        provenance=provenance,
        detectors={name: entry.result for name, entry in scored.items()},
        partial=True if partial else msgspec.UNSET,
    )
    return (result if resamples is None else _with_intervals(result, scored, resamples)).sealed()


def resampling(resamples: Bootstrap) -> BootstrapRecord:
    """How intervals are computed."""
    return BootstrapRecord(replicates=resamples.replicates, seed=resamples.seed, level=bootstrap.LEVEL)


def _with_intervals(
    result: BenchmarkResult, scored: Mapping[str, ScoredDetector], resamples: Bootstrap
) -> BenchmarkResult:
    replicates = {name: entry.replicates for name, entry in scored.items() if entry.replicates is not None}
    # a detector without a DAQ has no rank, even if some resamples (in which IDQ is 0) have one
    ranks = bootstrap.rank_intervals(
        {name: values for name, values in replicates.items() if scored[name].result.daq is not None}
    )
    detectors = dict(result.detectors)
    for name, values in replicates.items():
        detector = scored[name].result
        ends = msgspec.structs.replace(bootstrap.intervals(detector, values), rank=ranks.get(name))
        if isinstance(detector.intervals, Intervals):  # those of custom metrics
            ends = msgspec.structs.replace(ends, metrics=detector.intervals.metrics)
        detectors[name] = msgspec.structs.replace(detector, intervals=ends)
    return msgspec.structs.replace(result, detectors=detectors, bootstrap=resampling(resamples))


def origins(store: Store, detector: str) -> dict[str, dict[str, str]]:
    """What each split's detections were made from."""
    return {split: seals.origins(store, detector, split) for split in store.splits}


def read_results(store: Store) -> BenchmarkResult:
    """The results.json of a store; an error names the command that writes it."""
    try:
        return BenchmarkResult.from_json(results_file.read_results(store))
    except msgspec.ValidationError as error:
        place = store.folder.display_path(results_file.FILE)
        raise SaodError(f"{place} is damaged ({error}): run `saod-ray score {store.uri}` again.") from error


def read_results_file(folder: Folder, name: str, place: str) -> BenchmarkResult:
    """The results of a file of any name, which somebody else may have made; messages call it `place`."""
    value = results_file.read_file(folder, name, place)
    again = f"write it again with `saod-ray score STORE --out {place}`"
    try:
        results = BenchmarkResult.from_json(value)
    except msgspec.ValidationError as error:
        raise SaodError(f"{place} is damaged ({error}): {again}.") from error
    for text in _displayed_texts(results):
        if not text.isprintable():
            raise SaodError(f"{place} has control characters in {text!r}: {again}.")
    return results


def _displayed_texts(results: BenchmarkResult) -> Iterator[str]:
    """The texts of results that a terminal shows."""
    yield from (results.use_case, results.conventions, results.provenance.saod_ray, results.provenance.python)
    yield from map(str, msgspec.structs.astuple(results.settings))
    for name, version in results.provenance.packages.items():
        yield from (name, version)
    for name, result in results.detectors.items():
        yield name
        yield from result.custom
