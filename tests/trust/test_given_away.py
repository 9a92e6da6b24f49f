"""results.json and self-aware detectors notice that they were changed, and say which detections they come from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, saod_ray
from hostile import copy_store

from saod_ray.config import UseCase
from saod_ray.errors import SaodError
from saod_ray.report.data import gather
from saod_ray.score.self_aware import SelfAware
from saod_ray.store.coco_import import import_results
from saod_ray.store.results_file import read_results
from saod_ray.store.seals import sealed
from saod_ray.store.store import Store
from saod_ray.store.verify import verify


@pytest.fixture(scope="module")
def scored(golden_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with results.json, intervals and a self-aware detector; tests must not change it."""
    store = copy_store(golden_store, tmp_path_factory.mktemp("given-away") / "store")
    run = saod_ray("score", store.uri, "--bootstrap", 20)
    assert run.returncode == 0, run.stderr
    return store


@pytest.fixture
def store(scored: Store, tmp_path: Path) -> Store:
    return copy_store(scored, tmp_path / "store", cache=True)


def changed(path: Path, change: Callable[[dict[str, Any]], None], seal: bool = False) -> None:
    """Change a JSON file, with the digest that fits where `seal` says so."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(sealed(value) if seal else value))


def in_store(store: Store, name: str) -> Path:
    return Path(store.folder.path(name))


def outcome(read: Callable[[], Any], expected: Any) -> str:
    """What came of a flip: refused with a sentence, harmless, or wrong."""
    try:
        value = read()
    except SaodError:
        return "refused"
    return "harmless" if value == expected else "wrong"


@pytest.mark.parametrize("name", ["selfaware/toy.json", "results.json"])
def test_no_flip_goes_through(store: Store, name: str) -> None:
    path = in_store(store, name)
    read = {"selfaware/toy.json": lambda: SelfAware.load(path).to_json(), "results.json": lambda: read_results(store)}[
        name
    ]
    expected, original = read(), path.read_bytes()
    rng = np.random.default_rng(15)
    outcomes = []
    for place in rng.integers(len(original), size=400):
        data = bytearray(original)
        data[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        outcomes.append(outcome(read, expected))
    assert outcomes.count("wrong") == 0 and outcomes.count("refused") > 300


def test_a_changed_file_is_refused_by_predict_and_found_by_verify(store: Store) -> None:
    assert [problem.where for problem in verify(store, ["toy"]).problems] == []
    path = in_store(store, "selfaware/toy.json")
    changed(path, lambda value: value.update(image_threshold=0.9))
    run = saod_ray("predict", "x.png", "--selfaware", path)
    assert run.returncode == 1 and "is damaged or was changed" in run.stderr
    changed(in_store(store, "results.json"), lambda value: value["detectors"]["toy"].update(daq=0.99))
    problems = verify(store, ["toy"]).problems
    assert [problem.where for problem in problems] == ["results.json", "selfaware/toy.json"]
    assert all(problem.repair == f"saod-ray score {store.uri}" for problem in problems)
    assert saod_ray("score", store.uri).returncode == 0
    assert verify(store, ["toy"]).problems == []


def wider_interval(value: dict[str, Any]) -> None:
    intervals = value["detectors"]["toy"]["intervals"]
    key = next(key for key, bounds in intervals.items() if isinstance(bounds, list))
    intervals[key] = [0.0, 1.0]


def test_intervals_are_checked_with_a_digest_and_computed_again_without(store: Store) -> None:
    path = in_store(store, "results.json")
    expected = gather(store).results.detectors
    changed(path, wider_interval)
    with pytest.raises(SaodError, match="its digest does not match"):
        gather(store)
    changed(path, lambda value: value.pop("digest"))
    with pytest.raises(SaodError, match="does not match the current detections of 'toy'"):
        gather(store)
    assert saod_ray("score", store.uri, "--bootstrap", 20).returncode == 0
    changed(path, lambda value: value.pop("digest"))  # as an earlier version wrote it
    assert gather(store).results.detectors == expected


@pytest.mark.parametrize("key", ["use_case", "detections"])
def test_provenance_is_compared_with_the_store(store: Store, key: str) -> None:
    def other(value: dict[str, Any]) -> None:
        place = value["provenance"][key]
        place = place["manifests"] if key == "use_case" else place["toy"]["id"]
        place[next(iter(place))] = "0" * 64

    changed(in_store(store, "results.json"), other, seal=True)
    with pytest.raises(SaodError, match=rf"was computed from other data \({key}\)"):
        gather(store)


@pytest.mark.parametrize(
    "change",
    [
        {"detectors": []}, {"detectors": {"toy": 3}}, {"provenance": None}, {"settings": []}, {"use_case": 7},
        {"bootstrap": {"replicates": "many"}}, {"partial": "perhaps"}, {"format": 2}, {"settings": {"tau": 7}},
    ],
)  # fmt: skip
def test_values_of_another_kind_are_one_sentence(store: Store, change: dict[str, Any]) -> None:
    changed(in_store(store, "results.json"), lambda value: value.update(change), seal=True)
    for command in ("report", "diff"):
        run = saod_ray(command, store.uri, *(["--detectors", "toy,toy"] if command == "diff" else []))
        assert run.returncode == 1 and "Traceback" not in run.stderr, run.stderr
        assert len(run.stderr.strip().splitlines()) == 1


def test_files_of_the_version_before_stay_readable(store: Store) -> None:
    """Format 2 had neither a digest nor what it was fitted on; a newer file cannot be passed off as one."""
    path = in_store(store, "selfaware/toy.json")
    new = SelfAware.load(path)
    assert new.has_digest and new.identity is not None and dict(new.identity.fitted_on).keys() == {"val", "pseudo-ood"}

    def older(value: dict[str, Any]) -> None:
        value["format"] = 2
        del value["digest"], value["fitted_on"]

    original = path.read_text()
    changed(path, older)
    old = SelfAware.load(path)
    assert not old.has_digest and old.image_threshold == new.image_threshold
    assert any("selfaware/toy.json has no digest" in note for note in verify(store, ["toy"]).notes)
    run = saod_ray("predict", "x.png", "--selfaware", path)
    assert "has no digest" in run.stderr
    for dropped in ("digest", "fitted_on"):
        path.write_text(original)
        changed(path, lambda value, key=dropped: (value.update(format=2), value.pop(key)))  # type: ignore[misc]
        with pytest.raises(SaodError, match="was changed"):
            SelfAware.load(path)


def test_results_of_detections_that_were_replaced_are_noted(store: Store, tmp_path: Path) -> None:
    assert verify(store, ["toy"]).notes == []
    rows = tmp_path / "val.json"
    shutil.copy(GOLDEN / "pseudo-ood.detections.json.gz", tmp_path / "val.json.gz")
    case = UseCase.load(GOLDEN / "use-case.toml")
    import_results(store.uri, case, "toy", "val", rows.with_name("val.json.gz"), replace=True)
    notes = verify(store, ["toy"]).notes
    assert [note.split(" was computed from other")[0] for note in notes] == ["results.json", "selfaware/toy.json"]
