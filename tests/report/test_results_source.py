from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from usecases import import_all, random_use_case

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.files import Folder
from saod_ray.report.data import gather
from saod_ray.report.diff import DiffSide, StoreDiff, compare, detector_pairs, open_sides
from saod_ray.report.results_source import ResultsSource
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.score.metrics import MAIN
from saod_ray.store.store import Store
from saod_ray.workflow import ScoredStore, choose_resamples, score_to_files, write_report


def score(store: Path, out: Path | None = None, bootstrap: int | None = None, **settings: Any) -> ScoredStore:
    """Score as the command does."""
    opened = Store.open(store)
    resamples = choose_resamples(opened, bootstrap)
    benchmark = Benchmark(opened, ScoreSettings.from_options(**settings), resamples=resamples)
    out = out or store / "results.json"
    return score_to_files(benchmark, opened.detectors(), (Folder(str(out.parent)), out.name))


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> Path:
    """A folder with the store `runs/a`, and results of it with other settings in `iso`; tests must not change it."""
    folder = tmp_path_factory.mktemp("sources")
    random_use_case(folder / "case", seed=10, images=30, classes=3)
    for detector in ("d", "e"):
        import_all(str(folder / "runs" / "a"), folder / "case", detector)
    score(folder / "runs" / "a", bootstrap=20)
    score(folder / "runs" / "a", folder / "iso" / "results.json", calibrator="isotonic")
    score(folder / "runs" / "a", folder / "iso" / "tau.json", tau=0.3)
    return folder


@pytest.fixture
def copied(scored, tmp_path) -> Path:
    return shutil.copytree(scored, tmp_path / "copied")


def difference(a: object, b: object, **options: str) -> StoreDiff:
    first, second = open_sides(str(a), str(b), **options)
    pairs = detector_pairs(first, second, None)
    sides = [DiffSide.from_store(side, [name for name, _ in pairs], partial=False) for side in (first, second)]
    return compare(*sides, pairs, None)


# the store of results -----------------------------------------------------------------------------------------------


def test_a_store_and_its_results_file_are_the_same_source(scored) -> None:
    store = ResultsSource.open(scored / "runs" / "a")
    file = ResultsSource.open(scored / "runs" / "a" / "results.json")
    assert store.is_store and not file.is_store and store.path == file.path
    assert store.results == file.results and store.settings == file.settings == ScoreSettings()
    assert file.known_store.absolute == store.known_store.absolute
    assert not (scored / "runs" / "a" / "results.store.json").exists()


def test_results_elsewhere_find_their_store_even_if_both_move(scored, copied) -> None:
    for folder in (scored, copied):
        source = ResultsSource.open(folder / "iso" / "results.json")
        assert source.settings.calibrator == "isotonic" and source.detectors == ["d", "e"]
        assert Path(source.known_store.uri).resolve() == (folder / "runs" / "a").resolve()
    assert set(json.loads((scored / "iso" / "results.store.json").read_text())) == {"store"}


def test_a_file_inside_another_store_keeps_its_own(copied) -> None:
    other, file = copied / "runs" / "b", copied / "runs" / "b" / "of-a.json"
    shutil.copytree(copied / "runs" / "a", other)
    score(copied / "runs" / "a", file)
    assert Path(ResultsSource.open(file).known_store.uri).resolve() == (copied / "runs" / "a").resolve()
    score(other, file)
    assert not (other / "of-a.store.json").exists()
    assert Path(ResultsSource.open(file).known_store.uri).resolve() == other.resolve()


def test_results_without_their_store_need_it_named(scored, tmp_path) -> None:
    alone = shutil.copy(scored / "iso" / "results.json", tmp_path / "r.json")
    source = ResultsSource.open(alone)
    assert source.results["d"].daq == ResultsSource.open(scored / "iso" / "results.json").results["d"].daq
    with pytest.raises(SaodError, match=r"r\.json does not say which store .* name the store with --store"):
        write_report(source)
    assert ResultsSource.open(alone, scored / "runs" / "a").known_store.uri == str(scored / "runs" / "a")
    assert ResultsSource.open(alone).with_store(Store.open(scored / "runs" / "a")).store is not None


def test_a_recorded_uri_is_named_but_not_opened(copied) -> None:
    record = copied / "iso" / "results.store.json"
    record.write_text('{"store": "s3://elsewhere/store"}')
    with pytest.raises(SaodError, match="was scored from s3://elsewhere/store, which is not opened"):
        _ = ResultsSource.open(copied / "iso" / "results.json").known_store
    for text in ("{", "[]", '{"store": 3}', '{"store": ""}', '{"store": "a\\u001b[0m"}', '{"store": "a\\u0000"}'):
        record.write_text(text)
        with pytest.raises(SaodError, match="does not say which store"):
            _ = ResultsSource.open(copied / "iso" / "results.json").known_store


def test_results_are_not_those_of_another_store(scored, tmp_path) -> None:
    random_use_case(tmp_path / "case", seed=11, images=30, classes=3)
    import_all(str(tmp_path / "other"), tmp_path / "case", "d")
    with pytest.raises(SaodError, match=r"results\.json was not scored from .*other: give --store the store"):
        ResultsSource.open(scored / "iso" / "results.json", tmp_path / "other")
    with pytest.raises(SaodError, match="is not a results file, which --store is for"):
        ResultsSource.open(scored / "runs" / "a", tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "runs/a/use-case.json",
            r"has no results \(it describes a store\): give a store, or a file that `saod-ray score` wrote",
        ),
        ("runs/a/selfaware/d.json", r"has no results \(it is a self-aware detector\)"),
        ("case/id.json", r"has no results \(it has COCO annotations\)"),
        ("case/id.detections.json", r"has no results \(it is a JSON list, for instance of detections\)"),
        ("case/use-case.toml", r"has no results \(it is not a JSON file\)"),
        ("iso/none.json", r"There is no file .*none\.json: write it with `saod-ray score STORE --out"),
        ("iso", "There is no store at"),
    ],
)
def test_another_file_is_called_what_it_is(scored, name, message) -> None:
    with pytest.raises(SaodError, match=message):
        ResultsSource.open(scored / name)


def test_a_changed_results_file_is_refused(copied) -> None:
    file = copied / "iso" / "results.json"
    file.write_text(file.read_text().replace('"isotonic"', '"platt"'))
    with pytest.raises(SaodError, match=r"iso/results\.json is damaged or was changed .*--out"):
        ResultsSource.open(file)


# reports and differences --------------------------------------------------------------------------------------------


def test_a_report_shows_the_results_of_its_file(copied) -> None:
    source = ResultsSource.open(copied / "iso" / "results.json")
    assert write_report(source) == str(copied / "iso" / "report.html")
    text = (copied / "iso" / "report.html").read_text()
    assert "--calibrator isotonic" in text and "--calibrator linear" not in text
    assert not (copied / "runs" / "a" / "report.html").exists()
    assert ResultsSource.open(copied / "iso" / "tau.json").report_name == "tau.html"


def test_a_report_of_results_needs_none_in_the_store(copied) -> None:
    (copied / "runs" / "a" / "results.json").unlink()
    report_data = gather(ResultsSource.open(copied / "iso" / "tau.json"))
    assert report_data.results.settings.tau == 0.3 and sorted(report_data.tables) == ["d", "e"]


def test_a_difference_has_the_settings_and_values_of_each_side(scored) -> None:
    a, b = scored / "runs" / "a", scored / "iso" / "results.json"
    diff = difference(a, b)
    assert (diff.a, diff.b) == (str(a), str(b)) and diff.settings == {"calibrator": ("linear", "isotonic")}
    assert [pair.a for pair in diff.pairs] == ["d", "e"]
    sides = [ResultsSource.open(place).results for place in (a, b)]
    for pair in diff.pairs:
        assert pair.fingerprints == {}
        for metric in MAIN:
            change = pair.changes[metric.name]
            assert [change.a, change.b] == pytest.approx([metric.value(side[pair.a]) for side in sides], abs=1e-12)
    back = difference(b, scored / "iso" / "tau.json")
    assert set(back.settings) == {"calibrator", "tau"}


def test_the_other_side_or_an_option_gives_the_store(scored, tmp_path) -> None:
    alone, other = (shutil.copy(scored / "iso" / name, tmp_path / name) for name in ("results.json", "tau.json"))
    assert difference(scored / "runs" / "a", alone).settings == {"calibrator": ("linear", "isotonic")}
    with pytest.raises(SaodError, match="does not say which store"):
        difference(alone, other)
    assert set(difference(alone, other, store=str(scored / "runs" / "a")).settings) == {"calibrator", "tau"}


def test_one_source_is_compared_by_two_detectors(scored) -> None:
    file = scored / "runs" / "a" / "results.json"
    first, second = open_sides(str(file), str(scored / "runs" / "a"))
    assert first is second
    with pytest.raises(SaodError, match="name them with --detectors A,B"):
        detector_pairs(first, second, None)
    assert detector_pairs(first, second, ["e", "d"]) == [("e", "d")]
    with pytest.raises(SaodError, match="no results of 'f'"):
        detector_pairs(first, second, ["d", "f"])


def test_results_of_other_detections_are_refused(copied) -> None:
    shutil.rmtree(copied / "runs" / "a" / "ledger" / "d" / "id")
    source = ResultsSource.open(copied / "iso" / "results.json")
    with pytest.raises(SaodError, match=r"other detections of 'd' than .* has now: run `saod-ray score .* --out"):
        DiffSide.from_store(source, ["d"], partial=True)


# scoring again ------------------------------------------------------------------------------------------------------


def test_scoring_again_keeps_the_resamples(copied) -> None:
    store = Store.open(copied / "runs" / "a")
    assert choose_resamples(store, None) == Bootstrap(20, 0)
    assert choose_resamples(store, None, 7) == Bootstrap(20, 7)
    assert choose_resamples(store, 0) is None and choose_resamples(store, 5, 3) == Bootstrap(5, 3)
    assert score(copied / "runs" / "a").changes == f"Nothing changed since the last results in {store.uri}."
    (copied / "runs" / "a" / "results.json").write_text("{")
    assert choose_resamples(store, None) is None
    assert score(copied / "runs" / "a").changes == ""  # damaged results are replaced without a comparison


def test_what_changed_is_one_sentence(copied) -> None:
    store = copied / "runs" / "a"
    before = ResultsSource.open(store).results
    scored_again = score(store, tau=0.4, bootstrap=30)
    sentence = scored_again.changes
    assert sentence.startswith(f"Changed since the last results in {store}: tau 0.1 → 0.4; 20 → 30 resamples; values: ")
    changes = {
        f"{metric.title} of {name} {100 * metric.value(before[name]):.2f}": abs(
            metric.value(result) - metric.value(before[name])
        )
        for metric in MAIN
        for name, result in scored_again.results.detectors.items()
    }
    assert max(changes, key=changes.__getitem__) in sentence.partition("values: ")[2].split(",")[0]
    shutil.rmtree(store / "ledger" / "e")
    assert "; dropped e;" in score(store, bootstrap=0, tau=0.2).changes
