"""The tables of a report."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import NamedTuple

import msgspec

from saod_ray.report.cells import Cell, Head, Sheet, beside_paper, count, metric_sheet, number, percent, words
from saod_ray.report.data import ReportData
from saod_ray.report.table import columns, rank
from saod_ray.score.metrics import BUILT_IN, Metric
from saod_ray.score.results import BenchmarkResult, DetectorResult

SUBSET_METRICS = ("auroc", "fpr95", "tpr", "tnr", "ba")
COMPONENTS = tuple(
    BUILT_IN[f"{part}.{name}"] for part in ("id", "shift") for name in ("lrp", "lrp_loc", "lrp_fp", "lrp_fn")
)
CLASS_METRICS = {"AP": "ap", "LRP": "lrp", "Loc": "lrp_loc", "FP": "lrp_fp", "FN": "lrp_fn", "LaECE": "laece"}


def paper_values(use_case: str) -> dict[str, dict[str, float]]:
    """The paper's values in percent by detector and metric's name; empty for a use case that is not the paper's."""
    text = files("saod_ray.report").joinpath("paper.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text).get(use_case, {})
    return {detector: dict(_flat(table)) for detector, table in tables.items()}


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", float(value)


def leaderboard(gathered: ReportData) -> Sheet:
    """The paper's main table, with intervals and ranks where they were computed, and DAQ under the other conventions."""
    results = gathered.results
    detectors, metrics = results.ranked(), columns(results)
    sheet = metric_sheet("leaderboard", _title(results), metrics, detectors, paper_values(results.use_case))
    other = "paper" if results.conventions == "official" else "official"
    heads = [
        *sheet.heads,
        Head(f"DAQ, {other} conventions", f"DAQ of the same detections under the {other} conventions."),
    ]
    is_resampled = results.resampling is not None
    heads += [Head("rank", "By DAQ: the interval over the resamples.", False)] * is_resampled
    rows = []
    for (name, result), cells in zip(detectors.items(), sheet.rows, strict=True):
        row = [*_with_intervals(cells, metrics, result), percent(gathered.other_daq[name])]
        rows.append(row + [words(rank(result))] * is_resampled)
    return Sheet(sheet.name, sheet.caption, heads, rows)


def _title(results: BenchmarkResult) -> str:
    resampling = results.resampling
    if resampling is None:
        return "Leaderboard, in %"
    return f"Leaderboard, in %, with {100 * resampling.level:.0f} % intervals of {resampling.replicates:,} resamples"


def _with_intervals(row: list[Cell], metrics: Sequence[Metric], result: DetectorResult) -> list[Cell]:
    """The same cells with the ends of their intervals below them."""
    out = row[:1]
    for cell, metric in zip(row[1:], metrics, strict=True):
        ends = metric.interval(result)
        scale, digits = (100, ".2f") if metric.unit == "%" else (1, ".4g")
        text = (f"[{scale * ends[0]:{digits}}, {scale * ends[1]:{digits}}]",) if ends else ()
        out.append(replace(cell, notes=text + cell.notes))
    return out


def subsets(results: BenchmarkResult) -> Sheet:
    """Telling ID from OOD, by OOD subset and over all."""
    heads = [Head("detector", is_number=False), Head("OOD", is_number=False)]
    heads += [Head(f"{name.upper()} {'↓' if name == 'fpr95' else '↑'}") for name in SUBSET_METRICS]
    paper = paper_values(results.use_case)
    rows = []
    for detector, result in results.ranked().items():
        printed = paper.get(detector, {})
        for subset, rates in {"all": result.ood, **result.ood.subsets}.items():
            if rates.auroc is None and subset != "all":  # a partial store may have none of its images
                continue
            row = [words(detector, is_head=True), words(subset)]
            for name in SUBSET_METRICS:
                value: float | None = getattr(rates, name)
                notes = beside_paper(value, printed.get(f"ood.{name}")) if subset == "all" else ()
                row.append(percent(value, notes=notes))
            rows.append(row)
    return Sheet("ood", "Telling ID from OOD images, in %", heads, rows)


def severities(gathered: ReportData) -> Sheet:
    """Metrics by severity."""
    heads = [Head("detector", is_number=False), Head("split", is_number=False), Head("images"), Head("accepted")]
    heads += [Head("IDQ ↑"), Head("LaECE ↓"), Head("LRP ↓"), Head("AP ↑")]
    rows = []
    for detector in gathered.results.ranked():
        for row in gathered.tables[detector].severities:
            cells = [words(detector, is_head=True), words(row.split), count(row.images)]
            rows.append([*cells, *map(percent, (row.accepted, row.idq, row.laece, row.lrp, row.ap))])
    return Sheet("severities", "By severity, in %", heads, rows)


def calibrations(gathered: ReportData) -> Sheet:
    """LaECE before and after calibration."""
    heads = [Head("detector", is_number=False), Head("before ↓"), Head("after ↓")]
    rows = []
    for detector, result in gathered.results.ranked().items():
        before = gathered.tables[detector].calibration.laece_before
        rows.append([words(detector, is_head=True), percent(before), percent(result.id.laece)])
    return Sheet("calibration", "LaECE on ID before and after calibration, in %", heads, rows)


def classes(gathered: ReportData, detector: str) -> Sheet:
    """One detector's metrics by class."""
    result = gathered.results[detector]
    heads = [Head("class", is_number=False), Head("objects"), Head("detections")]
    heads += [Head(title) for title in CLASS_METRICS]
    custom = {name: metric.per_class for name, metric in result.custom.items() if isinstance(metric.per_class, dict)}
    heads += [Head("v on val"), Head("v oracle", "LRP-optimal on ID itself"), *(Head(name) for name in custom)]
    oracle = gathered.tables[detector].calibration.oracle
    rows = []
    for name, row in result.classes.items():
        cells = [words(name, is_head=True), count(row.objects), count(row.detections)]
        cells += [percent(getattr(row, key)) for key in CLASS_METRICS.values()]
        cells += [number(result.detection_thresholds.get(name)), number(oracle.get(name))]
        rows.append([*cells, *(number(values.get(name)) for values in custom.values())])
    return Sheet(f"classes-{detector}", f"{detector} on ID by class, in % (v: scores)", heads, rows)


def coverage(results: BenchmarkResult) -> Sheet:
    """How many images of each split were detected, empty, failed or missing."""
    heads = [Head("detector", is_number=False), Head("split", is_number=False)]
    heads += [Head(name) for name in ("images", "empty", "failed", "missing")]
    rows = []
    for detector, result in sorted(results.detectors.items()):
        for split, counts in result.coverage.items():
            numbers = (counts.images, counts.empty, counts.failed, counts.missing_count)
            rows.append([words(detector, is_head=True), words(split), *map(count, numbers)])
    return Sheet("coverage", "Every image accounted for", heads, rows)


def failures(gathered: ReportData) -> Sheet:
    """The images that failed, and why."""
    rows = [
        [words(row.detector, is_head=True), words(row.split), words(row.image), words(row.error)]
        for _, table in sorted(gathered.tables.items())
        for row in table.failures
    ]
    heads = [Head(name, is_number=False) for name in ("detector", "split", "image", "error")]
    return Sheet("failures", "Images that failed (at most 200 per detector)", heads, rows)


class Recorded(NamedTuple):
    """What run.json says of the last run: the seed of the corruptions, and the commit of the code that ran.

    It is not in results.json, which is the same wherever a store is scored.
    """

    seed: int | None = None
    commit: str | None = None


def provenance(results: BenchmarkResult, run: Recorded) -> Sheet:
    """Where the results come from, as name and value."""
    origin, use_case = results.provenance, results.provenance.use_case
    facts: list[tuple[str, object]] = [
        ("use case", f"{results.use_case}, version {use_case.version}"),
        ("conventions", results.conventions),
        ("complete", "no: PARTIAL" if results.is_partial else "yes"),
        ("command", score_command(results)),
        ("seed of the corruptions", "not recorded" if run.seed is None else run.seed),
        ("commit of the last run", run.commit or "not recorded"),
    ]
    facts += [(f"setting {name}", _plain(value)) for name, value in _settings(results)]
    facts += [("saod-ray", origin.saod_ray), ("python", origin.python)]
    facts += sorted(origin.packages.items())
    facts += [(f"sha256 of {name}", digest) for name, digest in sorted(use_case.annotations.items())]
    facts += [(f"manifest of {name}", digest) for name, digest in sorted(use_case.manifests.items())]
    for detector, splits in sorted(origin.detections.items()):
        for split, units in splits.items():
            facts += [(f"{detector}, {split}, {unit}", digest) for unit, digest in sorted(units.items())]
    rows = [[words(name, is_head=True), words(value)] for name, value in facts]
    heads = [Head("what", is_number=False), Head("value", is_number=False)]
    return Sheet("provenance", "Where the results come from", heads, rows)


def _settings(results: BenchmarkResult) -> list[tuple[str, object]]:
    return sorted(msgspec.structs.asdict(results.settings).items())


def _plain(value: object) -> str:
    return ",".join(f"{part:g}" for part in value) if isinstance(value, list) else str(value)


def score_command(results: BenchmarkResult) -> str:
    """What to type to get these results from the store."""
    flags = [f"--{name.replace('_', '-')} {_plain(value)}" for name, value in _settings(results)]
    detectors = ",".join(sorted(results.detectors))
    return " ".join(["saod-ray score STORE", f"--detectors {detectors}", *flags, *["--partial"] * results.is_partial])
