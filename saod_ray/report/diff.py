"""What changed between two stores of a use case, or between two detectors of a store, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError, some
from saod_ray.report.results import resampling
from saod_ray.report.table import COLUMNS, figure, percent
from saod_ray.score import bootstrap
from saod_ray.score.benchmark import Benchmark, Progress, Scored
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.store.results_file import FILE, read_results
from saod_ray.store.store import Store
from saod_ray.store.units import RUN

Value = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """A store with some of its detectors scored, under the settings that it was last scored with."""

    store: Store
    settings: ScoreSettings
    scored: dict[str, Scored]

    @classmethod
    def of(cls, store: Store, names: list[str], partial: bool, resamples: Bootstrap | None, progress: Progress) -> Side:
        """Score them, from the store's cache as far as that goes."""
        settings = last_settings(store)
        benchmark = Benchmark(store, settings, partial, resamples)
        return cls(benchmark.store, settings, benchmark.score(names, progress))


def last_settings(store: Store) -> ScoreSettings:
    """The settings in the store's results.json; the defaults where it was not scored yet."""
    return ScoreSettings.of(**read_results(store)["settings"]) if store.folder.exists(FILE) else ScoreSettings()


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
            f"{a.uri} and {b.uri} are both of '{mine.name}', but differ in {some(other)}: compare stores that were made "
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
            f"{a.uri} has {some(mine)} and {b.uri} has {some(theirs)}, none of them both: import a detector that the "
            "other store has."
        )
    return [(name, name) for name in both]


def compared(a: Side, b: Side, pairs: list[tuple[str, str]], resamples: Bootstrap | None) -> Value:
    """Every figure of the result table on both sides, and what differs beside them; differences are b − a."""
    mine, theirs = (side.settings.model_dump(mode="json") for side in (a, b))
    names = set(a.store.detectors()), set(b.store.detectors())
    value: Value = {
        "format": 1,
        "use_case": a.store.description.name,
        "a": a.store.uri,
        "b": b.store.uri,
        "settings": {key: [mine[key], theirs[key]] for key in mine if mine[key] != theirs[key]},
        "only_in": {"a": sorted(names[0] - names[1]), "b": sorted(names[1] - names[0])},
        "pairs": [_pair(a, b, *pair) for pair in pairs],
    }
    return value if resamples is None else value | {"bootstrap": resampling(resamples)}


def _pair(a: Side, b: Side, first: str, second: str) -> Value:
    mine, theirs = a.scored[first], b.scored[second]
    splits = a.store.splits
    made = {split: [_made_from(a.store, first, split), _made_from(b.store, second, split)] for split in splits}
    covered = {split: [each.figures["coverage"][split] for each in (mine, theirs)] for split in splits}
    figures: Value = {}
    for column in COLUMNS:
        place = figures
        for key in column.path[:-1]:
            place = place.setdefault(key, {})
        place[column.path[-1]] = _change(mine, theirs, column.path)
    return {
        "a": first,
        "b": second,
        "figures": figures,
        "fingerprints": {split: both for split, both in made.items() if both[0] != both[1]},
        "coverage": {split: both for split, both in covered.items() if both[0] != both[1]},
    }


def _change(mine: Scored, theirs: Scored, path: tuple[str, ...]) -> Value:
    before, after = figure(mine.figures, path), figure(theirs.figures, path)
    change: Value = {"a": before, "b": after, "difference": None, "interval": None}
    if before is None or after is None:
        return change
    change["difference"] = after - before
    if path in bootstrap.FIGURES and mine.replicates is not None and theirs.replicates is not None:
        # replicate r is the same resample on both sides
        column = bootstrap.FIGURES.index(path)
        changes = theirs.replicates[:, column] - mine.replicates[:, column]
        change["interval"] = bootstrap.interval(changes, after - before)
    return change


def _made_from(store: Store, detector: str, split: str) -> list[str]:
    """The fingerprints of what ran there, or the digests of what was imported."""
    origins = [page.origin for page in store.pages(detector, split)]
    return sorted({origin.file if origin.kind == RUN else origin.sha256 for origin in origins})


# for people -------------------------------------------------------------------------------------------------------


def diff_table(pair: Value, value: Value) -> Table:
    """One row a figure; a difference whose interval does not hold 0 is bold."""
    one_store = value["a"] == value["b"]
    heads = [pair["a"], pair["b"]] if one_store else ["a", "b"]
    title = f"{value['a']}" if one_store else f"{pair['a']}: a = {value['a']}, b = {value['b']}"
    table = Table(title=Text(f"{title}, in %", "italic"), title_justify="left", pad_edge=False, box=SIMPLE_HEAD)
    table.add_column("figure")
    for head in (*heads, "difference"):
        table.add_column(Text(head), justify="right")
    if "bootstrap" in value:
        table.add_column(f"{100 * value['bootstrap']['level']:.0f} % interval", justify="right")
    for column in COLUMNS:
        change: Any = pair["figures"]
        for key in column.path:
            change = change[key]
        ends = change["interval"]
        sure = ends is not None and not ends[0] <= 0 <= ends[1]
        cells: list[Any] = [
            percent(change["a"]),
            percent(change["b"]),
            Text(_signed(change["difference"]), "bold" if sure else ""),
        ]
        if "bootstrap" in value:
            cells.append("" if ends is None else f"{_signed(ends[0])} to {_signed(ends[1])}")
        table.add_row(f"{column.title}{'↑' if column.rising else '↓'}", *cells)
    return table


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.2f}"


def remarks(value: Value) -> list[str]:
    """What differs beside the figures, a line each."""
    lines = [f"setting {key}: {mine} and {theirs}" for key, (mine, theirs) in value["settings"].items()]
    if value["a"] != value["b"]:
        lines += [f"only in {value[side]}: {some(names, 9)}" for side, names in value["only_in"].items() if names]
    for pair in value["pairs"]:
        name = pair["a"] if pair["a"] == pair["b"] else f"{pair['a']} and {pair['b']}"
        if pair["fingerprints"]:
            lines.append(f"{name}: other fingerprints on {', '.join(pair['fingerprints'])}")
        for split, (mine, theirs) in pair["coverage"].items():
            keys = [key for key in {**mine, **theirs} if mine.get(key, 0) != theirs.get(key, 0)]
            counts = ", ".join(f"{mine.get(key, 0):,} and {theirs.get(key, 0):,} {key}" for key in keys)
            lines.append(f"{name}: coverage of {split}: {counts}")
    return lines or ["Nothing else differs."]
