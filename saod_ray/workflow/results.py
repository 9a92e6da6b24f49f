"""Score a store, and write a report of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.data.images import ImageLimits
    from saod_ray.files import Folder
    from saod_ray.report.results_source import ResultsSource
    from saod_ray.score.benchmark import Benchmark, ScoredDetector
    from saod_ray.score.bootstrap import Bootstrap
    from saod_ray.score.metrics import CustomMetric
    from saod_ray.score.results import BenchmarkResult
    from saod_ray.store.store import Store

Progress = Callable[[int, int], None]  # done, total


class ScoredStore(NamedTuple):
    """The results of a scoring, and the file they were written to."""

    results: BenchmarkResult
    path: str  # of results.json
    content: bytes  # of that file
    changes: str = ""  # since the store's previous results, as one sentence; empty if there were none


def previous_results(store: Store) -> BenchmarkResult | None:
    """The store's results.json; None if it is absent or damaged, since scoring replaces it."""
    from saod_ray.report.results import read_results

    try:
        return read_results(store)
    except SaodError:
        return None


def choose_resamples(store: Store, bootstrap: int | None, seed: int | None = None) -> Bootstrap | None:
    """The resamples of a scoring: those of the store's results, unless `bootstrap` gives their number (0 for none).

    `seed` defaults to that of the store's results if their number is used, else to 0.
    """
    from saod_ray.score.bootstrap import Bootstrap

    if bootstrap is None:
        previous = previous_results(store)
        record = None if previous is None else previous.resampling
        return None if record is None else Bootstrap(record.replicates, record.seed if seed is None else seed)
    return Bootstrap(bootstrap, seed or 0) if bootstrap else None


def score_benchmark(
    benchmark: Benchmark, names: Sequence[str], metrics: Sequence[CustomMetric] = (), progress: Progress | None = None
) -> tuple[BenchmarkResult, dict[str, ScoredDetector]]:
    """The results of these detectors, and the per-detector scores that they were assembled from."""
    from saod_ray.report.results import results

    scored = benchmark.score(names, progress)
    if metrics:
        from saod_ray.score.custom import with_metrics

        scored = with_metrics(benchmark, scored, metrics)
    assembled = results(benchmark.store, benchmark.settings, scored, benchmark.partial, benchmark.resamples)
    return assembled, scored


def score_to_files(
    benchmark: Benchmark,
    names: Sequence[str],
    target: tuple[Folder, str],
    *,
    metrics: Sequence[CustomMetric] = (),
    address: str | None = None,
    progress: Progress | None = None,
) -> ScoredStore:
    """Score detectors, on the cluster at `address` if given, and write the results and the self-aware detectors.

    `target` is the folder and name of the results file; self-aware detectors go to `selfaware/` in that folder. Outside
    of the store, `NAME.store.json` beside `NAME.json` names the store.
    """
    from saod_ray.report.changes import describe_changes
    from saod_ray.report.results_source import record_store
    from saod_ray.score.split import refuse_lacking
    from saod_ray.store.seals import encode_json

    target[0].refuse_unwritable(target[1])
    refuse_lacking(benchmark.store, benchmark.settings.uncertainty, names)
    previous = previous_results(benchmark.store)
    if address is not None:
        from saod_ray.engine.cluster import connected
        from saod_ray.engine.scoring import score_ahead

        with connected(address):
            score_ahead(benchmark, list(names), progress)
    results, scored = score_benchmark(benchmark, names, metrics, progress)
    content = encode_json(results)
    folder, file = target
    folder.write_if_changed(file, content)
    record_store(folder, file, benchmark.store)
    for name, entry in scored.items():
        folder.write_if_changed(f"selfaware/{name}.json", encode_json(entry.selfaware))
    changes = "" if previous is None else describe_changes(previous, results, benchmark.store.uri)
    return ScoredStore(results, folder.display_path(file), content, changes)


def write_report(
    place: Store | ResultsSource,
    out: Path | None = None,
    data: str | None = None,
    figures: Path | None = None,
    *,
    progress: Progress | None = None,
    limits: ImageLimits | None = None,
) -> str:
    """Write the report of a scored store or of a results file, and return its path.

    Args:
        place: A store with results.json, or a results file whose store is known.
        out: The HTML file; by default `report.html` beside results.json, or `NAME.html` beside another `NAME.json`.
        data: The folder of the images; the use case's own root by default.
        figures: A folder for the charts as SVG and PDF, and the tables as LaTeX.
        progress: Called with (done, total).
        limits: Which images to read.
    """
    from saod_ray.data.images import OTHERS_IMAGES
    from saod_ray.files import Folder, check_folder
    from saod_ray.report.results_source import to_source

    source = to_source(place)
    if figures is not None:
        check_folder(figures, "--figures")
    folder, target = (source.folder, source.report_name) if out is None else (Folder(str(out.parent)), out.name)
    folder.refuse_unwritable(target)
    modules = report_modules()
    report_data = modules.data.gather(source, progress)
    choice = modules.figures.initial_choice(report_data)
    experiments = modules.stored_experiments(report_data.benchmark, choice, report_data.results)
    content = modules.page.report(report_data, data, experiments, limits or OTHERS_IMAGES)
    for name, file in modules.page.separate_files(report_data, experiments) if figures is not None else ():
        Folder(str(figures)).write_if_changed(name, file)
    folder.write_if_changed(target, content)
    return folder.display_path(target) if out is None else str(out)


class _ReportModules:
    """The modules that draw reports; they need the optional packages of `saod-ray[report]`."""

    def __init__(self) -> None:
        from saod_ray.experiment.render import stored_experiments
        from saod_ray.report import data, figures, page

        self.data, self.figures, self.page, self.stored_experiments = data, figures, page, stored_experiments


def report_modules() -> _ReportModules:
    """The modules that draw reports. Raises SaodError if a package is missing."""
    try:
        return _ReportModules()
    except ModuleNotFoundError as error:
        message = f"A report needs {error.name}: install it with `pip install 'saod-ray[report]'`."
        raise SaodError(message) from error
