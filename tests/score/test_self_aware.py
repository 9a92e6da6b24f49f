from __future__ import annotations

import pytest

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.self_aware import SelfAware
from saod_ray.store.seals import encode_json


@pytest.mark.parametrize("calibrator", ["linear", "isotonic", "histogram", "platt", "temperature", "none"])
@pytest.mark.parametrize("conventions", ["official", "paper"])
def test_what_is_written_is_what_is_read(golden_store, tmp_path, calibrator, conventions) -> None:
    settings = ScoreSettings(calibrator=calibrator, conventions=conventions)
    written = Benchmark(golden_store, settings).score(["toy"])["toy"].selfaware
    (tmp_path / "toy.json").write_bytes(encode_json(written))  # keys sorted, as the command writes it
    read = SelfAware.load(tmp_path / "toy.json")
    assert read.to_file() == written
    assert read.settings == settings


def test_bad_files_are_refused(tmp_path) -> None:
    with pytest.raises(SaodError, match="There is no file"):
        SelfAware.load(tmp_path / "no.json")
    for text in ('{"detector": "x"}', "[" * 200_000, ""):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(SaodError, match="is not a self-aware detector"):
            SelfAware.load(tmp_path / "bad.json")
