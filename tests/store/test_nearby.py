"""Paths that are not stores: the sentence says what they are, and names the store that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from saod_ray.errors import SaodError
from saod_ray.store.store import Store


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("runs/shapes", "runs/gen", "mine"):
        (tmp_path / name / "detections").mkdir(parents=True)
        (tmp_path / name / "use-case.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (
            "runs/shape",
            "There is no store at runs/shape (did you mean 'runs/shapes'?): create it with `saod-ray run --",
        ),
        ("shapes", "There is no store at shapes (did you mean 'runs/shapes'?): "),
        ("mines", "There is no store at mines (did you mean 'mine'?): "),
        (
            "quite/different",
            "There is no store at quite/different: create it with `saod-ray run --store quite/different`",
        ),
        ("runs", "There is no store at runs, but in that folder: give runs/gen, runs/shapes."),
        ("runs/gen/detections", "There is no store at runs/gen/detections, which is part of one: give runs/gen."),
        (
            "empty",
            "There is no store at empty, a folder without use-case.json: create it with `saod-ray run --store em",
        ),
        (
            "runs/gen/use-case.json",
            "runs/gen/use-case.json is a file: give the folder of a store, for instance runs/gen",
        ),
    ],
)
def test_a_path_that_is_not_a_store(path, sentence, here) -> None:
    with pytest.raises(SaodError) as caught:
        Store.open(path)
    assert str(caught.value).startswith(sentence)


def test_absolute_paths_are_suggested_for_absolute_paths(here) -> None:
    with pytest.raises(SaodError) as caught:
        Store.open(here / "runs" / "shape")
    assert f"(did you mean '{here}/runs/shapes'?)" in str(caught.value)
