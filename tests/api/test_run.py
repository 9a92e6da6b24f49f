"""`saod_ray.run` from a use case to results, as a notebook calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

import saod_ray as saod
from saod_ray.workflow import RunEvents

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_run_from_python_ends_with_results(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)  # where the scenes and the weights are
    events = RecordedEvents()
    bench = saod.run(use_case="shapes", detectors=["atss"], store=tmp_path / "store", limit=8, events=events)
    assert bench.detectors == ["atss"]
    assert bench.detections("atss", "id").collect()["image_id"].n_unique() <= 8
    assert 0 < bench.results()["atss"].daq < 1
    assert (tmp_path / "store" / "report.html").exists()
    assert "atss" in events.plan and events.images["atss"] == events.expected["atss"] > 0

    again = RecordedEvents()
    saod.run(use_case="shapes", detectors="atss", store=tmp_path / "store", limit=8, events=again)
    assert not again.expected  # everything was there


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(saod.SaodError, match=r"no option 'btach_size' .did you mean 'batch_size'"):
        saod.run("shapes", "atss", btach_size=2)
    with pytest.raises(saod.SaodError, match="is not a path"):
        saod.run(use_case=3)  # type: ignore[arg-type]


class RecordedEvents(RunEvents):
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.plan = ""
        self.expected: dict[str, int] = {}
        self.images: dict[str, int] = {}

    def on_plan(self, summary: str) -> None:
        self.plan = summary

    def detecting(self, images):
        self.expected = images
        return _Counter(self.images)


class _Counter:
    def __init__(self, images: dict[str, int]) -> None:
        self._images = images

    def __enter__(self):
        return lambda lane, count: self._images.update({lane: self._images.get(lane, 0) + count})

    def __exit__(self, *_) -> None:
        pass
