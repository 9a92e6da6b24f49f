from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDEN, import_golden, saod_ray
from hypothesis import given
from hypothesis import strategies as st
from report_stores import ERROR, FILE, NASTY, nasty_store

from saod_ray.config import UseCase
from saod_ray.experiment import paper
from saod_ray.report.data import gather
from saod_ray.report.figures import figures
from saod_ray.report.page import run_record
from saod_ray.report.rendering import script_json
from saod_ray.report.results import read_results
from saod_ray.report.sheets import leaderboard, paper_values, provenance
from saod_ray.score import thresholds
from saod_ray.score.evaluation import evaluate_split
from saod_ray.score.metrics import MAIN
from saod_ray.score.results import DetectorResult
from saod_ray.store.coco_import import import_results
from saod_ray.store.seals import sealed
from saod_ray.store.store import Store


class Page(HTMLParser):
    """What a browser without scripts makes of a page: tables as rows of (text, value), tags with attributes, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, str | None]]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._table, self._in_cell, self._in_script = "", False, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self._in_script = tag in ("script", "style")
        if tag == "table":
            self._table = attributes.get("id") or ""
            self.tables[self._table] = []
        elif tag == "tr":
            self.tables[self._table].append([])
        elif tag in ("td", "th"):
            self._in_cell = True
            self.tables[self._table][-1].append(("", attributes.get("data-value")))

    def handle_endtag(self, tag):
        self._in_script = False
        if tag in ("td", "th"):
            self._in_cell = False
        if tag == "table":
            self._table = ""

    def handle_data(self, data):
        if self._in_script:
            return
        self.text += data
        if self._in_cell:
            text, value = self.tables[self._table][-1][-1]
            self.tables[self._table][-1][-1] = (text + data, value)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return nasty_store(tmp_path_factory.mktemp("nasty"))


@pytest.fixture(scope="module")
def text(store) -> str:
    result = saod_ray("report", store, "--data", store.parent)
    assert (result.returncode, result.stdout) == (0, f"{store}/report.html\n"), result.stderr
    return (store / "report.html").read_text()


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def test_the_leaderboard_has_the_values_of_results_json(page, store) -> None:
    results = json.loads((store / "results.json").read_text())
    rows = page.tables["leaderboard"][1:]
    assert {row[0][0] for row in rows} == {"atss", "f-rcnn"}
    for row in rows:
        result = DetectorResult.from_json(results["detectors"][row[0][0]])
        for (text, value), metric in zip(row[1 : 1 + len(MAIN)], MAIN, strict=True):
            expected = metric.value(result)
            assert value == ("" if expected is None else repr(expected))
            assert text == ("–" if expected is None else f"{100 * expected:.2f}")
    values = [float(row[1][1]) for row in rows]
    assert values == sorted(values, reverse=True)


def test_every_class_and_component_is_there(page, store) -> None:
    results = json.loads((store / "results.json").read_text())
    best = page.tables["leaderboard"][1][0][0]
    per_class = results["detectors"][best]["per_class"]
    rows = page.tables[f"classes-{best}"][1:]
    assert [row[0][0] for row in rows] == list(per_class)
    for row in rows:
        metrics = per_class[row[0][0]]
        assert [row[1][1], row[2][1]] == [str(metrics["objects"]), str(metrics["detections"])]
        assert row[4][1] == ("" if metrics["lrp"] is None else repr(metrics["lrp"]))
    components = {row[0][0]: row for row in page.tables["components"][1:]}
    for name, result in results["detectors"].items():
        expected = [result[part][key] for part in ("id", "shift") for key in ("lrp", "lrp_loc", "lrp_fp", "lrp_fn")]
        assert [value for _, value in components[name][1:]] == ["" if v is None else repr(v) for v in expected]


def test_names_and_errors_are_text(page, text) -> None:
    for name in NASTY:
        assert name in page.text
    assert ERROR in [row[3][0] for row in page.tables["failures"][1:]]
    names = {attributes.get("alt") or "" for tag, attributes in page.tags if tag == "img"}
    assert names and all(FILE.split("{}")[0] in name for name in names)
    assert not [tag for tag, attributes in page.tags if tag == "b" or "onerror" in attributes]
    assert NASTY[0] not in text  # neither in the markup nor in the data of the scripts


def test_the_data_of_scripts_reads_back(text) -> None:
    elements = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert len(elements) > 10
    values = [json.loads(element) for element in elements]
    assert any(NASTY[1] in json.dumps(value, ensure_ascii=False).replace('\\"', '"') for value in values)


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_embedded_json_cannot_end_its_element(value) -> None:
    encoded = str(script_json(value))
    assert not set("<>&\u2028\u2029") & set(encoded)
    assert json.loads(encoded) == value


def test_nothing_is_fetched(page) -> None:
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "xlink:href"):
            target = attributes.get(name) or ""
            assert target == "" or target.startswith(("#", "data:image/")), (tag, target)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none';") and "http" not in policy


def test_charts_are_pictures_without_scripts(page) -> None:
    charts = [attributes["data-chart"] for tag, attributes in page.tags if "data-chart" in attributes]
    svgs = [tag for tag, _ in page.tags if tag == "svg"]
    assert {"parts", "uncertainty", "roc", "severity-lrp", "corruptions", "reliability-before", "oracle"} <= set(charts)
    assert len(svgs) == len(charts) == len(set(charts))
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))


def test_the_same_bytes_for_the_same_results(store, text, tmp_path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(store, moved)
    shutil.rmtree(moved / "cache")
    result = saod_ray("report", moved, "--data", store.parent, "--out", tmp_path / "r.html")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "r.html").read_text() == text


def test_a_picture_does_not_depend_on_those_drawn_before_it(store) -> None:
    report_data = gather(Store.open(str(store)))
    once, again = figures(report_data), figures(report_data)
    assert {name: figure.svg for name, figure in once.items()} == {name: figure.svg for name, figure in again.items()}
    for figure in once.values():
        ids = set(re.findall(r' id="([^"]+)"', figure.svg))
        assert set(re.findall(r"url\(#([^)]+)\)", figure.svg)) <= ids
    assert any("url(#" in figure.svg for figure in once.values())


def test_without_images(store, tmp_path, page) -> None:
    assert saod_ray("report", store, "--out", tmp_path / "r.html").returncode == 0
    without = Page((tmp_path / "r.html").read_text())
    assert "the folder of the images is unknown" in without.text
    assert not [tag for tag, _ in without.tags if tag == "img"]
    assert without.tables == page.tables
    assert saod_ray("report", store, "--data", tmp_path, "--out", tmp_path / "r.html").returncode == 0
    assert "the images were not found" in (tmp_path / "r.html").read_text()


def test_pictures_of_every_kind(page) -> None:
    captions = [str(attributes["alt"]) for tag, attributes in page.tags if tag == "img"]
    for part in ("ood · ", "id · ", "id-c1 · ", "id-c5 · ", ": accepted (u = ", ": raw detector"):
        assert any(part in caption for caption in captions), part


def test_figures_and_tables_as_files(store, text, tmp_path) -> None:
    out = tmp_path / "figures"
    result = saod_ray("report", store, "--data", store.parent, "--out", tmp_path / "r.html", "--figures", out)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "r.html").read_text() == text
    names = {path.name for path in out.iterdir()}
    assert {"parts.svg", "parts.pdf", "uncertainty-atss.pdf", "uncertainty-f-rcnn.pdf", "leaderboard.tex"} <= names
    assert all(path.read_bytes().startswith(b"%PDF") for path in out.glob("*.pdf"))
    assert (out / "uncertainty-atss.svg").read_text() != (out / "uncertainty-f-rcnn.svg").read_text()
    table = (out / "classes-atss.tex").read_text()
    assert table.count(" \\\\\n") == 1 + len(NASTY)
    assert r"\textbackslash{}u003c \$\{7*7\} \{\{ 7*7 \}\}" in table


def test_refusals(store, tmp_path) -> None:
    assert "There is no store" in saod_ray("report", tmp_path / "none").stderr
    copy = tmp_path / "copy"
    shutil.copytree(store, copy, ignore=shutil.ignore_patterns("report.html"))
    results = json.loads((copy / "results.json").read_text())
    results["detectors"]["atss"]["daq"] = 0.99
    (copy / "results.json").write_text(json.dumps(results))
    assert "its digest does not match" in saod_ray("report", copy).stderr
    (copy / "results.json").write_text(json.dumps(sealed(results)))
    result = saod_ray("report", copy)
    assert result.returncode == 1
    assert "does not match the current detections of 'atss'" in result.stderr
    shutil.copy(store / "results.json", copy)
    shutil.rmtree(copy / "cache")
    assert saod_ray("score", copy).returncode == 0  # caches what scoring needs of the shard, not what a report needs
    (copy / "detections" / "atss" / "id-c3" / f"{'0' * 32}.parquet").write_bytes(b"PAR1")
    assert "is missing or damaged: `saod-ray verify" in saod_ray("report", copy).stderr
    (copy / "results.json").write_text("{")
    assert "results.json is damaged" in saod_ray("report", copy).stderr
    (copy / "results.json").unlink()
    assert f"run `saod-ray score {copy}` first" in saod_ray("report", copy).stderr
    assert "is not a file" in saod_ray("report", store, "--out", tmp_path).stderr
    assert not (copy / "report.html").exists()


@pytest.fixture(scope="module")
def six(tmp_path_factory) -> Path:
    """Six detectors of the golden data, under the paper's conventions and with intervals."""
    place = tmp_path_factory.mktemp("six") / "store"
    for name in ("f-rcnn", "rs-rcnn", "atss", "d-detr", "nll-rcnn", "es-rcnn"):
        import_golden(str(place), name)
    assert saod_ray("score", place, "--conventions", "paper", "--bootstrap", "20").returncode == 0
    return place


def test_six_detectors_are_small_enough(six, tmp_path) -> None:
    assert saod_ray("report", six, "--out", tmp_path / "r.html").returncode == 0
    assert (tmp_path / "r.html").stat().st_size <= 2_500_000


def test_intervals_are_below_their_values(six) -> None:
    report_data = gather(Store.open(str(six)))
    sheet = leaderboard(report_data)
    assert [header.title for header in sheet.headers][-2:] == ["DAQ, official conventions", "rank"]
    for row in sheet.rows:
        intervals = report_data.results[row[0].text].intervals
        low, high = intervals.ood.ba
        assert row[2].notes[0] == f"[{100 * low:.2f}, {100 * high:.2f}]"
        assert row[-1].text == " to ".join(map(str, intervals.rank))


def test_severities_and_corruptions_agree_with_results(store) -> None:
    report_data = gather(Store.open(str(store)))
    for name, tables in report_data.tables.items():
        by_split = {row.split: row for row in tables.severities}
        result = report_data.results[name]
        for key in ("laece", "lrp", "lrp_loc", "lrp_fp", "lrp_fn", "idq"):
            assert getattr(by_split["id"], key) == getattr(result.id, key)
        for split, row in by_split.items():
            assert row.ap == result.accuracy[split].ap
        assert by_split["id-c5"].accepted == result.shift.accept_rate_c5
    corruptions = report_data.tables["atss"].corruptions
    assert sum(row.images for row in corruptions if row.severity == 3) == 14
    assert report_data.tables["f-rcnn"].corruptions == []  # imported: no corruption is recorded


def test_the_sums_of_corruptions_add_up(store) -> None:
    report_data = gather(Store.open(str(store)))
    for split in ("id-c1", "id-c5"):
        benchmark = report_data.benchmark
        evaluation = evaluate_split(
            benchmark.store, "atss", split, benchmark.objects["id"], report_data.selfaware["atss"]
        )
        halves = evaluation.sums_by(np.arange(len(evaluation.accepted)) % 2, 2)
        merged = vars((halves[0] + halves[1]).statistics())
        for name, values in vars(evaluation.sums().statistics()).items():
            np.testing.assert_array_equal(merged[name], values, err_msg=name)


def test_reliability_after_is_that_of_results(store) -> None:
    report_data = gather(Store.open(str(store)))
    for name, tables in report_data.tables.items():
        after = dict(tables.calibration.reliability["after"])
        pooled = after.pop("")
        assert after == report_data.results[name].reliability["id"] != {}
        assert sum(pooled.detections) == sum(sum(bins.detections) for bins in after.values())


def test_the_paper_is_shown_where_it_is_the_papers() -> None:
    gen = paper_values("gen")
    assert (gen["d-detr"]["daq"], gen["f-rcnn"]["id.laece"], paper_values("av")["atss"]["ood.ba"]) == (
        43.5,
        17.3,
        85.8,
    )
    assert paper_values("shapes") == {}
    for use_case in ("gen", "av"):  # the same AP as the experiment's table has
        val_ap = {headers[0]: row["val"] for headers, row in paper.table("accuracy", use_case).items()}
        assert {name: values["accuracy.val.ap"] for name, values in paper_values(use_case).items()} == val_ap
    for use_case in ("gen", "av"):  # its values are consistent: transcription errors would show
        complete = [values for values in paper_values(use_case).values() if "daq" in values]
        assert complete
        for values in complete:
            parts = values["ood.ba"], values["id.idq"], values["shift.idq"]
            assert thresholds.harmonic(*parts) == pytest.approx(values["daq"], abs=0.11)
            assert thresholds.harmonic(values["ood.tpr"], values["ood.tnr"]) == pytest.approx(parts[0], abs=0.11)
            for part in ("id", "shift"):
                idq = thresholds.harmonic(100 - values[f"{part}.lrp"], 100 - values[f"{part}.laece"])
                assert idq == pytest.approx(values[f"{part}.idq"], abs=0.11)


def test_the_run_says_its_seed_and_commit(store, tmp_path) -> None:
    def provenance_rows(run: str | None) -> dict[str, str]:
        if run is not None:
            opened.folder.put("run.json", run.encode())
        return {row[0].text: row[1].text for row in provenance(results, run_record(opened)).rows}

    shutil.copytree(store, tmp_path / "copy")
    opened = Store.open(str(tmp_path / "copy"))
    results = read_results(opened)
    assert "commit" not in str(results.provenance)  # results are the same wherever a store is scored
    nothing = ("not recorded", "not recorded")
    keys = ("seed of the corruptions", "commit of the last run")
    for run, expected in (
        (None, nothing),
        ("{", nothing),
        ('{"settings": {"seed": 7}}', ("7", "not recorded")),
        ('{"settings": {"seed": 0}, "commit": null}', ("0", "not recorded")),
        ('{"settings": {"seed": 0}, "commit": "abc-dirty"}', ("0", "abc-dirty")),
    ):
        rows = provenance_rows(run)
        assert tuple(rows[key] for key in keys) == expected


@pytest.mark.parametrize("splits", [("val", "pseudo-ood"), ("val", "pseudo-ood", "id"), ("val", "pseudo-ood", "ood")])
def test_a_store_that_has_only_begun(splits, tmp_path) -> None:
    case = UseCase.load(GOLDEN / "use-case.toml")
    for split in splits:
        import_results(str(tmp_path / "s"), case, "toy", split, GOLDEN / f"{split}.detections.json.gz")
    assert saod_ray("score", tmp_path / "s", "--partial").returncode == 0
    result = saod_ray("report", tmp_path / "s", "--figures", tmp_path / "figures")
    assert result.returncode == 0, result.stderr
    page = Page((tmp_path / "s" / "report.html").read_text())
    assert "PARTIAL" in page.text
    assert page.tables["leaderboard"][1][1][0] == "–"
