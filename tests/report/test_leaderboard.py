from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from example_results import example_detector, example_results
from rich.console import Console
from usecases import import_all, random_use_case

import saod_ray as saod
from saod_ray.config import ScoreSettings
from saod_ray.report.leaderboard import Leaderboard
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.metrics import MAIN
from saod_ray.score.results import BenchmarkResult
from saod_ray.store.seals import encode_json
from saod_ray.store.store import Store
from saod_ray.workflow import score_to_files


def write(path: Path, results: BenchmarkResult, **changes: Any) -> Path:
    """Write a results file; `changes` replace parts of its provenance."""
    provenance = msgspec.structs.replace(results.provenance, **changes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_json(msgspec.structs.replace(results, provenance=provenance).sealed()))
    return path


def two_files(folder: Path, **changes: Any) -> list[Path]:
    ours = example_results({"atss": example_detector(0.4), "d-detr": example_detector(None)})
    theirs = example_results({"atss": example_detector(0.5)}, **changes.pop("settings", {}))
    return [write(folder / "a" / "results.json", ours), write(folder / "b" / "results.json", theirs, **changes)]


# rows ---------------------------------------------------------------------------------------------------------------


def test_rows_are_in_the_order_of_daq_with_distinct_labels(tmp_path) -> None:
    board = saod.leaderboard(*two_files(tmp_path))
    assert [row.label for row in board.rows] == ["atss (b)", "atss (a)", "d-detr (a)"]
    assert [row.result.daq for row in board.rows] == [0.5, 0.4, None]
    assert board.warnings == [] and board.use_case == "shapes"
    frame = board.frame
    assert frame.columns[:3] == ["detector", "source", "DAQ"] and frame["DAQ"].to_list() == [0.5, 0.4, None]
    assert frame["DAQ low"].to_list() == pytest.approx([0.47, 0.37, None])
    assert frame["source"].to_list()[0] == str(tmp_path / "b" / "results.json")


def test_labels_are_as_short_as_they_may_be(tmp_path) -> None:
    results = example_results({"atss": example_detector(0.4)})
    places = [tmp_path / name for name in ("x/run/results.json", "y/run/results.json", "y/run/tau.json", "y/tau.json")]
    for place in places:
        write(place, results)
    assert [row.label for row in saod.leaderboard(places[0]).rows] == ["atss"]
    labels = {row.source: row.label for row in saod.leaderboard(*places).rows}
    expected = ["atss (x/run)", "atss (y/run)", "atss (run/tau)", "atss (y/tau)"]
    assert [labels[str(place)] for place in places] == expected
    assert len(saod.leaderboard(places[0], str(places[0]), places[0].parent / ".." / "run" / "results.json").rows) == 1


# warnings -----------------------------------------------------------------------------------------------------------


def test_every_difference_names_its_key_values_and_rows(tmp_path) -> None:
    packages = {"numpy": "2.1.0", "polars": "1.30.0"}
    settings = {"conventions": "paper", "tau": 0.3}
    paths = two_files(tmp_path, packages=packages, saod_ray="0.2.0", settings=settings)
    board = saod.leaderboard(*paths)
    all_of_a = f"all rows of {paths[0]}"
    assert board.warnings == [
        f"Different conventions: paper for atss (b); official for {all_of_a}.",
        f"Different setting tau: 0.3 for atss (b); 0.1 for {all_of_a}.",
        f"Different version of saod-ray: 0.2.0 for atss (b); 0.1.0 for {all_of_a}.",
        f"Different version of numpy: 2.1.0 for atss (b); 2.0.0 for {all_of_a}.",
    ]
    (tau,) = [difference for difference in board.differences if difference.key == "setting tau"]
    assert {group.value: group.rows for group in tau.values} == {
        "0.3": ["atss (b)"],
        "0.1": ["atss (a)", "d-detr (a)"],
    }


def test_partial_rows_are_named(tmp_path) -> None:
    results = msgspec.structs.replace(example_results({"atss": example_detector(0.4)}), partial=True)
    write(tmp_path / "a.json", results)
    assert saod.leaderboard(tmp_path / "a.json").warnings == ["PARTIAL: images are missing for atss."]


# stores and files ---------------------------------------------------------------------------------------------------


def run_like(store: Path, seed: int) -> None:
    """Make a store look as if a run had filled it."""
    for page in store.glob("ledger/d/*/all.json"):
        page.rename(page.with_name("00000000-00000020.json"))
    (store / "run.json").write_text(json.dumps({"settings": {"seed": seed}, "updated": "2026-01-02T03:04:05+00:00"}))


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("boards")
    random_use_case(folder / "case", seed=10, images=20, classes=3)
    import_all(str(folder / "one"), folder / "case", "d")
    shutil.copytree(folder / "one", folder / "two")
    for store in (folder / "one", folder / "two"):
        opened = Store.open(store)
        benchmark = Benchmark(opened, ScoreSettings(), resamples=Bootstrap(10, 0))
        score_to_files(benchmark, ["d"], (opened.folder, "results.json"))
    return [folder / "one", folder / "two"]


def test_stores_give_the_values_of_their_results(stores) -> None:
    board = saod.leaderboard(*stores)
    results = saod.open(stores[0]).results()
    assert [row.label for row in board.rows] == ["d (one)", "d (two)"] and board.warnings == []
    rows = board.to_json()["rows"]
    assert json.loads(json.dumps(rows)) == rows
    for row in rows:
        assert row["metrics"] == {metric.name: metric.value(results["d"]) for metric in MAIN}
        assert row["intervals"]["daq"] == results["d"].intervals.daq and row["provenance"]["seed"] is None
    with pytest.raises(saod.SaodError, match="has no results"):
        saod.leaderboard(stores[0] / "use-case.json")


def test_seeds_come_from_the_run_of_each_store(stores, tmp_path) -> None:
    copies = [shutil.copytree(store, tmp_path / store.name) for store in stores]
    for seed, store in enumerate(copies):
        run_like(store, seed)
    assert Store.open(copies[0]).was_run("d")
    board = saod.leaderboard(*copies)
    assert board.warnings == ["Different seed of the corruptions: 0 for d (one); 1 for d (two)."]
    assert board.rows[0].provenance.last_run == "2026-01-02T03:04:05+00:00"


# refusals -----------------------------------------------------------------------------------------------------------


def refusal(tmp_path: Path, theirs: BenchmarkResult, **changes: Any) -> str:
    ours = write(tmp_path / "a.json", example_results({"atss": example_detector(0.4)}))
    with pytest.raises(saod.SaodError) as caught:
        saod.leaderboard(ours, write(tmp_path / "b.json", theirs, **changes))
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_other_use_cases_classes_and_images_are_refused(tmp_path) -> None:
    detector = example_detector(0.5)
    results = example_results({"atss": detector})
    other_case = msgspec.structs.replace(results, use_case="gen")
    expected = "a.json is of 'shapes' version 1 and b.json of 'gen' version 1: join results of one use case."
    assert refusal(tmp_path, other_case) == expected
    other = msgspec.structs.replace(detector, detection_thresholds={"circle": 0.1, "star": 0.1})
    message = refusal(tmp_path, example_results({"atss": other}))
    assert "only one has the classes square, star: join results with the same classes." in message
    use_case = results.provenance.use_case
    manifests = msgspec.structs.replace(use_case, manifests={"val": "cc"})
    images = msgspec.structs.replace(manifests, annotations={"val.json": "dd"})
    assert "images or objects differ in val: join results of the same data" in refusal(
        tmp_path, results, use_case=images
    )
    write(tmp_path / "b.json", results, use_case=manifests)  # the same input, written by another version of a package
    assert len(saod.leaderboard(tmp_path / "a.json", tmp_path / "b.json").rows) == 2
    with pytest.raises(saod.SaodError, match="give stores or results files"):
        saod.leaderboard()


def test_results_without_detectors_are_refused(tmp_path) -> None:
    results = msgspec.structs.replace(example_results({"atss": example_detector(0.4)}), detectors={})
    with pytest.raises(saod.SaodError, match=r"a\.json has no detectors"):
        saod.leaderboard(write(tmp_path / "a.json", results))


def test_control_characters_do_not_reach_the_terminal(tmp_path) -> None:
    results = example_results({"atss\x1b[2J": example_detector(0.4)})
    with pytest.raises(saod.SaodError, match=r"has control characters in 'atss\\x1b"):
        saod.leaderboard(write(tmp_path / "a.json", results))


# output -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_table_has_every_row(tmp_path, width) -> None:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(saod.leaderboard(*two_files(tmp_path)).table())
    lines = console.file.getvalue().splitlines()
    assert lines[0].rstrip() == "shapes, official conventions, in %, 3 rows from 2 sources"
    names = [line[: line.index(")") + 1].strip() for line in lines if re.search(r"\([ab]\)", line)]
    assert names == ["atss (b)", "atss (a)", "d-detr (a)"] and max(map(len, lines)) <= width


def test_the_page_has_every_row_and_shows_names_as_text(tmp_path) -> None:
    nasty = "<script>x</script>"
    paths = two_files(tmp_path / nasty.replace("/", "_"), settings={"tau": 0.3})
    board = saod.leaderboard(*paths)
    out = board.to_html(tmp_path / "pages" / "board.html")
    text = Path(out).read_text()
    assert "<script>x" not in text and "&lt;script&gt;x" in text
    assert not re.search(r"""(src|href)=["'](?!#)""", text)  # it needs no other file
    body = re.search(r'<table id="leaderboard".*?<tbody>(.*?)</tbody>', text, re.DOTALL)[1]
    rows = re.findall(r"<tr>(.*?)</tr>", body)
    assert [re.search(r">([^<]*)</th>", row)[1] for row in rows] == ["atss", "atss", "d-detr"]
    assert 'data-value="0.5">50.00<small>[47.00, 54.00]</small>' in rows[0]
    assert text.count('class="banner"') == len(board.warnings) == 1
    assert "Different setting tau: 0.3 for atss (b)" in text and "tau 0.3</td>" in text
    assert Leaderboard.open(paths).to_html(out) == out and Path(out).read_text() == text


def test_a_notebook_shows_the_table_and_the_warnings(tmp_path) -> None:
    board = saod.leaderboard(*two_files(tmp_path, settings={"tau": 0.3}))
    assert "Different setting tau" in board._repr_html_() and "<table" in board._repr_html_()
    assert repr(board).endswith("3 rows from 2 sources; best DAQ: atss (b)>")
