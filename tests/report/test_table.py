from __future__ import annotations

import io
import re

import pytest
from example_results import example_detector, example_results
from rich.console import Console

from saod_ray.report.table import MAIN, fold_name, format_value, result_table
from saod_ray.score.results import BenchmarkResult

LONG = ("cascade-mask-rcnn_r50.fpn-1x-coco-person", "x" * 40)
WIDTHS = (80, 120, 200)


def printed(results: BenchmarkResult, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(result_table(results))
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return lines


def results_of(names: tuple[str, str], *, is_resampled: bool) -> BenchmarkResult:
    daqs = dict(zip(names, (0.4294, 0.5), strict=True))
    return example_results({name: example_detector(daq, is_resampled=is_resampled) for name, daq in daqs.items()})


@pytest.mark.parametrize("names", [("abc", "xyz"), LONG])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("is_resampled", [False, True])
def test_nothing_is_cut_at_any_width(names, width, is_resampled) -> None:
    results = results_of(names, is_resampled=is_resampled)
    lines = printed(results, width)
    text = "\n".join(lines)
    header = next(line for line in lines if line.split()[:1] == ["detector"])
    assert [word[:-1] for word in header.split()[1:]] == [metric.title for metric in MAIN]
    rows = [line for line in lines if "50.00" in line.split() or "42.94" in line.split()]
    assert [("50.00" in row.split()) for row in rows] == [True, False]  # the higher DAQ comes first
    for row, result in zip(rows, results.ranked().values(), strict=True):
        for metric in MAIN:
            assert format_value(metric, metric.value(result)) in row.split()
            for end in metric.interval(result) or ():
                assert f"{100 * end:.1f}" in text
    assert "…" not in text and "not shown" not in text
    name_width = result_table(results).layout(width).name_width
    column = [line[1 : name_width + 1] for line in lines[lines.index(header) + 2 :]]
    for name in names:  # folded, but complete
        assert name in "".join(part.strip() for part in column)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (200, [r"50\.00 \[47\.0, 54\.0\]"]),
        (120, [r"50\.00 ", r"47\.0–54\.0 "]),
        (80, [r"50\.00 ", r"47\.0– ", r"54\.0 "]),
    ],
)
def test_intervals_are_beside_or_below_the_values(width, expected) -> None:
    lines = printed(results_of(("abc", "xyz"), is_resampled=True), width)
    first = next(k for k, line in enumerate(lines) if line.split()[:1] == ["xyz"])
    for line, pattern in zip(lines[first:], expected, strict=False):
        assert re.search(pattern, line), line
    assert lines[first + len(expected)].split()[0] == "abc"
    assert not any(line.split()[:1] in (["from"], ["to"]) for line in lines)


def test_rows_are_in_the_order_of_daq_with_undefined_ones_last() -> None:
    daqs = {"none": None, "zero": 0.0, "low": 0.1, "high": 0.9}
    results = example_results({name: example_detector(daq, is_resampled=False) for name, daq in daqs.items()})
    names = [line.split()[0] for line in printed(results, 80) if line.split()[:1] and line.split()[0] in daqs]
    assert names == ["high", "low", "zero", "none"]


def test_the_title_names_settings_that_are_not_the_defaults() -> None:
    detectors = {"abc": example_detector(0.4, is_resampled=False)}
    assert printed(example_results(detectors), 120)[0].rstrip() == "shapes, official conventions, in %"
    results = example_results(detectors, calibrator="isotonic", tau=0.3, daq_weights=(1, 2, 1), conventions="paper")
    expected = "shapes, paper conventions, calibrator isotonic, tau 0.3, daq weights 1,2,1, in %"
    assert printed(results, 120)[0].rstrip() == expected


def test_what_a_narrow_terminal_leaves_out_is_said() -> None:
    custom = ("recall", "precision")
    results = example_results(
        {"abc": example_detector(0.4, custom=custom), "xyz": example_detector(0.5, custom=custom)}
    )
    lines = printed(results, 80)
    (note,) = [line.rstrip() for line in lines if line.startswith("not shown")]
    assert note == "not shown in 80 columns: LaECE, LRP, LaECE_T, LRP_T, AP"
    header = next(line for line in lines if line.split()[:1] == ["detector"])
    assert header.split()[-4:] == ["recall↑", "recall_T↑", "precision↑", "precision_T↑"]
    assert "123.4" in "\n".join(lines) and "not shown" not in "\n".join(printed(results, 200))


def test_names_are_folded_after_punctuation() -> None:
    assert fold_name("abc", 16) == ["abc"]
    assert fold_name(LONG[0], 18) == ["cascade-mask-rcnn_", "r50.fpn-1x-coco-", "person"]
    assert fold_name("x" * 40, 16) == ["x" * 16, "x" * 16, "x" * 8]
    assert fold_name("atss (runs/shapes)", 9) == ["atss", "(runs/", "shapes)"]
