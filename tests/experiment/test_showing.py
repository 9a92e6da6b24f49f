"""Outcomes in a terminal and beside the paper's values."""

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
from saod_ray.experiment.showing import blocks, sheet
from saod_ray.store.store import Store


def outcome(heads: list[str], columns: list[str], names: list[tuple[str, ...]], printed: bool = False) -> Outcome:
    """Figures of all lengths, some undefined."""
    values = [[None if k % 7 == 3 else (10 * r + k) / 97 for k in range(len(columns))] for r in range(len(names))]
    rows = [Row(name, tuple(each)) for name, each in zip(names, values, strict=True)]
    beside = [[None if k % 2 else 12.5 + k for k in range(len(columns))] for _ in names] if printed else []
    titles = [Column(title, rising=None if k % 3 else True) for k, title in enumerate(columns)]
    about = {"name": "x", "paper": "Tab. 1", "shows": "", "use_case": "shapes", "key": ""}
    return Outcome(
        **about,
        settings={},
        detectors=[],
        partial=False,
        heads=heads,
        columns=titles,
        rows=rows,
        printed=beside,
        remarks=[],
    )


MANY = [f"column {k}" for k in range(16)]
OUTCOMES = {
    "narrow": outcome(["detector"], ["AP"], [("atss",), ("f-rcnn",)]),
    "many columns": outcome(["detector"], MANY, [("atss",), ("f-rcnn",)]),
    "many heads": outcome(
        ["detector", "v", "calibrator", "u"], MANY[:6], [("f-rcnn-single", "LRP-opt.", "linear", "TPR")]
    ),
    "beside the paper": outcome(["detector", "step"], MANY, [("atss", "a"), ("f-rcnn", "b")], printed=True),
    "long names": outcome(["detector", "class"], MANY[:4], [("a" * 50, "a class of things with many words " * 3)]),
    "wide letters": outcome(["detector", "class"], MANY, [("atss", "大きな犬" * 9), ("atss", "😀")]),
}


def shown(made: Outcome, width: int) -> list[str]:
    """What each table prints in a terminal of this width."""
    texts = []
    for table in blocks(made, width):
        console = Console(width=width, file=io.StringIO(), color_system=None)
        console.print(table)
        assert console.measure(table).maximum <= width
        texts.append(console.file.getvalue())  # type: ignore[attr-defined]
    return texts


@pytest.mark.parametrize("width", [60, 80, 81, 120, 250])
@pytest.mark.parametrize("name", OUTCOMES)
def test_no_figure_is_broken_or_lost(name, width) -> None:
    made = OUTCOMES[name]
    words = Counter(" ".join(shown(made, width)).split())
    figures = Counter(cell.text for row in sheet(made).rows for cell in row if cell.is_number)
    figures += Counter(f"{value:g}" for row in made.printed for value in row if value is not None)
    assert not figures - words


def test_every_table_has_the_heads_and_the_first_the_caption() -> None:
    texts = shown(OUTCOMES["beside the paper"], 80)
    assert len(texts) > 1
    for k, text in enumerate(texts):
        assert [line.split()[:2] for line in text.splitlines() if line.startswith((" atss", " f-rcnn"))] == [
            ["atss", "a"],
            ["f-rcnn", "b"],
        ]
        assert text.count("paper") == 2 and ("Tab. 1" in text) == (k == 0)
    assert "Tab. 1" in shown(OUTCOMES["narrow"], 80)[0]


def test_a_table_that_fits_is_one_table() -> None:
    assert [len(shown(OUTCOMES["many columns"], width)) for width in (60, 80, 250)] == [4, 3, 1]


def test_words_say_where_the_papers_values_are_of_something_else(tmp_path) -> None:
    random_use_case(tmp_path, 6)
    file = tmp_path / "use-case.toml"
    file.write_text(file.read_text().replace('"random"', '"gen"'))
    import_all(str(tmp_path / "store"), tmp_path, "f-rcnn")
    store = Store.open(str(tmp_path / "store"))
    said = "The paper's values are of all images under the default settings, these are "
    for settings, partial, expected in (
        (ScoreSettings(), False, []),
        (ScoreSettings(), True, [f"{said}of a partial store."]),
        (ScoreSettings(tau=0.5), False, [f"{said}with tau 0.5."]),
    ):
        made = perform(find("components"), ExperimentContext(store, settings, ["f-rcnn"], partial))
        assert made.printed and made.remarks == expected
