"""Mistakes in the two arguments of `saod-ray experiment`: the sentence has the right command."""

from __future__ import annotations

import pytest

from saod_ray import experiment
from saod_ray.errors import SaodError


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch) -> str:
    (tmp_path / "runs" / "shapes").mkdir(parents=True)
    (tmp_path / "runs" / "shapes" / "use-case.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return "runs/shapes"


@pytest.mark.parametrize(
    ("name", "second", "message"),
    [
        ("runs/shapes", "tau", "The arguments are swapped: run `saod-ray experiment tau runs/shapes`."),
        ("runs/other", "all", "The arguments are swapped: run `saod-ray experiment all runs/other`."),
        ("runs/shapes", None, "'runs/shapes' is a store, not an experiment: give the experiment first, for instance"),
        ("tau", None, "'tau' needs a store: run `saod-ray experiment tau runs/shapes`."),
        ("tua", "runs/shapes", "There is no experiment 'tua' (did you mean 'tau'?)"),
        ("tua", None, "There is no experiment 'tua' (did you mean 'tau'?)"),
    ],
)
def test_the_sentence_has_the_right_command(name, second, message) -> None:
    with pytest.raises(SaodError) as caught:
        experiment.select(name, second)
    assert str(caught.value).startswith(message)


def test_right_arguments_select_experiments(store) -> None:
    assert [entry.name for entry in experiment.select("tau", store)] == ["tau"]
    assert [entry.name for entry in experiment.select("all", store)] == list(experiment.NAMES)
