"""What changed between two stores of a use case, or between two detectors of a store, and how sure that is."""

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
from saod_ray.report.results import read_results, resampling
from saod_ray.report.table import percent
from saod_ray.score import bootstrap
from saod_ray.score.benchmark import Benchmark, Progress, ScoredDetector
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.metrics import MAIN, Metric
from saod_ray.score.results import BootstrapRecord, Number, SplitCoverage
from saod_ray.store.results_file import FILE
from saod_ray.store.store import Store
from saod_ray.store.units import RUN


class Change(Struct, frozen=True):
    """A metric on both sides; the difference is b − a, and has an interval where there are resamples."""

    a: Number
    b: Number
    difference: Number = None
    interval: list[float] | None = None


class PairDiff(Struct, frozen=True):
    """Two detectors: changes by name of the metric, and what else differs, by split."""

    a: str
    b: str
    changes: dict[str, Change]
    fingerprints: dict[str, tuple[list[str], list[str]]]
    coverage: dict[str, tuple[SplitCoverage, SplitCoverage]]


class OnlyIn(Struct, frozen=True):
    """Detectors that one side alone has."""

    a: list[str]
    b: list[str]


class StoreDiff(Struct, frozen=True, kw_only=True):
    """What `saod-ray diff` says; `settings` has those that differ."""

    use_case: str
    a: str
    b: str
    settings: dict[str, tuple[object, object]]
    only_in: OnlyIn
    pairs: list[PairDiff]
    bootstrap: BootstrapRecord | UnsetType = UNSET
    format: int = 1

    def to_json(self) -> dict[str, Any]:
        """The JSON value that `--json` prints: changes are nested as the metrics are in results.json."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        for pair in value["pairs"]:
            pair["figures"] = {}
            for name, change in pair.pop("changes").items():
                *folders, leaf = name.split(".")
                place = pair["figures"]
                for folder in folders:
                    place = place.setdefault(folder, {})
                place[leaf] = change
        return value


@dataclass(frozen=True)
class Side:
    """A store with some of its detectors scored, under the settings that it was last scored with."""

    store: Store
    settings: ScoreSettings
    scored: dict[str, ScoredDetector]

    @classmethod
    def of(cls, store: Store, names: list[str], partial: bool, resamples: Bootstrap | None, progress: Progress) -> Side:
        """Score them, from the store's cache as far as that goes."""
        settings = last_settings(store)
        benchmark = Benchmark(store, settings, partial, resamples)
        return cls(benchmark.store, settings, benchmark.score(names, progress))


def last_settings(store: Store) -> ScoreSettings:
    """The settings in the store's results.json; the defaults where it was not scored yet."""
    if not store.folder.exists(FILE):
        return ScoreSettings()
    return ScoreSettings.from_options(**msgspec.to_builtins(read_results(store).settings))


def refuse_strangers(a: Store, b: Store) -> None:
    """Refuse stores whose figures are of different images or objects."""
    mine, theirs = a.description, b.description
    if (mine.name, mine.version) != (theirs.name, theirs.version):
        raise SaodError(
            f"{a.uri} is of '{mine.name}' version {mine.version} and {b.uri} of '{theirs.name}' version "
            f"{theirs.version}: compare stores of one use case."
        )
    other = [source for source in mine.manifests if mine.manifests[source] != theirs.manifests.get(source)]
    other += [what for what in ("classes", "severities", "subsets") if getattr(mine, what) != getattr(theirs, what)]
    if other:
        raise SaodError(
            f"{a.uri} and {b.uri} are both of '{mine.name}', but differ in {join_truncated(other)}: compare stores that were made "
            "with the same data."
        )


def pairs_of(a: Store, b: Store, wanted: Sequence[str] | None) -> list[tuple[str, str]]:
    """The detectors to compare: by name in two stores, and two that are named in one."""
    if a.uri == b.uri:
        if wanted is None or len(wanted) != 2 or wanted[0] == wanted[1]:
            raise SaodError("Within one store two detectors are compared: name them with --detectors A,B.")
        a.choose(wanted)
        return [(wanted[0], wanted[1])]
    mine, theirs = a.choose(wanted), b.choose(wanted)
    both = [name for name in mine if name in theirs]
    if not both:
        raise SaodError(
            f"{a.uri} has {join_truncated(mine)} and {b.uri} has {join_truncated(theirs)}, none of them both: import a detector that the "
            "other store has."
        )
    return [(name, name) for name in both]


def compared(a: Side, b: Side, pairs: list[tuple[str, str]], resamples: Bootstrap | None) -> StoreDiff:
    """Every metric of the result table on both sides, and what else differs; differences are b − a."""
    ours, theirs = (side.settings.model_dump(mode="json") for side in (a, b))
    names = set(a.store.detectors()), set(b.store.detectors())
    return StoreDiff(
        use_case=a.store.description.name,
        a=a.store.uri,
        b=b.store.uri,
        settings={key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]},
        only_in=OnlyIn(sorted(names[0] - names[1]), sorted(names[1] - names[0])),
        pairs=[_pair(a, b, *pair) for pair in pairs],
        bootstrap=UNSET if resamples is None else resampling(resamples),
    )


def _pair(a: Side, b: Side, first: str, second: str) -> PairDiff:
    ours, theirs = a.scored[first], b.scored[second]
    splits = a.store.splits
    origins = {split: (_made_from(a.store, first, split), _made_from(b.store, second, split)) for split in splits}
    covered = {split: (ours.result.coverage[split], theirs.result.coverage[split]) for split in splits}
    return PairDiff(
        first,
        second,
        {metric.name: _change(ours, theirs, metric) for metric in MAIN},
        {split: both for split, both in origins.items() if both[0] != both[1]},
        {split: both for split, both in covered.items() if both[0] != both[1]},
    )


def _change(ours: ScoredDetector, theirs: ScoredDetector, metric: Metric) -> Change:
    before, after = metric.value(ours.result), metric.value(theirs.result)
    if before is None or after is None:
        return Change(before, after)
    difference, interval = after - before, None
    if metric.name in bootstrap.RESAMPLED and ours.replicates is not None and theirs.replicates is not None:
        # replicate r is the same resample on both sides
        column = bootstrap.RESAMPLED.index(metric.name)
        changes = theirs.replicates[:, column] - ours.replicates[:, column]
        interval = bootstrap.interval(changes, difference)
    return Change(before, after, difference, interval)


def _made_from(store: Store, detector: str, split: str) -> list[str]:
    """The fingerprints of what ran there, or the digests of what was imported."""
    origins = [page.origin for page in store.pages(detector, split)]
    return sorted({origin.file if origin.kind == RUN else origin.sha256 for origin in origins})


# for people -------------------------------------------------------------------------------------------------------


def diff_table(pair: PairDiff, diff: StoreDiff) -> Table:
    """One row per metric; a difference whose interval does not hold 0 is bold."""
    is_one_store = diff.a == diff.b
    heads = [pair.a, pair.b] if is_one_store else ["a", "b"]
    title = diff.a if is_one_store else f"{pair.a}: a = {diff.a}, b = {diff.b}"
    table = Table(title=Text(f"{title}, in %", "italic"), title_justify="left", pad_edge=False, box=SIMPLE_HEAD)
    table.add_column("figure")
    for head in (*heads, "difference"):
        table.add_column(Text(head), justify="right")
    is_resampled = isinstance(diff.bootstrap, BootstrapRecord)
    if isinstance(diff.bootstrap, BootstrapRecord):
        table.add_column(f"{100 * diff.bootstrap.level:.0f} % interval", justify="right")
    for metric in MAIN:
        change = pair.changes[metric.name]
        ends = change.interval
        is_certain = ends is not None and not ends[0] <= 0 <= ends[1]
        cells = [Text(percent(change.a)), Text(percent(change.b))]
        cells.append(Text(_signed(change.difference), "bold" if is_certain else ""))
        if is_resampled:
            cells.append(Text("" if ends is None else f"{_signed(ends[0])} to {_signed(ends[1])}"))
        table.add_row(f"{metric.title}{metric.arrow}", *cells)
    return table


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.2f}"


def remarks(diff: StoreDiff) -> list[str]:
    """What differs beside the metrics, one line each."""
    lines = [f"setting {key}: {ours} and {theirs}" for key, (ours, theirs) in diff.settings.items()]
    if diff.a != diff.b:
        sides = ((diff.a, diff.only_in.a), (diff.b, diff.only_in.b))
        lines += [f"only in {uri}: {join_truncated(names, 9)}" for uri, names in sides if names]
    for pair in diff.pairs:
        name = pair.a if pair.a == pair.b else f"{pair.a} and {pair.b}"
        if pair.fingerprints:
            lines.append(f"{name}: other fingerprints on {', '.join(pair.fingerprints)}")
        for split, (ours, theirs) in pair.coverage.items():
            lines.append(f"{name}: coverage of {split}: {_coverage_change(ours, theirs)}")
    return lines or ["Nothing else differs."]


def _coverage_change(ours: SplitCoverage, theirs: SplitCoverage) -> str:
    counts = [
        {"images": side.images, "empty": side.empty, "failed": side.failed, "missing": side.missing_count}
        for side in (ours, theirs)
    ]
    changed = [key for key in counts[0] if counts[0][key] != counts[1][key]]
    return ", ".join(f"{counts[0][key]:,} and {counts[1][key]:,} {key}" for key in changed)
