"""The Python API: open a store, look at its detections, score it, write its report, run detectors into it.

Heavy packages are imported when they are used.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saod_ray.errors import SaodError, did_you_mean, join_truncated

if TYPE_CHECKING:
    import polars as pl

    from saod_ray.config import ScoreSettings
    from saod_ray.predict.self_aware_detector import SelfAwareDetector
    from saod_ray.report.charts import Chart
    from saod_ray.report.leaderboard import Leaderboard
    from saod_ray.score.benchmark import Benchmark
    from saod_ray.score.metrics import CustomMetric
    from saod_ray.score.results import BenchmarkResult
    from saod_ray.store.store import Store
    from saod_ray.workflow import RunEvents

Progress = Callable[[int, int], None]
CHART_WIDTH = 480
CHART_ALIASES = {"reliability": "reliability-after"}


class BenchmarkStore:
    """A store of detections, opened for reading and scoring.

    Frames are lazy: nothing is read before `collect()`, and then only the columns in use. Settings are those of
    `saod-ray score` with underscores: `calibrator`, `uncertainty`, `aggregate`, `image_threshold`,
    `detection_threshold`, `tau`, `bins`, `conventions`, `daq_weights`, `idq_weights`. Settings that you leave out are
    those of the store's results.json, or the defaults.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._fitted: dict[tuple[str, ScoreSettings], SelfAwareDetector] = {}

    # contents ---------------------------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The store's folder or URI."""
        return self._store.uri

    @property
    def use_case(self) -> str:
        """The name of the use case."""
        return self._store.description.name

    @property
    def detectors(self) -> list[str]:
        """The detectors that have detections here."""
        return self._store.detectors()

    @property
    def splits(self) -> list[str]:
        """The splits of a complete detector."""
        return self._store.splits

    @property
    def classes(self) -> list[str]:
        """The classes of the use case; labels are indices into them."""
        return list(self._store.description.classes)

    def detections(self, detector: str, split: str) -> pl.LazyFrame:
        """One row per raw detection.

        Columns: `image_id`, `file_name`, `class`, `label`, `x1`, `y1`, `x2`, `y2` (pixels), `score`, and the
        detector's uncertainties (`entropy`, `ds`, ...).
        """
        from saod_ray.store import frames

        return frames.detections(self._store, self._detector(detector), self._split(split))

    def matches(self, detector: str, split: str, **settings: Any) -> pl.LazyFrame:
        """The detections of an ID split (or of val) with the outcome of their evaluation.

        Adds `calibrated` (the calibrated score, or null), `outcome` (`tp`, `fp`, `ignored`: matched to a crowd,
        `dropped`: below its class's threshold, on a rejected image, or beyond the first hundred of its image and class),
        `iou`, `object_id` and `accepted` (of the image).
        """
        from saod_ray.score.tables import MatchFrames

        name, split_name = self._detector(detector), self._split(split)
        benchmark = self._benchmark(settings)
        return MatchFrames(benchmark, name, split_name, self.self_aware(name, **settings)).lazy()

    def images(self, detector: str, split: str, **settings: Any) -> pl.LazyFrame:
        """One row per image of a split: `uncertainty`, `accepted`, `status`, `corruption`, `subset`, ..."""
        from saod_ray.score import tables

        name, split_name = self._detector(detector), self._split(split)
        benchmark = self._benchmark(settings)
        return tables.images(benchmark, name, split_name, self.self_aware(name, **settings)).lazy()

    def objects(self, split: str) -> pl.LazyFrame:
        """One row per object of a split's images: `object_id`, `image_id`, `class`, box, `area`, `crowd`."""
        from saod_ray.splits import SplitName
        from saod_ray.store import frames

        return frames.objects(self._store, SplitName(self._split(split)).source).lazy()

    # scoring ----------------------------------------------------------------------------------------------------

    def self_aware(self, detector: str, **settings: Any) -> SelfAwareDetector:
        """The self-aware detector fitted on val: image threshold, detection thresholds and calibrators."""
        from saod_ray.predict.self_aware_detector import SelfAwareDetector

        name, benchmark = self._detector(detector), self._benchmark(settings)
        key = (name, benchmark.settings)
        if key not in self._fitted:
            cached = benchmark.cached(name)
            if cached is not None:
                self._fitted[key] = SelfAwareDetector.from_json(cached.selfaware)
            else:
                benchmark.refuse_unfit(name, benchmark.coverage(name), benchmark.fit_splits())
                self._fitted[key] = SelfAwareDetector.from_self_aware(benchmark.fit_self_aware(name))
        return self._fitted[key]

    def score(
        self,
        detectors: str | Sequence[str] | None = None,
        *,
        metrics: Sequence[CustomMetric] = (),
        bootstrap: int = 0,
        seed: int = 0,
        partial: bool = False,
        progress: Progress | None = None,
        **settings: Any,
    ) -> BenchmarkResult:
        """Compute every metric of all or some detectors. No inference; only caches are written.

        Args:
            detectors: Names, or None for all.
            metrics: Custom metrics, declared with `saod_ray.metric`.
            bootstrap: Number of resamples of the images for 95 % intervals; 0 for no intervals.
            seed: Random seed for the resamples.
            partial: Score a store in which images are missing.
            progress: Called with (done, total).
            settings: See the class.
        """
        from saod_ray.score.bootstrap import Bootstrap
        from saod_ray.workflow import score_benchmark

        names = self._store.choose(_to_names(detectors))
        resamples = Bootstrap(bootstrap, seed) if bootstrap else None
        benchmark = self._benchmark(settings, partial)
        benchmark.resamples = resamples
        return score_benchmark(benchmark, names, metrics, progress)[0]

    def results(self) -> BenchmarkResult:
        """The store's results.json."""
        from saod_ray.report.results import read_results

        return read_results(self._store)

    def chart(self, name: str, detector: str | None = None, **settings: Any) -> Chart:
        """A chart of the report: `reliability`, `reliability-before`, `uncertainty`, `roc`, `calibrators`, `parts`, ...

        Charts of a single detector show `detector`, the best one by default.
        """
        from saod_ray.workflow import report_modules

        modules = report_modules()
        detectors = None if detector is None else [self._detector(detector)]
        results = self.score(detectors, **settings)
        report_data = modules.data.gather(self._store, results=results)
        charts = modules.figures.charts_by_name(report_data)
        key = CHART_ALIASES.get(name, name)
        if key not in charts:
            valid = [*CHART_ALIASES, *charts]
            raise SaodError(
                f"There is no chart '{name}'{did_you_mean(name, valid)}: there are {join_truncated(valid, 30)}."
            )
        return modules.figures.standalone(charts[key], report_data, CHART_WIDTH)

    # names ------------------------------------------------------------------------------------------------------

    def _detector(self, name: str) -> str:
        (detector,) = self._store.choose([name])
        return detector

    def _split(self, name: str) -> str:
        from saod_ray.store.store import check_split

        split, subset = check_split(name, [*self.splits, *self._store.val_shift], self._store.description.subsets)
        if subset != "all":
            raise SaodError(f"'{name}' is part of a split: use '{split}' and filter its images by subset '{subset}'.")
        return split

    @cached_property
    def _settings(self) -> ScoreSettings:
        from saod_ray.report.diff import last_settings

        return last_settings(self._store)

    def _benchmark(self, settings: dict[str, Any], partial: bool = True) -> Benchmark:
        from saod_ray.config import ScoreSettings
        from saod_ray.score.benchmark import Benchmark

        merged = ScoreSettings.from_options(**{**self._settings.model_dump(), **settings})
        return Benchmark(self._store, merged, partial)

    def __repr__(self) -> str:
        names = join_truncated(self.detectors) or "no detectors"
        return f"<store {self.uri} of {self.use_case}: {names}; splits {', '.join(self.splits)}>"

    def _repr_html_(self) -> str:
        """An HTML table with the number of images per detector and split."""
        head = "".join(f"<th>{html.escape(text)}</th>" for text in ("detector", *self.splits))
        rows = []
        for name in self.detectors:
            counts = [sum(shard.images for shard in self._store.shards(name, split)) for split in self.splits]
            cells = "".join(f"<td>{count:,}</td>" for count in counts)
            rows.append(f"<tr><th>{html.escape(name)}</th>{cells}</tr>")
        title = f"{html.escape(self.use_case)} in {html.escape(self.uri)}: images per split"
        return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def open(store: str | os.PathLike[str]) -> BenchmarkStore:
    """Open a store: a folder, or a URI of a filesystem that pyarrow supports. Raises SaodError."""
    from saod_ray.store.store import Store

    return BenchmarkStore(Store.open(_uri(store)))


def score(
    store: str | os.PathLike[str], detectors: str | Sequence[str] | None = None, **options: Any
) -> BenchmarkResult:
    """Open a store and score it: short for `open(store).score(detectors, ...)`."""
    return open(store).score(detectors, **options)


def leaderboard(*sources: str | os.PathLike[str]) -> Leaderboard:
    """Join stores and results files of one use case, one row per source and detector, best DAQ first.

    Its `frame` is a polars frame, `to_html(path)` writes a page, and `warnings` says where seeds, versions, conventions
    or settings differ. Raises SaodError if the use cases, classes or images differ.
    """
    from saod_ray.report.leaderboard import Leaderboard

    return Leaderboard.open([_uri(source) for source in sources])


def report(
    results: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    figures: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> str:
    """Write the report of a scored store or of a results file, and return its path.

    Args:
        results: The folder or URI of a store, or a results file.
        out: The HTML file; by default `report.html` beside results.json, or `NAME.html` beside another `NAME.json`.
        store: The store that a results file was scored from, if it is not found beside the file.
        data: The folder of the images; the use case's own root by default.
        figures: A folder for the charts as SVG and PDF, and the tables as LaTeX.
        progress: Called with (done, total).
    """
    from saod_ray.files import check_target
    from saod_ray.report.results_source import ResultsSource
    from saod_ray.workflow import write_report

    target = None if out is None else Path(out)
    if target is not None:
        check_target(target)
    source = ResultsSource.open(_uri(results), None if store is None else _uri(store))
    root = None if data is None else _uri(data)
    folder = None if figures is None else Path(figures)
    return write_report(source, target, root, folder, progress=progress)


def run(
    use_case: str | os.PathLike[str] = "shapes",
    detectors: str | Sequence[str] = "all",
    store: str | os.PathLike[str] | None = None,
    *,
    limit: int | None = None,
    events: RunEvents | None = None,
    **options: Any,
) -> BenchmarkStore:
    """Run detectors over a use case into a store, score it and write its report.

    Args:
        use_case: A built-in name, or a use case file.
        detectors: Names, or a detector file.
        store: A folder or URI; `runs/USE_CASE` by default.
        limit: Use only the first images of each split, for a trial.
        events: Receives progress and warnings; by default warnings go to the `saod_ray` logger.
        options: Other options of `saod-ray run`, with underscores: `seed=1`, `batch_size=2`, `replace=True`.
    """
    from saod_ray.workflow import BenchmarkRun, RunOptions

    option_names = [field.name for field in fields(RunOptions)]
    for name in options:
        if name not in option_names:
            raise SaodError(
                f"`run` has no option '{name}'{did_you_mean(name, option_names)}: it has {join_truncated(option_names, 30)}."
            )
    names = detectors if isinstance(detectors, str) else ",".join(detectors)
    uri = None if store is None else _uri(store)
    run_options = RunOptions(use_case=_uri(use_case), detectors=names, store=uri, limit=limit, **options)
    outcome = BenchmarkRun(run_options, events).carry_out()
    return BenchmarkStore(outcome.store)


def _uri(place: str | os.PathLike[str]) -> str:
    if isinstance(place, str | os.PathLike):
        return os.fspath(place)
    raise SaodError(f"{place!r} is not a path: give a folder, a file or a URI as text or as a Path.")


def _to_names(names: str | Sequence[str] | None) -> list[str] | None:
    if names is None or names == "all":
        return None
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
