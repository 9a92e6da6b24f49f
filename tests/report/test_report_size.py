"""A report of six detectors and eighty classes, with all of the paper's experiments that its store allows."""

from __future__ import annotations

import pytest
from conftest import saod_ray

from benchmarks.generate import SIZES, make_store

pytestmark = pytest.mark.slow
MOST = 2_500_000  # bytes, without thumbnails
NAMES = ["f-rcnn", "rs-rcnn", "atss", "d-detr", "nll-rcnn", "es-rcnn"]


def test_a_large_report_is_small(tmp_path) -> None:
    store = make_store(tmp_path, SIZES["small"], NAMES).uri
    for command in (("score", store, "--bootstrap", 100), ("experiment", "all", store), ("report", store)):
        ran = saod_ray(*command)
        assert ran.returncode == 0, ran.stderr
    report = (tmp_path / "store" / "report.html").read_bytes()
    assert b"class80" in report
    assert 1_000_000 < len(report) <= MOST
