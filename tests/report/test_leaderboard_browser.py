from __future__ import annotations

import os
import shutil

import pytest
from example_results import example_detector, example_results

import saod_ray as saod
from saod_ray.store.seals import encode_json

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium, or set CHROMIUM"),
]


def test_the_page_sorts_its_table_and_offers_it_as_csv(tmp_path) -> None:
    detectors = {"low": example_detector(0.2), "none": example_detector(None), "high": example_detector(0.6)}
    (tmp_path / "results.json").write_bytes(encode_json(example_results(detectors)))
    file = saod.leaderboard(tmp_path / "results.json").to_html(tmp_path / "board.html")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(accept_downloads=True)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"file://{file}")
        names = page.locator("#leaderboard tbody th")
        assert names.all_inner_texts() == ["high", "low", "none"]
        for expected in (["high", "low", "none"], ["low", "high", "none"]):  # undefined values stay last
            page.click("#leaderboard thead th:nth-child(3) button")
            assert names.all_inner_texts() == expected
        with page.expect_download() as download:
            page.click('[data-csv="leaderboard"]')
        rows = download.value.path().read_text().splitlines()
        assert rows[0].startswith("detector,source,DAQ,") and rows[1].split(",")[2] == "0.2"
        browser.close()
    assert complaints == []
