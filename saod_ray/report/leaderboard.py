"""The results of many stores and results files of one use case as one table, with the provenance of every row."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from saod_ray.errors import SaodError, join_truncated
from saod_ray.files import Folder
from saod_ray.report.results_source import ResultsSource
from saod_ray.report.settings import setting_texts, unusual_settings
from saod_ray.report.table import ResultTable, main_metrics
from saod_ray.score.metrics import Metric
from saod_ray.score.results import BenchmarkResult, DetectorResult, ranked
from saod_ray.store.store import LastRun

if TYPE_CHECKING:
    import polars as pl

FORMAT = 1  # of the JSON value
NOT_RECORDED = "not recorded"


class RowProvenance(Struct, frozen=True, kw_only=True):
    """How a row was computed. Seed and last run are known if the store is, and if the detector was run into it."""

    conventions: str
    settings: dict[str, str]
    unusual_settings: str  # those that are not the defaults, as text
    seed: int | None  # of the corruptions
    last_run: str | None  # date and time of the store's last run
    resamples: str  # number and seed
    saod_ray: str
    python: str
    packages: dict[str, str]
    partial: bool


class LeaderboardRow(Struct, frozen=True, kw_only=True):
    """A detector of a source; `label` is unique in the leaderboard."""

    label: str
    detector: str
    source: str
    provenance: RowProvenance
    result: DetectorResult


class ValueRows(Struct, frozen=True):
    """A value, and the labels of the rows that have it."""

    value: str
    rows: list[str]


class RowDifference(Struct, frozen=True):
    """A part of the provenance that is not the same in all rows."""

    key: str
    values: list[ValueRows]


@dataclass(frozen=True)
class Leaderboard:
    """One row per source and detector, best DAQ first, undefined ones last."""

    use_case: str
    rows: tuple[LeaderboardRow, ...]
    differences: tuple[RowDifference, ...]

    @classmethod
    def open(cls, places: Sequence[str | os.PathLike[str]]) -> Leaderboard:
        """Join stores (folders or URIs) and results files; one that is given twice counts once.

        Raises:
            SaodError: One of them cannot be read, or they are not of one use case with the same classes and images.
        """
        if not places:
            raise SaodError("A leaderboard needs results: give stores or results files.")
        opened = [ResultsSource.open(place) for place in places]
        sources = list({source.path: source for source in reversed(opened)}.values())[::-1]
        results = [source.results for source in sources]
        for source, result in zip(sources[1:], results[1:], strict=True):
            _refuse_incomparable(sources[0].place, results[0], source.place, result)
        names = _short_names(sources)
        rows = {}
        for source, result, name in zip(sources, results, names, strict=True):
            for detector in result:
                label = detector if len(sources) == 1 else f"{detector} ({name})"
                rows[label] = _row(label, detector, source, result)
        if not rows:
            raise SaodError(f"{join_truncated(places)} has no detectors: give results with at least one.")
        order = ranked({label: row.result for label, row in rows.items()})
        ordered = tuple(rows[label] for label in order)
        return cls(results[0].use_case, ordered, tuple(_differences(ordered)))

    @property
    def results(self) -> dict[str, DetectorResult]:
        """The results by label, in the order of the rows."""
        return {row.label: row.result for row in self.rows}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of the main table, followed by the custom ones."""
        return main_metrics(self.results)

    @property
    def sources(self) -> list[str]:
        """The stores and results files."""
        return sorted({row.source for row in self.rows})

    @property
    def warnings(self) -> list[str]:
        """What makes rows hard to compare, one sentence each: the key, its values, and the rows that have them."""
        sentences = []
        for difference in self.differences:
            parts = [f"{group.value} for {self._rows_text(group.rows)}" for group in difference.values]
            sentences.append(f"Different {difference.key}: {'; '.join(parts)}.")
        partial = [row.label for row in self.rows if row.provenance.partial]
        if partial:
            sentences.append(f"PARTIAL: images are missing for {self._rows_text(partial)}.")
        return sentences

    def _rows_text(self, labels: Sequence[str]) -> str:
        """The rows; a source of which all rows are meant is named instead of them."""
        selected, texts = set(labels), []
        for source in self.sources:
            own = [row.label for row in self.rows if row.source == source]
            is_complete = len(own) > 1 and selected.issuperset(own)
            texts += [f"all rows of {source}"] if is_complete else [label for label in own if label in selected]
        return join_truncated(texts)

    # output ---------------------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """Use case, and conventions and settings where all rows share them."""
        parts = [self.use_case]
        conventions = {row.provenance.conventions for row in self.rows}
        settings = {row.provenance.unusual_settings for row in self.rows}
        parts += [f"{name} conventions" for name in conventions if len(conventions) == 1]
        parts += [text for text in settings if text and len(settings) == 1]
        count = len(self.sources)
        return f"{', '.join(parts)}, in %, {len(self.rows)} rows from {count} source{'s' * (count != 1)}"

    def table(self) -> ResultTable:
        """The table for a terminal, which adapts to the width of the console."""
        return ResultTable(self.title, self.results)

    def to_json(self) -> dict[str, Any]:
        """A JSON value: rows with metrics and intervals by name, and warnings; fractions in [0, 1]."""
        rows = []
        for row in self.rows:
            ends = {metric.name: metric.interval(row.result) for metric in self.metrics}
            rows.append(
                {
                    "label": row.label,
                    "detector": row.detector,
                    "source": row.source,
                    "metrics": {metric.name: metric.value(row.result) for metric in self.metrics},
                    "intervals": {name: interval for name, interval in ends.items() if interval is not None},
                    "provenance": msgspec.to_builtins(row.provenance),
                }
            )
        differences = msgspec.to_builtins(self.differences)
        warnings = {"warnings": self.warnings, "differences": differences}
        return {"format": FORMAT, "use_case": self.use_case, "rows": rows, **warnings}

    @property
    def frame(self) -> pl.DataFrame:
        """One row per detector and source: metrics (fractions), ends of intervals (`DAQ low`, `DAQ high`), provenance."""
        import polars as pl

        columns = [
            pl.Series(key, [getattr(row, key) for row in self.rows], pl.String) for key in ("detector", "source")
        ]
        for metric in self.metrics:
            columns.append(pl.Series(metric.title, [metric.value(row.result) for row in self.rows], pl.Float64))
        for metric in self.metrics:
            ends = [metric.interval(row.result) for row in self.rows]
            for number, word in enumerate(("low", "high") if any(ends) else ()):
                values = [None if interval is None else interval[number] for interval in ends]
                columns.append(pl.Series(f"{metric.title} {word}", values, pl.Float64))
        facts = [provenance_facts(row.provenance) for row in self.rows]
        return pl.DataFrame([*columns, *(pl.Series(key, [row[key] for row in facts], pl.String) for key in facts[0])])

    def to_html(self, path: str | os.PathLike[str]) -> str:
        """Write one HTML file that needs no network, and return its path."""
        from saod_ray.report.leaderboard_page import leaderboard_page

        target = Path(path)
        Folder(str(target.parent)).write_if_changed(target.name, leaderboard_page(self))
        return str(target)

    def _repr_html_(self) -> str:
        titles = [metric.title for metric in self.metrics]
        warnings = "".join(f"<p>{html.escape(warning)}</p>" for warning in self.warnings)
        return f"{warnings}{self.frame.select('detector', 'source', *titles)._repr_html_()}"

    def __repr__(self) -> str:
        best = f"; best DAQ: {self.rows[0].label}" if self.rows else ""
        return f"<leaderboard of {self.title}{best}>"


# rows ---------------------------------------------------------------------------------------------------------------


def _row(label: str, detector: str, source: ResultsSource, results: BenchmarkResult) -> LeaderboardRow:
    run = source.store.last_run() if source.store is not None and source.store.was_run(detector) else LastRun()
    origin, resampling = results.provenance, results.resampling
    provenance = RowProvenance(
        conventions=results.conventions,
        settings=setting_texts(results),
        unusual_settings=unusual_settings(results),
        seed=run.settings.seed,
        last_run=run.updated,
        resamples="none" if resampling is None else f"{resampling.replicates:,} (seed {resampling.seed})",
        saod_ray=origin.saod_ray,
        python=origin.python,
        packages=dict(sorted(origin.packages.items())),
        partial=results.is_partial,
    )
    return LeaderboardRow(
        label=label, detector=detector, source=source.place, provenance=provenance, result=results[detector]
    )


def provenance_facts(provenance: RowProvenance) -> dict[str, str]:
    """The provenance of a row as texts by title, for tables."""
    return {
        "conventions": provenance.conventions,
        "settings": provenance.unusual_settings or "defaults",
        "seed of the corruptions": NOT_RECORDED if provenance.seed is None else str(provenance.seed),
        "resamples": provenance.resamples,
        "complete": "no: PARTIAL" if provenance.partial else "yes",
        "last run": provenance.last_run or NOT_RECORDED,
        "saod-ray": provenance.saod_ray,
        "python": provenance.python,
        "packages": ", ".join(f"{name} {version}" for name, version in provenance.packages.items()),
    }


def _differences(rows: Sequence[LeaderboardRow]) -> Iterator[RowDifference]:
    """Every key of the provenance, except the date, that has several values."""
    facts = {row.label: _comparable_facts(row.provenance) for row in rows}
    for key in dict.fromkeys(key for values in facts.values() for key in values):
        groups: dict[str, list[str]] = {}
        for label, values in facts.items():
            groups.setdefault(values.get(key, NOT_RECORDED), []).append(label)
        if len(groups) > 1:
            yield RowDifference(key, [ValueRows(value, labels) for value, labels in groups.items()])


def _comparable_facts(provenance: RowProvenance) -> dict[str, str]:
    """What should be the same in all rows: everything but the date, and completeness, which has its own warning."""
    facts = provenance_facts(provenance)
    settings = {f"setting {key}": value for key, value in provenance.settings.items() if key != "conventions"}
    versions = {"saod-ray": provenance.saod_ray, "Python": provenance.python, **provenance.packages}
    return {
        **{key: facts[key] for key in ("conventions", "seed of the corruptions", "resamples")},
        **settings,
        **{f"version of {name}": version for name, version in versions.items()},
    }


def _short_names(sources: Sequence[ResultsSource]) -> list[str]:
    """The shortest ends of the sources' paths that differ from each other."""
    paths = [source.path.removesuffix("/results.json").removesuffix(".json").split("/") for source in sources]
    for length in range(1, max(map(len, paths)) + 1):
        names = ["/".join(path[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [source.place for source in sources]


# comparability ------------------------------------------------------------------------------------------------------


def _refuse_incomparable(a: str, ours: BenchmarkResult, b: str, theirs: BenchmarkResult) -> None:
    """Raise SaodError if two results are not of one use case with the same classes and images."""
    versions = [f"'{results.use_case}' version {results.provenance.use_case.version}" for results in (ours, theirs)]
    if versions[0] != versions[1]:
        raise SaodError(f"{a} is of {versions[0]} and {b} of {versions[1]}: join results of one use case.")
    classes = [_classes(results) for results in (ours, theirs)]
    if classes[0] != classes[1] and all(classes):
        differing = join_truncated(sorted(classes[0] ^ classes[1]))
        raise SaodError(
            f"{a} and {b} are both of '{ours.use_case}', but only one has the classes {differing}: join results with the same "
            "classes."
        )
    first, second = ours.provenance.use_case, theirs.provenance.use_case
    sources = _differing(first.manifests, second.manifests)  # which may depend on package versions, unlike the inputs
    if sources and sorted(first.annotations.values()) != sorted(second.annotations.values()):
        raise SaodError(
            f"{a} and {b} are both of '{ours.use_case}', but their images or objects differ in {join_truncated(sources)}: join "
            "results of the same data."
        )


def _classes(results: BenchmarkResult) -> set[str]:
    return {name for result in results.detectors.values() for name in result.detection_thresholds}


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    return [key for key in dict.fromkeys((*a, *b)) if a.get(key) != b.get(key)]
