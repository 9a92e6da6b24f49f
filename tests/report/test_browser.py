from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest
from conftest import saod_ray
from report_stores import NASTY, nasty_store

from saod_ray.score.metrics import MAIN
from saod_ray.score.results import DetectorResult

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium, or set CHROMIUM"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    place = nasty_store(tmp_path_factory.mktemp("shown"))
    assert saod_ray("experiment", "all", place).returncode == 0
    result = saod_ray("report", place, "--data", place.parent)
    assert result.returncode == 0, result.stderr
    return place


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, store, request):
    """The report in a window of its own; whatever a page should not do fails the test at its end."""
    options = {"viewport": {"width": 1280, "height": 900}} | getattr(request, "param", {})
    context = browser.new_context(accept_downloads=True, **options)
    context.set_default_timeout(60_000)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    own = (store / "report.html").as_uri()
    page.on(
        "request",
        lambda sent: None if sent.url == own or sent.url[:5] in ("data:", "blob:") else wrong.append(sent.url),
    )
    page.goto(own)
    if options.get("java_script_enabled", True):
        page.wait_for_selector("html.drawn")
    yield page
    context.close()
    assert wrong == []


def results_of(store: Path) -> dict:
    return json.loads((store / "results.json").read_text())


def column(page, number: int) -> list[str]:
    return page.eval_on_selector_all(
        "#leaderboard tbody tr",
        f"rows => rows.map(row => row.cells[{number}].dataset.value ?? row.cells[{number}].textContent)",
    )


def test_values_equal_results_json(opened, store) -> None:
    results = results_of(store)["detectors"]
    names = column(opened, 0)
    assert sorted(names) == sorted(results)
    for number, metric in enumerate(MAIN, 1):
        for name, text in zip(names, column(opened, number), strict=True):
            value = metric.value(DetectorResult.from_json(results[name]))
            assert (text == "") if value is None else (float(text) == value)


def test_sorting(opened) -> None:
    for _ in range(2):
        opened.click("#leaderboard thead th:nth-child(4) button")
        values = [float(value) for value in column(opened, 3)]
        order = opened.get_attribute("#leaderboard thead th:nth-child(4)", "aria-sort")
        assert values == sorted(values, reverse=order == "descending")
    assert order == "ascending"
    opened.focus("#leaderboard thead th:nth-child(1) button")
    opened.keyboard.press("Enter")
    assert column(opened, 0) == ["atss", "f-rcnn"]


def test_weights_of_daq(opened, store) -> None:
    results = results_of(store)["detectors"]

    def weighed() -> dict[str, float]:
        return dict(
            opened.eval_on_selector_all(
                "#weighed tbody tr", "rows => rows.map(r => [r.cells[0].textContent, Number(r.cells[1].dataset.value)])"
            )
        )

    assert weighed() == pytest.approx({name: result["daq"] for name, result in results.items()}, abs=1e-12)
    opened.focus('[data-weight="ba"]')
    opened.keyboard.press("Home")  # a weight of 0
    without = {name: 2 / (1 / result["id"]["idq"] + 1 / result["shift"]["idq"]) for name, result in results.items()}
    assert weighed() == pytest.approx(without, abs=1e-12)
    opened.click("#reset-weights")
    assert weighed() == pytest.approx({name: result["daq"] for name, result in results.items()}, abs=1e-12)


def test_the_threshold_moves_the_rates(opened, store) -> None:
    name = opened.input_value("#detector")
    ood = results_of(store)["detectors"][name]["ood"]

    def rates() -> list[float]:
        return [float(opened.get_attribute(f"#{key}", "data-value")) for key in ("tpr", "tnr", "ba")]

    assert rates() == pytest.approx([ood["tpr"], ood["tnr"], ood["ba"]], abs=1e-12)
    opened.focus("#threshold")
    opened.keyboard.press("Home")
    lowest = rates()
    opened.keyboard.press("End")
    highest = rates()
    assert lowest[0] < highest[0] or lowest[1] > highest[1]
    opened.click("#reset-threshold")
    assert rates() == pytest.approx([ood["tpr"], ood["tnr"], ood["ba"]], abs=1e-12)


def test_another_detector(opened, store) -> None:
    first = opened.input_value("#detector")
    other = next(name for name in results_of(store)["detectors"] if name != first)
    before = opened.inner_html('[data-chart="uncertainty"] svg')
    opened.select_option("#detector", other)
    opened.wait_for_function(
        "before => document.querySelector('[data-chart=uncertainty] svg').innerHTML !== before", arg=before
    )
    ood = results_of(store)["detectors"][other]["ood"]
    assert float(opened.get_attribute("#ba", "data-value")) == pytest.approx(ood["ba"], abs=1e-12)
    visible = opened.eval_on_selector_all("[data-of]", "blocks => blocks.filter(b => !b.hidden).map(b => b.dataset.of)")
    assert visible and set(visible) == {other}


def test_another_class_and_metric(opened) -> None:
    for chooser, chart, value in (
        ("#class", "reliability-after", NASTY[0]),
        ("#heat-figure", "corruptions", "accepted"),
    ):
        before = opened.inner_html(f'[data-chart="{chart}"] svg')
        opened.select_option(chooser, value)
        opened.wait_for_function(
            "([chart, before]) => document.querySelector(`[data-chart=${chart}] svg`).innerHTML !== before",
            arg=[chart, before],
        )


def test_nasty_names_are_text(opened) -> None:
    assert opened.evaluate("window.broken") is None
    names = opened.eval_on_selector_all("#class option", "options => options.map(option => option.textContent)")
    assert names[1:] == NASTY
    assert opened.eval_on_selector_all("main b, main script, main img[onerror]", "found => found.length") == 0


def test_csv_and_latex(opened, store) -> None:
    with opened.expect_download() as waiting:
        opened.click('[data-csv="leaderboard"]')
    rows = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text())))
    assert rows[0][:3] == ["detector", "DAQ", "BA"]
    results = results_of(store)["detectors"]
    assert {row[0]: float(row[1]) for row in rows[1:]} == {name: result["daq"] for name, result in results.items()}
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.click('[data-copy="leaderboard"]')
    opened.wait_for_selector("text=Copied")
    copied = opened.evaluate("navigator.clipboard.readText()")
    assert copied.count("\\\\\n") == 3 and "\\textbf{" in copied and "IDQ\\_T $\\uparrow$" in copied
    assert copied.count("{") == copied.count("}")


def test_charts_can_be_saved(opened) -> None:
    for kind in ("svg", "png"):
        link = opened.locator('[data-chart="parts"] .vega-actions a', has_text=kind.upper())
        opened.click('[data-chart="parts"] summary')
        with opened.expect_download() as waiting:
            link.dispatch_event("mousedown")
            opened.wait_for_function(
                "kind => [...document.querySelectorAll('[data-chart=parts] .vega-actions a')].some(a => a.download.endsWith(kind) && a.href.length > 99 || a.href.startsWith('blob:'))",
                arg=kind,
            )
            link.click()
        assert waiting.value.suggested_filename == f"parts.{kind}"
        opened.click('[data-chart="parts"] summary')


@pytest.mark.parametrize(
    "opened",
    [
        {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
        for width in (1280, 420)
        for scheme in ("light", "dark")
    ],
    indirect=True,
)
def test_nothing_sticks_out(opened) -> None:
    inner, outer = opened.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert inner <= outer
    ink, paper = opened.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    assert contrast(ink, paper) > 7
    label = opened.evaluate("getComputedStyle(document.querySelector('[data-chart=parts] svg text')).fill")
    assert contrast(label, paper) > 7


@pytest.mark.parametrize("opened", [{"viewport": {"width": 420, "height": 800}}], indirect=True)
def test_words_in_tables_are_not_broken_on_a_telephone(opened) -> None:
    lines = opened.eval_on_selector_all(
        "#experiment-ablation td:not(.number)",
        """cells => cells.map(cell => {
            const text = document.createRange();
            text.selectNodeContents(cell);
            return [cell.textContent, text.getClientRects().length];
        })""",
    )
    assert len(lines) > 20
    for text, line_count in lines:
        assert line_count <= len(text.replace("-", " ").split()), text


def contrast(one: str, two: str) -> float:
    """Of two colours as a browser writes them, by WCAG."""

    def luminance(text: str) -> float:
        parts = [int(part) / 255 for part in text[text.index("(") + 1 : -1].split(",")[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("opened", [{"java_script_enabled": False}], indirect=True)
def test_without_scripts(opened) -> None:
    assert opened.locator("#leaderboard tbody tr").count() == 2
    assert opened.locator('[data-chart="parts"] svg').is_visible()
    assert not opened.locator("#detector").is_visible()
    assert opened.locator("text=Scripts do not run here").is_visible()
