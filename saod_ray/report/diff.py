"""Differences between two stores or results files of a use case, or between two detectors of one, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError, join_truncated
from saod_ray.report.results import resampling
from saod_ray.report.results_source import ResultsSource, to_source
from saod_ray.report.table import format_percent
from saod_ray.score import bootstrap
from saod_ray.score.benchmark import Benchmark, Progress, ScoredDetector
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.metrics import MAIN, Metric
from saod_ray.score.results import BootstrapRecord, Number, SplitCoverage
from saod_ray.store.store import Store
from saod_ray.store.units import RUN


class Change(Struct, frozen=True):
    """A metric on both sides. The difference is b − a; it has an interval if there are resamples."""

    a: Number
    b: Number
    difference: Number = None
    interval: list[float] | None = None


class PairDiff(Struct, frozen=True):
    """Two detectors: changes by metric name, and differing fingerprints and coverage by split, as (a, b)."""

    a: str
    b: str
    changes: dict[str, Change]
    fingerprints: dict[str, tuple[list[str], list[str]]]
    coverage: dict[str, tuple[SplitCoverage, SplitCoverage]]


class OnlyIn(Struct, frozen=True):
    """Detectors that only one side has."""

    a: list[str]
    b: list[str]


class StoreDiff(Struct, frozen=True, kw_only=True):
    """The outcome of `saod-ray diff`. `settings` has the differing ones, as (a, b)."""

    use_case: str
    a: str
    b: str
    settings: dict[str, tuple[object, object]]
    only_in: OnlyIn
    pairs: list[PairDiff]
    bootstrap: BootstrapRecord | UnsetType = UNSET
    format: int = 1

    def to_json(self) -> dict[str, Any]:
        """The JSON value that `--json` prints; changes are nested like the metrics of results.json."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        for pair in value["pairs"]:
            pair["figures"] = {}
            for name, change in pair.pop("changes").items():
                *folders, leaf = name.split(".")
                parent = pair["figures"]
                for folder in folders:
                    parent = parent.setdefault(folder, {})
                parent[leaf] = change
        return value


@dataclass(frozen=True)
class DiffSide:
    """A store or results file with some of its detectors scored, under the settings of its results."""

    source: ResultsSource
    store: Store
    settings: ScoreSettings
    scored: dict[str, ScoredDetector]

    @classmethod
    def from_store(
        cls,
        place: Store | ResultsSource,
        detectors: list[str],
        *,
        partial: bool,
        resamples: Bootstrap | None = None,
        progress: Progress | None = None,
    ) -> DiffSide:
        """Score the detectors, reusing the store's cache.

        Raises:
            SaodError: A results file was computed from other detections than the store has now.
        """
        source = to_source(place)
        source.refuse_changed(detectors)
        settings = source.settings
        benchmark = Benchmark(source.known_store, settings, partial, resamples)
        return cls(source, benchmark.store, settings, benchmark.score(detectors, progress))


def last_settings(store: Store) -> ScoreSettings:
    """The settings of the store's results.json, or the defaults if the store has none."""
    return ResultsSource.from_store(store).settings


def open_sides(a: str, b: str | None, store: str | None = None) -> tuple[ResultsSource, ResultsSource]:
    """Open the two stores or results files of a comparison; without `b`, the first one twice.

    Args:
        a: A store or results file.
        b: Another one, or None to compare two detectors of `a`.
        store: The store of results files that do not say which one they were scored from. By default the store of the
            other side, if they belong to it.

    Raises:
        SaodError: One of them cannot be opened, they are not of the same data, or the store of one is not known.
    """
    first = ResultsSource.open(a)
    second = first if b is None else ResultsSource.open(b)
    if second.path == first.path:
        second = first
    named = None if store is None else Store.open(store)
    first, second = (
        source.with_store(named).with_store(other.store) for source, other in ((first, second), (second, first))
    )
    refuse_incomparable(first, second)
    return first, second


def refuse_incomparable(a: Store | ResultsSource, b: Store | ResultsSource) -> None:
    """Raise `SaodError` if the metrics of two stores or results files are about different images or objects."""
    first, second = to_source(a), to_source(b)
    ours, theirs = first.known_store.description, second.known_store.description
    if (ours.name, ours.version) != (theirs.name, theirs.version):
        raise SaodError(
            f"{first.place} is of '{ours.name}' version {ours.version} and {second.place} of '{theirs.name}' version "
            f"{theirs.version}: compare stores of one use case."
        )
    differing = [source for source in ours.manifests if ours.manifests[source] != theirs.manifests.get(source)]
    differing += [key for key in ("classes", "severities", "subsets") if getattr(ours, key) != getattr(theirs, key)]
    if differing:
        raise SaodError(
            f"{first.place} and {second.place} are both of '{ours.name}', but differ in {join_truncated(differing)}: compare "
            "stores that were made with the same data."
        )


def detector_pairs(
    a: Store | ResultsSource, b: Store | ResultsSource, names: Sequence[str] | None
) -> list[tuple[str, str]]:
    """The detectors to compare: those with the same name in two sources, or the two named ones of one source.

    Raises:
        SaodError: There is nothing to compare.
    """
    first, second = to_source(a), to_source(b)
    options = None if names is None else list(names)
    if first.place == second.place:
        if options is None or len(options) != 2 or options[0] == options[1]:
            raise SaodError("A store is compared with itself by two of its detectors: name them with --detectors A,B.")
        first.choose(options)
        return [(options[0], options[1])]
    ours, theirs = first.choose(options), second.choose(options)
    shared = [name for name in ours if name in theirs]
    if not shared:
        raise SaodError(
            f"{first.place} has {join_truncated(ours)} and {second.place} has {join_truncated(theirs)}, so no detector is in "
            "both stores: import a detector that the other store has."
        )
    return [(name, name) for name in shared]


def compare(a: DiffSide, b: DiffSide, pairs: list[tuple[str, str]], resamples: Bootstrap | None) -> StoreDiff:
    """Compare every metric of the result table, settings, fingerprints and coverage; differences are b − a."""
    ours, theirs = (side.settings.model_dump(mode="json") for side in (a, b))
    names = set(a.source.detectors), set(b.source.detectors)
    return StoreDiff(
        use_case=a.store.description.name,
        a=a.source.place,
        b=b.source.place,
        settings={key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]},
        only_in=OnlyIn(sorted(names[0] - names[1]), sorted(names[1] - names[0])),
        pairs=[_pair(a, b, *pair) for pair in pairs],
        bootstrap=UNSET if resamples is None else resampling(resamples),
    )


def _pair(a: DiffSide, b: DiffSide, first: str, second: str) -> PairDiff:
    ours, theirs = a.scored[first], b.scored[second]
    splits = a.store.splits
    origins = {split: (_origins(a.store, first, split), _origins(b.store, second, split)) for split in splits}
    coverage = {split: (ours.result.coverage[split], theirs.result.coverage[split]) for split in splits}
    return PairDiff(
        first,
        second,
        {metric.name: _change(ours, theirs, metric) for metric in MAIN},
        {split: sides for split, sides in origins.items() if sides[0] != sides[1]},
        {split: sides for split, sides in coverage.items() if sides[0] != sides[1]},
    )


def _change(ours: ScoredDetector, theirs: ScoredDetector, metric: Metric) -> Change:
    before, after = metric.value(ours.result), metric.value(theirs.result)
    if before is None or after is None:
        return Change(before, after)
    difference, interval = after - before, None
    if metric.name in bootstrap.RESAMPLED and ours.replicates is not None and theirs.replicates is not None:
        # a replicate uses the same resample on both sides
        column = bootstrap.RESAMPLED.index(metric.name)
        changes = theirs.replicates[:, column] - ours.replicates[:, column]
        interval = bootstrap.interval(changes, difference)
    return Change(before, after, difference, interval)


def _origins(store: Store, detector: str, split: str) -> list[str]:
    """The fingerprints of detectors that ran, and the digests of imported files."""
    origins = [page.origin for page in store.pages(detector, split)]
    return sorted({origin.file if origin.kind == RUN else origin.sha256 for origin in origins})


# terminal output ----------------------------------------------------------------------------------------------------


def diff_table(pair: PairDiff, diff: StoreDiff) -> Table:
    """One row per metric; a difference whose interval excludes 0 is bold."""
    is_one_store = diff.a == diff.b
    sides = [pair.a, pair.b] if is_one_store else ["a", "b"]
    title = diff.a if is_one_store else f"{pair.a}: a = {diff.a}, b = {diff.b}"
    table = Table(title=Text(f"{title}, in %", "italic"), title_justify="left", pad_edge=False, box=SIMPLE_HEAD)
    table.add_column("metric")
    for header in (*sides, "difference"):
        table.add_column(Text(header), justify="right")
    is_resampled = isinstance(diff.bootstrap, BootstrapRecord)
    if isinstance(diff.bootstrap, BootstrapRecord):
        table.add_column(f"{100 * diff.bootstrap.level:.0f} % interval", justify="right")
    for metric in MAIN:
        change = pair.changes[metric.name]
        ends = change.interval
        is_significant = ends is not None and not ends[0] <= 0 <= ends[1]
        cells = [Text(format_percent(change.a)), Text(format_percent(change.b))]
        cells.append(Text(_signed(change.difference), "bold" if is_significant else ""))
        if is_resampled:
            cells.append(Text("" if ends is None else f"{_signed(ends[0])} to {_signed(ends[1])}"))
        table.add_row(f"{metric.title}{metric.arrow}", *cells)
    return table


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.2f}"


def remarks(diff: StoreDiff) -> list[str]:
    """The differences beside the metrics, one line each."""
    lines = [f"setting {key}: {ours} and {theirs}" for key, (ours, theirs) in diff.settings.items()]
    if diff.a != diff.b:
        sides = ((diff.a, diff.only_in.a), (diff.b, diff.only_in.b))
        lines += [f"only in {uri}: {join_truncated(names, 9)}" for uri, names in sides if names]
    for pair in diff.pairs:
        name = pair.a if pair.a == pair.b else f"{pair.a} and {pair.b}"
        if pair.fingerprints:
            lines.append(f"{name}: fingerprints differ on {', '.join(pair.fingerprints)}")
        for split, (ours, theirs) in pair.coverage.items():
            lines.append(f"{name}: coverage of {split}: {_coverage_change(ours, theirs)}")
    return lines or ["Nothing else differs."]


def _coverage_change(ours: SplitCoverage, theirs: SplitCoverage) -> str:
    counts = [
        {"images": side.images, "empty": side.empty, "failed": side.failed, "missing": side.missing_count}
        for side in (ours, theirs)
    ]
    differing = [key for key in counts[0] if counts[0][key] != counts[1][key]]
    return ", ".join(f"{counts[0][key]:,} and {counts[1][key]:,} {key}" for key in differing)
