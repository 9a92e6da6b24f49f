"""An uncertainty that only some detectors have: the sentence names both groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from usecases import import_all, random_use_case

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """`full` has entropy and ds; `bare` and `plain` have scores only."""
    folder: Path = tmp_path_factory.mktemp("lacking")
    random_use_case(folder, 3)
    import_all(str(folder / "store"), folder, "full")
    for path in folder.glob("*.detections.json"):
        rows = json.loads(path.read_text())
        path.write_text(json.dumps([{key: row[key] for key in row if key != "uncertainty"} for row in rows]))
    for detector in ("bare", "plain"):
        import_all(str(folder / "store"), folder, detector)
    return Store.open(folder / "store")


@pytest.mark.parametrize(
    ("kind", "detectors", "sentence"),
    [
        (
            "ds",
            ["bare", "full", "plain"],
            "The uncertainty 'ds' needs the column 'ds', which bare, plain lack: give --detectors full to use those "
            "that have it, or another --uncertainty (score).",
        ),
        (
            "ds",
            ["bare"],
            "The uncertainty 'ds' needs the column 'ds', which bare lacks: use another --uncertainty (score).",
        ),
        (
            "joint-entropy",
            ["full"],
            "The uncertainty 'joint-entropy' needs the columns 'entropy' and 'variance', which full lacks: use another "
            "--uncertainty (score, entropy, ds).",
        ),
    ],
)
def test_detectors_without_an_uncertainty_are_named(kind, detectors, sentence, store) -> None:
    with pytest.raises(SaodError) as caught:
        Benchmark(store, ScoreSettings(uncertainty=kind)).score(detectors)
    assert str(caught.value) == sentence
