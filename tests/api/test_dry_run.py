"""Estimates of runs whose data does not exist yet."""

from __future__ import annotations

import pytest

from saod_ray.errors import SaodError
from saod_ray.workflow import BenchmarkRun, RunEvents, RunOptions, dry_run


class Lines(RunEvents):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_published_sizes(self, message: str) -> None:
        self.lines.append(message)


def test_the_published_sizes_estimate_a_run_without_data(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    events = Lines()
    estimates = dry_run(RunOptions(use_case="gen", detectors="atss,f-rcnn"), events)
    images = 2 * 5000 + 4 * 45391 + 28768 + 35190 + 46470
    assert [(row.detector, row.missing, row.cached) for row in estimates] == [
        ("atss", images, 0),
        ("f-rcnn", images, 0),
    ]
    assert estimates[0].shards == 2 * 40 + 4 * 355 + 863  # 128 images each
    (line,) = events.lines
    assert line.startswith("The images are estimated from the published sizes of 'gen'.")
    assert "saod-ray data status gen --data" in line
    assert list(tmp_path.iterdir()) == []


def test_limit_and_val_shift_count(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    estimates = dry_run(RunOptions(use_case="gen", detectors="atss", limit=100, with_val_shift=True))
    assert estimates[0].missing == (7 + 3) * 100


@pytest.mark.parametrize("probe", [True, False])
def test_without_sizes_or_images_the_data_is_missing(probe, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = "gen"
    if not probe:  # a use case that publishes no sizes
        case = "case.toml"
        (tmp_path / case).write_text('name = "x"\n[splits.val]\nannotations = "a"\n[splits.id]\nannotations = "b"\n')
        (tmp_path / "d.toml").write_text('[mine]\nbackend = "torchvision"\n')
    with pytest.raises(SaodError, match=rf"^There is no .*: `saod-ray data status {case} --data "):
        dry_run(RunOptions(use_case=case, detectors="atss" if probe else "d.toml"), probe=probe)


def test_a_run_without_data_points_to_its_status(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        SaodError, match=r"^There is no folder .*: `saod-ray data status gen --data .*` says where to get"
    ):
        BenchmarkRun(RunOptions(use_case="gen"))
    (tmp_path / "data").mkdir()
    with pytest.raises(
        SaodError, match=r"^There is no .*instances_val2017.json.*and 1 more: `saod-ray data status gen"
    ):
        BenchmarkRun(RunOptions(use_case="gen"))
    assert not (tmp_path / "runs").exists()


def test_mistakes_show_before_scenes_are_drawn(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SaodError, match=r"no detector 'atts' of 'shapes' \(did you mean 'atss'\?\)"):
        BenchmarkRun(RunOptions(detectors="atts"))
    with pytest.raises(SaodError, match=r"^'file' is not a folder: give --store the path of a folder"):
        BenchmarkRun(RunOptions(detectors="atss", store="file"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
