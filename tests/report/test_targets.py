"""Reports and results that cannot be written are refused before anything is computed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.store import Store
from saod_ray.workflow import score_to_files, write_report


@pytest.fixture
def store(golden_store, tmp_path) -> Store:
    shutil.copytree(golden_store.uri, tmp_path / "store", ignore=shutil.ignore_patterns("cache", "selfaware", "*.html"))
    return Store.open(tmp_path / "store")


def never(done: int, total: int) -> None:
    raise AssertionError("work has begun")


def test_a_report_into_an_impossible_place(store, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "r.html"
    with pytest.raises(SaodError, match=f"^{out} cannot be written to .*file is a file, not a folder"):
        write_report(store, out, progress=never)
    with pytest.raises(SaodError, match=r"give --figures the path of a folder to write into"):
        write_report(store, figures=tmp_path / "file", progress=never)
    Path(store.uri, "report.html").mkdir()
    with pytest.raises(SaodError, match=f"^{store.uri}/report.html is not a file: remove it"):
        write_report(store, progress=never)


def test_results_into_an_impossible_place(store) -> None:
    benchmark = Benchmark(store, ScoreSettings())
    Path(store.uri, "results.json").mkdir()
    with pytest.raises(SaodError, match=f"^{store.uri}/results.json is not a file: remove it"):
        score_to_files(benchmark, ["toy"], (store.folder, "results.json"), progress=never)
