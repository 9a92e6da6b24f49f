from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import saod_ray
from usecases import SPLITS, import_all, random_use_case

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.report.diff import detector_pairs, last_settings, refuse_incomparable
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import METRICS, RESAMPLED, Bootstrap
from saod_ray.store.store import Store

PATHS = [tuple(name.split(".")) for name in RESAMPLED]


def with_other_scores(case: Path) -> None:
    rng = np.random.default_rng(1)
    for split in SPLITS:
        path = case / f"{split}.detections.json"
        rows = json.loads(path.read_text())
        path.write_text(json.dumps([row | {"score": row["score"] * rng.uniform(0.5, 1)} for row in rows]))


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> tuple[Store, Store]:
    """Two stores of one use case: both have d, with other scores in the second, which has e alone."""
    folder = tmp_path_factory.mktemp("diff")
    random_use_case(folder / "case", seed=10, images=60, classes=5)
    import_all(str(folder / "a"), folder / "case", "d")
    import_all(str(folder / "b"), folder / "case", "e")
    with_other_scores(folder / "case")
    import_all(str(folder / "b"), folder / "case", "d")
    return Store.open(str(folder / "a")), Store.open(str(folder / "b"))


def diff(*args: object) -> dict[str, Any]:
    run = saod_ray("diff", *args, "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def change(pair: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    value = pair["figures"]
    for key in path:
        value = value[key]
    return value


def test_differences_are_paired_over_resamples(stores) -> None:
    a, b = stores
    value = diff(a.uri, b.uri, "--bootstrap", 200, "--bootstrap-seed", 3)
    (pair,) = value["pairs"]
    resamples = Bootstrap(200, 3)
    sides = [Benchmark(store, ScoreSettings(), resamples=resamples).score(["d"])["d"] for store in stores]
    for column, metric in enumerate(METRICS):
        reported = change(pair, tuple(metric.name.split(".")))
        values = [metric.value(scored.result) for scored in sides]
        assert [reported["a"], reported["b"], reported["difference"]] == [*values, values[1] - values[0]]
        changes = sides[1].replicates[:, column] - sides[0].replicates[:, column]
        rows = sorted((changes - changes.mean() + reported["difference"]).tolist())
        low, high = reported["interval"]
        assert rows[4] <= low <= rows[5] and rows[194] <= high <= rows[195]
    assert change(pair, ("accuracy", "val", "ap"))["interval"] is None  # val is not resampled
    assert set(pair["fingerprints"]) == set(SPLITS) and pair["coverage"] == {}
    assert value["only_in"] == {"a": [], "b": ["e"]} and value["settings"] == {}


def test_swapping_the_detectors_changes_the_sign(stores) -> None:
    (pair,) = diff(stores[0].uri, stores[1].uri, "--bootstrap", 0)["pairs"]
    assert all(change(pair, path)["interval"] is None for path in PATHS)
    value = diff(stores[1].uri, "--detectors", "e,d", "--bootstrap", 50)
    back = diff(stores[1].uri, "--detectors", "d,e", "--bootstrap", 50)
    for path in PATHS:
        forth = change(value["pairs"][0], path)
        reverse = change(back["pairs"][0], path)
        assert forth["difference"] == -reverse["difference"]
        assert forth["interval"] == pytest.approx([-end for end in reversed(reverse["interval"])], abs=1e-15)


def test_a_copy_differs_in_what_was_done_to_it(stores, tmp_path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(stores[0].uri, copy)
    (pair,) = diff(stores[0].uri, copy, "--bootstrap", 20)["pairs"]
    assert pair["fingerprints"] == {} and all(change(pair, path)["interval"] == [0, 0] for path in PATHS)
    result = saod_ray("diff", stores[0].uri, copy, "--bootstrap", 20)
    assert "Nothing else differs." in result.stdout
    assert saod_ray("score", copy, "--tau", 0.3).returncode == 0
    shutil.rmtree(copy / "ledger" / "d" / "id-c3")
    refused = saod_ray("diff", stores[0].uri, copy)
    assert refused.returncode == 1 and "incomplete: id-c3" in refused.stderr
    result = saod_ray("diff", stores[0].uri, copy, "--bootstrap", 20, "--partial")
    assert result.returncode == 0, result.stderr
    assert "setting tau: 0.1 and 0.3" in result.stdout
    assert "d: fingerprints differ on id-c3" in result.stdout
    assert "d: coverage of id-c3: " in result.stdout and "0 and 60 missing" in result.stdout


def test_the_table_has_every_value_with_its_interval(stores) -> None:
    run = saod_ray("diff", stores[1].uri, "--detectors", "d,e", "--bootstrap", 50)
    assert run.returncode == 0, run.stderr
    daq = change(diff(stores[1].uri, "--detectors", "d,e", "--bootstrap", 50)["pairs"][0], ("daq",))
    (line,) = [line for line in run.stdout.splitlines() if line.split()[:1] == ["DAQ↑"]]
    numbers = [daq["a"], daq["b"], daq["difference"], *daq["interval"]]
    printed = [float(word) for word in line.split()[1:] if word != "to"]
    assert printed == pytest.approx([100 * number for number in numbers], abs=0.00501)


def test_stores_of_other_data_are_refused(stores, tmp_path) -> None:
    random_use_case(tmp_path / "case", seed=11, images=60, classes=5)
    import_all(str(tmp_path / "other"), tmp_path / "case", "d")
    run = saod_ray("diff", stores[0].uri, tmp_path / "other")
    assert run.returncode == 1 and "both of 'random', but differ in val, id, ood, classes" in run.stderr
    file = tmp_path / "case" / "use-case.toml"
    file.write_text(file.read_text().replace('"random"', '"stranger"'))
    import_all(str(tmp_path / "stranger"), tmp_path / "case", "d")
    with pytest.raises(
        SaodError, match=r"is of 'random' version 1 and .* of 'stranger' version 1: compare stores of one"
    ):
        refuse_incomparable(stores[0], Store.open(str(tmp_path / "stranger")))


def test_what_cannot_be_paired_is_refused(stores, tmp_path) -> None:
    a, b = stores
    for names in (None, ["d"], ["d", "d"], ["d", "e", "d"]):
        with pytest.raises(SaodError, match="name them with --detectors A,B"):
            detector_pairs(b, b, names)
    with pytest.raises(SaodError, match="has no detector 'e'"):
        detector_pairs(a, b, ["e"])
    shutil.copytree(b.uri, tmp_path / "e")
    shutil.rmtree(tmp_path / "e" / "ledger" / "d")
    with pytest.raises(SaodError, match=r"has d and .* has e, so no detector is in both"):
        detector_pairs(a, Store.open(str(tmp_path / "e")), None)


def test_settings_are_those_of_the_last_scoring(stores, tmp_path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(stores[0].uri, copy, ignore=shutil.ignore_patterns("results.json"))
    assert last_settings(Store.open(str(copy))) == ScoreSettings()
    assert saod_ray("score", copy, "--conventions", "paper", "--daq-weights", "1,2,1").returncode == 0
    expected = ScoreSettings.from_options(conventions="paper", daq_weights=(1.0, 2.0, 1.0))
    assert last_settings(Store.open(str(copy))) == expected
    for text in ("{", "[]", "{}"):
        (copy / "results.json").write_text(text)
        with pytest.raises(SaodError, match=r"results\.json is damaged: run `saod-ray score"):
            last_settings(Store.open(str(copy)))
