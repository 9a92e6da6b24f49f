"""Outcomes in a terminal and next to the paper's values."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from rich.console import Console
from usecases import import_all, random_use_case

from saod_ray.config import ScoreSettings
from saod_ray.experiment import find
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Outcome, Row, perform
from saod_ray.experiment.render import sheet, terminal_tables
from saod_ray.store.store import Store


def outcome(
    headers: list[str], columns: list[str], names: list[tuple[str, ...]], with_paper_values: bool = False
) -> Outcome:
    """Values of all lengths, some undefined."""
    values = [[None if k % 7 == 3 else (10 * r + k) / 97 for k in range(len(columns))] for r in range(len(names))]
    rows = [Row(name, tuple(row)) for name, row in zip(names, values, strict=True)]
    paper_row = [None if k % 2 else 12.5 + k for k in range(len(columns))]
    titles = [Column(title, higher_is_better=None if k % 3 else True) for k, title in enumerate(columns)]
    about = {"name": "x", "paper": "Tab. 1", "shows": "", "use_case": "shapes", "key": ""}
    return Outcome(
        **about,
        settings={},
        detectors=[],
        partial=False,
        headers=headers,
        columns=titles,
        rows=rows,
        paper_values=[paper_row for _ in names] if with_paper_values else [],
        remarks=[],
    )


MANY = [f"column {k}" for k in range(16)]
OUTCOMES = {
    "narrow": outcome(["detector"], ["AP"], [("atss",), ("f-rcnn",)]),
    "many columns": outcome(["detector"], MANY, [("atss",), ("f-rcnn",)]),
    "many headers": outcome(
        ["detector", "v", "calibrator", "u"], MANY[:6], [("f-rcnn-single", "LRP-opt.", "linear", "TPR")]
    ),
    "next to the paper": outcome(["detector", "step"], MANY, [("atss", "a"), ("f-rcnn", "b")], with_paper_values=True),
    "long names": outcome(["detector", "class"], MANY[:4], [("a" * 50, "a class of things with many words " * 3)]),
    "wide letters": outcome(["detector", "class"], MANY, [("atss", "大きな犬" * 9), ("atss", "😀")]),
}


def printed_tables(result: Outcome, width: int) -> list[str]:
    """The text of each table in a terminal of this width."""
    texts = []
    for table in terminal_tables(result, width):
        console = Console(width=width, file=io.StringIO(), color_system=None)
        console.print(table)
        assert console.measure(table).maximum <= width
        texts.append(console.file.getvalue())  # type: ignore[attr-defined]
    return texts


@pytest.mark.parametrize("width", [60, 80, 81, 120, 250])
@pytest.mark.parametrize("name", OUTCOMES)
def test_no_value_is_broken_or_lost(name, width) -> None:
    result = OUTCOMES[name]
    words = Counter(" ".join(printed_tables(result, width)).split())
    values = Counter(cell.text for row in sheet(result).rows for cell in row if cell.is_number)
    values += Counter(f"{value:g}" for row in result.paper_values for value in row if value is not None)
    assert values and not values - words


def test_every_table_has_the_headers_and_the_first_the_caption() -> None:
    texts = printed_tables(OUTCOMES["next to the paper"], 80)
    assert len(texts) > 1
    for k, text in enumerate(texts):
        assert [line.split()[:2] for line in text.splitlines() if line.startswith((" atss", " f-rcnn"))] == [
            ["atss", "a"],
            ["f-rcnn", "b"],
        ]
        assert text.count("paper") == 2 and ("Tab. 1" in text) == (k == 0)
    assert "Tab. 1" in printed_tables(OUTCOMES["narrow"], 80)[0]


def test_a_table_that_fits_is_one_table() -> None:
    assert [len(printed_tables(OUTCOMES["many columns"], width)) for width in (60, 80, 250)] == [4, 3, 1]


def test_a_remark_says_that_the_papers_settings_differ(tmp_path) -> None:
    random_use_case(tmp_path, 6)
    file = tmp_path / "use-case.toml"
    file.write_text(file.read_text().replace('"random"', '"gen"'))
    import_all(str(tmp_path / "store"), tmp_path, "f-rcnn")
    store = Store.open(str(tmp_path / "store"))
    remark = "The paper's values are for all images with the default settings; these are "
    for settings, partial, expected in (
        (ScoreSettings(), False, []),
        (ScoreSettings(), True, [f"{remark}for a partial store."]),
        (ScoreSettings(tau=0.5), False, [f"{remark}with tau 0.5."]),
    ):
        result = perform(find("components"), ExperimentContext(store, settings, ["f-rcnn"], partial))
        assert result.paper_values and result.remarks == expected
