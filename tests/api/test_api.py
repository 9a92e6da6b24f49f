from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import import_golden, saod_ray

import saod_ray as saod
from saod_ray.config import ScoreSettings
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.lrp import components
from saod_ray.score.results import BenchmarkResult, schema_text
from saod_ray.store.store import Store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """The golden detections in many shards, scored."""
    place = tmp_path_factory.mktemp("api") / "store"
    import_golden(str(place), shard_images=37)
    assert saod_ray("score", place).returncode == 0
    return place


@pytest.fixture
def bench(store) -> saod.BenchmarkStore:
    return saod.open(store)


# what an import costs -------------------------------------------------------------------------------------------


def loaded_after(code: str) -> set[str]:
    heavy = ("ray", "torch", "mmdet", "polars", "numpy", "numba", "pyarrow", "altair", "pandas")
    text = f"{code}\nimport sys, json\nprint(json.dumps([name for name in {heavy} if name in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_the_import_is_light_and_scoring_needs_neither_ray_nor_torch(store, tmp_path) -> None:
    assert loaded_after("import saod_ray; saod_ray.open; saod_ray.run; saod_ray.SaodError") == set()
    assert "polars" not in loaded_after("import saod_ray; saod_ray.metric; dir(saod_ray)")
    args = ["score", str(store), "--tau", "0.3", "--out", str(tmp_path / "results.json")]
    scoring = f"from saod_ray.cli import cli\ncli({args!r}, standalone_mode=False)"
    assert not loaded_after(scoring) & {"ray", "torch", "mmdet", "pandas"}


def test_every_public_name_is_there() -> None:
    for name in saod.__all__:
        assert getattr(saod, name) is not None and name in dir(saod)
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        _ = saod.opne


# frames ---------------------------------------------------------------------------------------------------------


def test_detections_are_those_of_the_shards(bench, store) -> None:
    opened = Store.open(store)
    frame = bench.detections("toy", "id-c3").collect()
    rows = [opened.read_shard("toy", "id-c3", shard) for shard in opened.shards("toy", "id-c3")]
    assert len(rows) > 3 and frame.height == sum(part.detections for part in rows)
    for name in ("label", "score", "entropy", "ds"):
        assert (
            frame[name].to_numpy().tobytes()
            == np.concatenate([part.columns[name] for part in rows]).astype(frame[name].to_numpy().dtype).tobytes()
        )
    boxes = np.concatenate([part.columns["box"] for part in rows])
    np.testing.assert_array_equal(frame.select("x1", "y1", "x2", "y2").to_numpy(), boxes)
    names = dict(zip(*opened.manifest("id").images.select("image_id", "file_name"), strict=True))
    assert frame["file_name"].to_list() == [names[image] for image in frame["image_id"]]
    assert frame["class"].cast(pl.String).to_list() == [bench.classes[label] for label in frame["label"]]


def test_projections_predicates_and_heads_are_those_of_the_whole_frame(bench) -> None:
    lazy, frame = bench.detections("toy", "id"), bench.detections("toy", "id").collect()
    chosen = (pl.col("score") > 0.4) & (pl.col("class") == "class2")
    assert lazy.filter(chosen).select("x1", "image_id").collect().equals(frame.filter(chosen).select("x1", "image_id"))
    assert lazy.head(60).collect().equals(frame.head(60))
    assert lazy.select(pl.len()).collect().item() == frame.height
    means = lazy.group_by("class").agg(pl.col("score").mean()).sort("class").collect()
    assert means.equals(frame.group_by("class").agg(pl.col("score").mean()).sort("class"))


@pytest.mark.parametrize("conventions", ["official", "paper"])
@pytest.mark.parametrize("split", ["id", "id-c1", "id-c5"])
def test_matches_give_the_metrics_of_results_json(bench, split, conventions) -> None:
    settings = {"conventions": conventions, "calibrator": "isotonic"}
    matches = bench.matches("toy", split, **settings).collect()
    assert matches.height == bench.detections("toy", split).collect().height
    benchmark = Benchmark(Store.open(bench.uri), ScoreSettings.from_options(**settings))
    scores = benchmark.score_split("toy", split, benchmark.fit("toy"))
    sums = scores.sums.statistics()
    counts = matches.group_by("label").agg(
        tp=(pl.col("outcome") == "tp").sum(), fp=(pl.col("outcome") == "fp").sum(), iou=pl.col("iou").sum()
    )
    for label, tp, fp, iou in counts.iter_rows():
        assert (tp, fp) == (sums.tp[label], sums.fp[label]) and iou == pytest.approx(sums.iou[label], abs=1e-9)
    assert set(matches.filter(~pl.col("accepted"))["outcome"]) <= {"dropped"}
    assert matches.filter(outcome="dropped")["calibrated"].null_count() == matches.filter(outcome="dropped").height
    objects = bench.objects(split).collect()
    paired = matches.filter(outcome="tp").join(objects, on=["object_id", "image_id"], how="inner", suffix="_object")
    assert paired.height == matches.filter(outcome="tp").height
    assert (paired["class"] == paired["class_object"]).all()
    assert paired["object_id"].n_unique() == paired.height
    if split == "id":
        lrp = components(sums.tp, sums.fp, sums.iou, sums.objects, 0.1, conventions == "paper")["lrp"]
        per_class = bench.score(**settings).per_class("toy")
        np.testing.assert_allclose(per_class["lrp"].to_numpy(), lrp)


def test_images_say_what_the_benchmark_decides(bench) -> None:
    images = bench.images("toy", "ood").collect()
    result = bench.score()["toy"]
    assert images.height == result.coverage["ood"].images
    decided = images["accepted"] == (images["uncertainty"] < result.image_threshold).fill_null(False)
    assert decided.all()
    assert (images.filter(detections=0)["uncertainty"].null_count()) == images.filter(detections=0).height
    c5 = bench.images("toy", "id-c5").collect()
    assert c5["accepted"].mean() == result.shift.accept_rate_c5
    assert set(images["status"]) == {"ok"} and images["image_id"].is_sorted()


# results --------------------------------------------------------------------------------------------------------


def test_results_are_those_of_the_command(bench, store) -> None:
    value = json.loads((store / "results.json").read_text())
    results = bench.score()
    assert results.to_json() == value == bench.results().to_json()
    assert BenchmarkResult.from_json(value) == results
    assert saod.score(store)["toy"].daq == results["toy"].daq == value["detectors"]["toy"]["daq"]
    table = saod.leaderboard(store).frame
    assert table["DAQ"].to_list() == [results["toy"].daq] and table.columns[0] == "detector"
    assert results.per_class("toy")["class"].to_list() == bench.classes
    bins = results.reliability("toy", "shift")
    assert bins["detections"].sum() == sum(
        sum(part["detections"]) for part in value["detectors"]["toy"]["reliability"]["shift"].values()
    )


def test_other_settings_change_results_and_not_the_store(bench, store) -> None:
    before = (store / "results.json").read_bytes()
    other = bench.score(calibrator="isotonic", bootstrap=20, seed=3)
    assert other["toy"].id.laece != bench.results()["toy"].id.laece
    assert other.resampling.replicates == 20 and len(other["toy"].intervals.daq) == 2
    assert (store / "results.json").read_bytes() == before


def test_the_schema_in_the_docs_is_that_of_the_types(store) -> None:
    import jsonschema

    written = (ROOT / "docs" / "results.schema.json").read_text()
    assert written == schema_text()
    value = json.loads((store / "results.json").read_text())
    jsonschema.validate(value, json.loads(written))
    value["detectors"]["toy"]["daq"] = "high"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, json.loads(written))


def test_self_aware_is_what_score_writes(bench, store) -> None:
    expected = saod.SelfAware.load(store / "selfaware" / "toy.json")
    assert bench.self_aware("toy").to_file() == expected.to_file()
    fresh = bench.self_aware("toy", tau=0.35)  # not scored before: it is fitted alone
    assert fresh.to_file() == saod.SelfAware.fit(store, "toy", tau=0.35).to_file()
    for self_aware in (expected, bench.self_aware("toy"), fresh):
        assert isinstance(self_aware, saod.SelfAware)
        with pytest.raises(saod.SaodError, match="'toy'"):
            self_aware.predict("photo.jpg")


def test_charts_are_those_of_the_report(bench) -> None:
    spec = bench.chart("reliability", "toy").to_dict()
    assert "toy" in json.dumps(spec) and spec["width"] == 480
    with pytest.raises(saod.SaodError, match=r"no chart 'reliabilty' \(did you mean 'reliability'\?\): there are"):
        bench.chart("reliabilty")


def test_the_report_can_be_written_twice(store, tmp_path) -> None:
    for name in ("one.html", "two.html"):
        assert saod.report(store, tmp_path / name) == str(tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_objects_show_themselves(bench) -> None:
    assert repr(bench).startswith(f"<store {bench.uri} of d8: toy; splits val,")
    html = bench._repr_html_()
    assert html.count("<td>") == len(bench.splits) and "toy" in html
    results = bench.score()
    assert f"toy {100 * results['toy'].daq:.2f}" in repr(results) and "DAQ" in results._repr_html_()


# mistakes -------------------------------------------------------------------------------------------------------


def test_mistakes_are_answered_as_on_the_command_line(bench, store, tmp_path) -> None:
    def refusal(action) -> str:
        with pytest.raises(saod.SaodError) as caught:
            action()
        return str(caught.value)

    assert "is a file: give the folder of a store" in refusal(lambda: saod.open(store / "results.json"))
    assert saod_ray("score", store / "results.json").stderr.count("is a file: give the folder of a store") == 1
    assert "There is no store at" in refusal(lambda: saod.open(tmp_path / "none"))
    assert "3 is not a path" in refusal(lambda: saod.open(3))
    assert "has no detector 'tyo' (did you mean 'toy'?)" in refusal(lambda: bench.matches("tyo", "id"))
    assert "There are no results of 'tyo' (did you mean 'toy'?)" in refusal(lambda: bench.score()["tyo"])
    assert "'id_c3' is not a split (did you mean 'id-c3'?)" in refusal(lambda: bench.images("toy", "id_c3"))
    assert "ood has no objects to match" in refusal(lambda: bench.matches("toy", "ood"))
    assert "filter its images by subset" in refusal(
        lambda: bench.images("toy", f"ood/{bench._store.description.subsets[0]}")
    )
    assert "'calibrater' is unknown (did you mean 'calibrator'?)" in refusal(lambda: bench.score(calibrater="none"))
    assert "no reliability diagram" in refusal(lambda: bench.score().reliability("toy", "ood"))
    assert "There is no use case 'shaeps' (did you mean 'shapes'?)" in refusal(lambda: saod.run(use_case="shaeps"))
    assert "`run` has no option 'sede' (did you mean 'seed'?)" in refusal(
        lambda: saod.run(store=tmp_path / "s", sede=1)
    )
    shutil.copytree(store, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "ledger" / "toy" / "id-c1")
    partial = saod.open(tmp_path / "copy")
    assert "has no detections on id-c1: add them with `saod-ray import" in refusal(
        lambda: partial.detections("toy", "id-c1")
    )
    assert "is incomplete" in refusal(partial.score)
    assert partial.score(partial=True).is_partial
