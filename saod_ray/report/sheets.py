"""The tables of a report."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import NamedTuple

from saod_ray.report.cells import (
    Header,
    Sheet,
    count_cell,
    metric_sheet,
    number_cell,
    paper_note,
    percent_cell,
    text_cell,
    with_intervals,
)
from saod_ray.report.data import ReportData
from saod_ray.report.settings import setting_texts
from saod_ray.report.table import main_metrics, rank_interval
from saod_ray.score.metrics import BUILT_IN
from saod_ray.score.results import BenchmarkResult

SUBSET_METRICS = ("auroc", "fpr95", "tpr", "tnr", "ba")
COMPONENTS = tuple(
    BUILT_IN[f"{part}.{name}"] for part in ("id", "shift") for name in ("lrp", "lrp_loc", "lrp_fp", "lrp_fn")
)
CLASS_METRICS = {"AP": "ap", "LRP": "lrp", "Loc": "lrp_loc", "FP": "lrp_fp", "FN": "lrp_fn", "LaECE": "laece"}


def paper_values(use_case: str) -> dict[str, dict[str, float]]:
    """The paper's values in percent by detector and metric name; empty for use cases that are not in the paper."""
    text = files("saod_ray.report").joinpath("paper.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text).get(use_case, {})
    return {detector: dict(_flatten(table)) for detector, table in tables.items()}


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of nested tables, with keys joined by dots."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", float(value)


def leaderboard(report_data: ReportData) -> Sheet:
    """The paper's main table, with intervals and ranks if they were computed, and DAQ under the other conventions."""
    results = report_data.results
    detectors, metrics = results.ranked(), main_metrics(results.detectors)
    sheet = metric_sheet("leaderboard", _title(results), metrics, detectors, paper_values(results.use_case))
    other = "paper" if results.conventions == "official" else "official"
    headers = [
        *sheet.headers,
        Header(f"DAQ, {other} conventions", f"DAQ of the same detections under the {other} conventions."),
    ]
    is_resampled = results.resampling is not None
    headers += [Header("rank", "Interval of the rank by DAQ over the resamples.", False)] * is_resampled
    rows = []
    for (name, result), cells in zip(detectors.items(), sheet.rows, strict=True):
        row = [*with_intervals(cells, metrics, result), percent_cell(report_data.other_daq[name])]
        rows.append(row + [text_cell(rank_interval(result))] * is_resampled)
    return Sheet(sheet.name, sheet.caption, headers, rows)


def _title(results: BenchmarkResult) -> str:
    resampling = results.resampling
    if resampling is None:
        return "Leaderboard, in %"
    return f"Leaderboard, in %, with {100 * resampling.level:.0f} % intervals of {resampling.replicates:,} resamples"


def subsets(results: BenchmarkResult) -> Sheet:
    """The metrics of telling ID from OOD images, per OOD subset and over all."""
    headers = [Header("detector", is_number=False), Header("OOD", is_number=False)]
    headers += [Header(f"{name.upper()} {'↓' if name == 'fpr95' else '↑'}") for name in SUBSET_METRICS]
    paper = paper_values(results.use_case)
    rows = []
    for detector, result in results.ranked().items():
        in_paper = paper.get(detector, {})
        for subset, rates in {"all": result.ood, **result.ood.subsets}.items():
            if rates.auroc is None and subset != "all":  # a partial store may lack all images of a subset
                continue
            row = [text_cell(detector, is_header=True), text_cell(subset)]
            for name in SUBSET_METRICS:
                value: float | None = getattr(rates, name)
                notes = paper_note(value, in_paper.get(f"ood.{name}")) if subset == "all" else ()
                row.append(percent_cell(value, notes=notes))
            rows.append(row)
    return Sheet("ood", "Telling ID from OOD images, in %", headers, rows)


def severities(report_data: ReportData) -> Sheet:
    """Metrics per severity."""
    headers = [
        Header("detector", is_number=False),
        Header("split", is_number=False),
        Header("images"),
        Header("accepted"),
    ]
    headers += [Header("IDQ ↑"), Header("LaECE ↓"), Header("LRP ↓"), Header("AP ↑")]
    rows = []
    for detector in report_data.results.ranked():
        for row in report_data.tables[detector].severities:
            cells = [text_cell(detector, is_header=True), text_cell(row.split), count_cell(row.images)]
            rows.append([*cells, *map(percent_cell, (row.accepted, row.idq, row.laece, row.lrp, row.ap))])
    return Sheet("severities", "Metrics per severity, in %", headers, rows)


def calibrations(report_data: ReportData) -> Sheet:
    """LaECE before and after calibration."""
    headers = [Header("detector", is_number=False), Header("before ↓"), Header("after ↓")]
    rows = []
    for detector, result in report_data.results.ranked().items():
        before = report_data.tables[detector].calibration.laece_before
        rows.append([text_cell(detector, is_header=True), percent_cell(before), percent_cell(result.id.laece)])
    return Sheet("calibration", "LaECE on ID before and after calibration, in %", headers, rows)


def classes(report_data: ReportData, detector: str) -> Sheet:
    """One detector's metrics per class."""
    result = report_data.results[detector]
    headers = [Header("class", is_number=False), Header("objects"), Header("detections")]
    headers += [Header(title) for title in CLASS_METRICS]
    custom = {name: metric.per_class for name, metric in result.custom.items() if isinstance(metric.per_class, dict)}
    headers += [
        Header("v on val"),
        Header("v oracle", "The LRP-optimal threshold on ID itself."),
        *(Header(name) for name in custom),
    ]
    oracle = report_data.tables[detector].calibration.oracle
    rows = []
    for name, row in result.classes.items():
        cells = [text_cell(name, is_header=True), count_cell(row.objects), count_cell(row.detections)]
        cells += [percent_cell(getattr(row, key)) for key in CLASS_METRICS.values()]
        cells += [number_cell(result.detection_thresholds.get(name)), number_cell(oracle.get(name))]
        rows.append([*cells, *(number_cell(values.get(name)) for values in custom.values())])
    return Sheet(f"classes-{detector}", f"{detector} on ID per class, in % (v: scores)", headers, rows)


def coverage(results: BenchmarkResult) -> Sheet:
    """The number of images per split, and how many of them are empty, failed or missing."""
    headers = [Header("detector", is_number=False), Header("split", is_number=False)]
    headers += [Header(name) for name in ("images", "empty", "failed", "missing")]
    rows = []
    for detector, result in sorted(results.detectors.items()):
        for split, counts in result.coverage.items():
            numbers = (counts.images, counts.empty, counts.failed, counts.missing_count)
            rows.append([text_cell(detector, is_header=True), text_cell(split), *map(count_cell, numbers)])
    return Sheet("coverage", "Coverage: the images of each split", headers, rows)


def failures(report_data: ReportData) -> Sheet:
    """The images that failed, with their errors."""
    rows = [
        [text_cell(row.detector, is_header=True), text_cell(row.split), text_cell(row.image), text_cell(row.error)]
        for _, table in sorted(report_data.tables.items())
        for row in table.failures
    ]
    headers = [Header(name, is_number=False) for name in ("detector", "split", "image", "error")]
    return Sheet("failures", "Images that failed (at most 200 per detector)", headers, rows)


class RunRecord(NamedTuple):
    """The seed of the corruptions and the commit of the last run, from the store's run.json.

    They are not in results.json, which does not depend on where a store was filled.
    """

    seed: int | None = None
    commit: str | None = None


def provenance(results: BenchmarkResult, run: RunRecord) -> Sheet:
    """Settings, versions and digests of the results, as name and value."""
    origin, use_case = results.provenance, results.provenance.use_case
    facts: list[tuple[str, object]] = [
        ("use case", f"{results.use_case}, version {use_case.version}"),
        ("conventions", results.conventions),
        ("complete", "no: PARTIAL" if results.is_partial else "yes"),
        ("command", score_command(results)),
        ("seed of the corruptions", "not recorded" if run.seed is None else run.seed),
        ("commit of the last run", run.commit or "not recorded"),
    ]
    facts += [(f"setting {name}", value) for name, value in setting_texts(results).items()]
    facts += [("saod-ray", origin.saod_ray), ("python", origin.python)]
    facts += sorted(origin.packages.items())
    facts += [(f"sha256 of {name}", digest) for name, digest in sorted(use_case.annotations.items())]
    facts += [(f"manifest of {name}", digest) for name, digest in sorted(use_case.manifests.items())]
    for detector, splits in sorted(origin.detections.items()):
        for split, units in splits.items():
            facts += [(f"{detector}, {split}, {unit}", digest) for unit, digest in sorted(units.items())]
    rows = [[text_cell(name, is_header=True), text_cell(value)] for name, value in facts]
    headers = [Header("name", is_number=False), Header("value", is_number=False)]
    return Sheet("provenance", "Provenance of the results", headers, rows)


def score_command(results: BenchmarkResult) -> str:
    """The command that computes these results from the store."""
    flags = [f"--{name.replace('_', '-')} {value}" for name, value in setting_texts(results).items()]
    detectors = ",".join(sorted(results.detectors))
    return " ".join(["saod-ray score STORE", f"--detectors {detectors}", *flags, *["--partial"] * results.is_partial])
