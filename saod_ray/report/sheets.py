"""The tables of a report."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib.resources import files
from typing import Any, NamedTuple

from saod_ray.report.cells import Cell, Head, Sheet, beside_paper, count, figure_sheet, number, percent, words
from saod_ray.report.data import Gathered
from saod_ray.report.table import COLUMNS, Column

SUBSET_FIGURES = ("auroc", "fpr95", "tpr", "tnr", "ba")
COMPONENTS = tuple(
    Column(f"{title}{mark}", (where, key), False)
    for where, mark in (("id", ""), ("shift", "_T"))
    for title, key in (("LRP", "lrp"), ("Loc", "lrp_loc"), ("FP", "lrp_fp"), ("FN", "lrp_fn"))
)
ACCURACY = tuple(
    Column(title, ("accuracy", split, key), key != "olrp")
    for split in ("val", "id")
    for title, key in (
        (f"AP {split}", "ap"),
        (f"AP50 {split}", "ap50"),
        (f"AP75 {split}", "ap75"),
        (f"oLRP {split}", "olrp"),
    )
)
CLASS_FIGURES = (
    ("AP", "ap"),
    ("LRP", "lrp"),
    ("Loc", "lrp_loc"),
    ("FP", "lrp_fp"),
    ("FN", "lrp_fn"),
    ("LaECE", "laece"),
)
AFTER_PAPER = tuple(
    Column(f"{title}{mark}", (where, key), False)
    for where, mark in (("id", ""), ("shift", "_T"))
    for title, key in (("LaECE₀", "laece_0"), ("LaACE₀", "laace_0"), ("LRP₀", "lrp_0"))
)


def paper_figures(use_case: str) -> dict[str, Any]:
    """The paper's figures in percent by detector; empty for a use case that is not the paper's."""
    text = files("saod_ray.report").joinpath("paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text).get(use_case, {})


def leaderboard(gathered: Gathered) -> Sheet:
    """The paper's main table, with intervals and ranks where they were computed, and DAQ under the other conventions."""
    results = gathered.results
    detectors = ranked(results)
    sheet = figure_sheet("leaderboard", _title(results), COLUMNS, detectors, paper_figures(results["use_case"]))
    other = "paper" if results["conventions"] == "official" else "official"
    heads = [
        *sheet.heads,
        Head(f"DAQ, {other} conventions", f"DAQ of the same detections under the {other} conventions."),
    ]
    heads += [Head("rank", "By DAQ: the interval over the resamples.", False)] * ("bootstrap" in results)
    rows = []
    for (name, figures), row in zip(detectors.items(), sheet.rows, strict=True):
        row = [*_with_intervals(row, figures.get("intervals")), percent(gathered.other_daq[name])]
        rank = (figures.get("intervals") or {}).get("rank")
        row += [words("–" if rank is None else " to ".join(map(str, rank)))] * ("bootstrap" in results)
        rows.append(row)
    return Sheet(sheet.name, sheet.caption, heads, rows)


def _title(results: dict[str, Any]) -> str:
    made = results.get("bootstrap")
    if made is None:
        return "Leaderboard, in %"
    return f"Leaderboard, in %, with {100 * made['level']:.0f} % intervals of {made['replicates']:,} resamples"


def ranked(results: dict[str, Any]) -> dict[str, Any]:
    """The detectors by falling DAQ, undefined ones last."""
    found = results["detectors"]
    return {name: found[name] for name in sorted(found, key=lambda name: (-(found[name]["daq"] or 0), name))}


def _with_intervals(row: list[Cell], intervals: dict[str, Any] | None) -> list[Cell]:
    """The same cells with the ends of their intervals below them."""
    out = row[:1]
    for cell, column in zip(row[1:], COLUMNS, strict=True):
        ends: Any = intervals
        for key in column.path:
            ends = ends.get(key) if isinstance(ends, dict) else None
        text = (f"[{100 * ends[0]:.2f}, {100 * ends[1]:.2f}]",) if ends else ()
        out.append(replace(cell, notes=text + cell.notes))
    return out


def subsets(results: dict[str, Any]) -> Sheet:
    """Telling ID from OOD, by OOD subset and over all."""
    heads = [Head("detector", is_number=False), Head("OOD", is_number=False)]
    heads += [Head(f"{name.upper()} {'↓' if name == 'fpr95' else '↑'}") for name in SUBSET_FIGURES]
    paper = paper_figures(results["use_case"])
    rows = []
    for detector, figures in ranked(results).items():
        printed = paper.get(detector, {}).get("ood", {})
        for subset, each in {"all": figures["ood"], **figures["ood"]["subsets"]}.items():
            if each["auroc"] is None and subset != "all":  # a partial store may have none of its images
                continue
            row = [words(detector, is_head=True), words(subset)]
            for name in SUBSET_FIGURES:
                notes = beside_paper(each.get(name), printed.get(name)) if subset == "all" else ()
                row.append(percent(each.get(name), notes=notes))
            rows.append(row)
    return Sheet("ood", "Telling ID from OOD images, in %", heads, rows)


def severities(gathered: Gathered) -> Sheet:
    """Figures by severity."""
    heads = [Head("detector", is_number=False), Head("split", is_number=False), Head("images"), Head("accepted")]
    heads += [Head("IDQ ↑"), Head("LaECE ↓"), Head("LRP ↓"), Head("AP ↑")]
    rows = []
    for detector in ranked(gathered.results):
        for each in gathered.tables[detector]["severities"]:
            row = [
                words(detector, is_head=True),
                words(each["split"]),
                count(each["images"]),
                percent(each["accepted"]),
            ]
            rows.append(row + [percent(each[name]) for name in ("idq", "laece", "lrp", "ap")])
    return Sheet("severity", "Figures by severity, in %", heads, rows)


def calibrations(gathered: Gathered) -> Sheet:
    """LaECE before and after calibration."""
    heads = [Head("detector", is_number=False), Head("before ↓"), Head("after ↓")]
    rows = []
    for detector, figures in ranked(gathered.results).items():
        before = gathered.tables[detector].get("laece_before")
        rows.append([words(detector, is_head=True), percent(before), percent(figures["id"]["laece"])])
    return Sheet("calibration", "LaECE on ID before and after calibration, in %", heads, rows)


def classes(gathered: Gathered, detector: str) -> Sheet:
    """One detector's figures by class."""
    figures = gathered.results["detectors"][detector]
    heads = [Head("class", is_number=False), Head("objects"), Head("detections")]
    heads += [Head(title) for title, _ in CLASS_FIGURES] + [
        Head("v on val"),
        Head("v oracle", "LRP-optimal on ID itself"),
    ]
    oracle = gathered.tables[detector].get("oracle", {})
    rows = []
    for name, each in figures.get("per_class", {}).items():
        row = [words(name, is_head=True), count(each["objects"]), count(each["detections"])]
        row += [percent(each.get(key)) for _, key in CLASS_FIGURES]
        rows.append([*row, number(figures["detection_thresholds"].get(name)), number(oracle.get(name))])
    return Sheet(f"classes-{detector}", f"{detector} on ID by class, in % (v: scores)", heads, rows)


def coverage(results: dict[str, Any]) -> Sheet:
    """How many images of each split were detected, empty, failed or missing."""
    heads = [Head("detector", is_number=False), Head("split", is_number=False)]
    heads += [Head(name) for name in ("images", "empty", "failed", "missing")]
    rows = []
    for detector, figures in sorted(results["detectors"].items()):
        for split, each in figures["coverage"].items():
            numbers = [count(each.get(name, 0)) for name in ("images", "empty", "failed", "missing")]
            rows.append([words(detector, is_head=True), words(split), *numbers])
    return Sheet("coverage", "Every image accounted for", heads, rows)


def failures(gathered: Gathered) -> Sheet:
    """The images that failed, and why."""
    rows = [
        [words(each["detector"], is_head=True), words(each["split"]), words(each["image"]), words(each["error"])]
        for _, table in sorted(gathered.tables.items())
        for each in table["failures"]
    ]
    heads = [Head(name, is_number=False) for name in ("detector", "split", "image", "error")]
    return Sheet("failures", "Images that failed (at most 200 a detector)", heads, rows)


class Recorded(NamedTuple):
    """What run.json says of the last run: the seed of the corruptions, and the commit of the code that ran.

    It is not in results.json, which is the same wherever a store is scored.
    """

    seed: int | None = None
    commit: str | None = None


def provenance(results: dict[str, Any], run: Recorded) -> Sheet:
    """Where the figures come from, as name and value."""
    known = results["provenance"]
    use_case = known["use_case"]
    said: list[tuple[str, object]] = [
        ("use case", f"{results['use_case']}, version {use_case['version']}"),
        ("conventions", results["conventions"]),
        ("complete", "no: PARTIAL" if results.get("partial") else "yes"),
        ("command", score_command(results)),
        ("seed of the corruptions", "not recorded" if run.seed is None else run.seed),
        ("commit of the last run", run.commit or "not recorded"),
    ]
    said += [(f"setting {name}", _plain(value)) for name, value in sorted(results["settings"].items())]
    said += [("saod-ray", known["saod_ray"]), ("python", known["python"])]
    said += sorted(known["packages"].items())
    said += [(f"sha256 of {name}", digest) for name, digest in sorted(use_case["annotations"].items())]
    said += [(f"manifest of {name}", digest) for name, digest in sorted(use_case["manifests"].items())]
    for detector, splits in sorted(known["detections"].items()):
        for split, units in splits.items():
            said += [(f"{detector}, {split}, {unit}", digest) for unit, digest in sorted(units.items())]
    rows = [[words(name, is_head=True), words(value)] for name, value in said]
    return Sheet(
        "provenance",
        "Where the figures come from",
        [Head("what", is_number=False), Head("value", is_number=False)],
        rows,
    )


def _plain(value: object) -> str:
    return ",".join(f"{each:g}" for each in value) if isinstance(value, list) else str(value)


def score_command(results: dict[str, Any]) -> str:
    """What to type to get these figures from the store."""
    flags = [f"--{name.replace('_', '-')} {_plain(value)}" for name, value in sorted(results["settings"].items())]
    detectors = ",".join(sorted(results["detectors"]))
    return " ".join(
        ["saod-ray score STORE", f"--detectors {detectors}", *flags, *["--partial"] * bool(results.get("partial"))]
    )
