"""What a user reads about a wrong setting or key: our own words, with the value and the allowed range."""

from __future__ import annotations

import pytest

from saod_ray.config import ScoreSettings, UseCase
from saod_ray.errors import SaodError

USE_CASE = 'name = "x"\n[splits.val]\nannotations = "a"\n[splits.id]\nannotations = "b"\n'


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tau": 1.0}, "tau: 1.0 is out of range: give a number of at least 0 and below 1."),
        ({"tau": float("nan")}, "tau: nan is out of range: give a number of at least 0 and below 1."),
        ({"bins": 0}, "bins: 0 is out of range: give a number of at least 1 and at most 10,000."),
        ({"bins": "x"}, "bins: give a whole number of at least 1 and at most 10,000, not 'x'."),
        (
            {"calibrator": "liner"},
            "calibrator: 'liner' is not possible (did you mean 'linear'?): use linear, isotonic,",
        ),
        ({"daq_weights": (1, 2, 3, 4)}, "daq-weights: (1, 2, 3, 4) has too many values: give 3."),
        ({"aggregate": "most"}, "aggregate: 'most' is not an aggregation: use min, mean, sum or top-N"),
    ],
)
def test_a_wrong_setting(options, sentence) -> None:
    with pytest.raises(SaodError) as caught:
        ScoreSettings.from_options(**options)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            "severities = [1, 9]",
            "the key 'splits.id.severities.1': 9 is out of range: give a number of at least 1 and at ",
        ),
        ("limits = [-1]", "the key 'splits.id.limits.0': -1 is out of range: give a number of at least 0."),
        ("images = []", "the key 'splits.id.images': it is empty: give at least one value."),
        ("images = [1]", "the key 'splits.id.images.0': give text in quotes, not 1."),
        ("about = 3", "the key 'splits.id.about': give a table, not 3."),
        ('about = { images = "many" }', "the key 'splits.id.about.images': give a whole number, not 'many'."),
    ],
)
def test_a_wrong_key_of_a_use_case_file(lines, sentence, tmp_path) -> None:
    (tmp_path / "case.toml").write_text(USE_CASE + lines)
    with pytest.raises(SaodError) as caught:
        UseCase.load(tmp_path / "case.toml")
    assert str(caught.value).startswith(f"{tmp_path / 'case.toml'}: {sentence}")
