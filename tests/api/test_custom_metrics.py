from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import saod_ray
from usecases import import_all, random_use_case

import saod_ray as saod
from saod_ray.score.bootstrap import Bootstrap, draws
from saod_ray.score.metrics import BUILT_IN, find_metric

MODULE = """
import polars as pl
import saod_ray as saod

@saod.metric("precision", better="higher", unit="%")
def precision(matches, objects):
    judged = matches.filter(pl.col("outcome").is_in(["tp", "fp"]))
    return judged.filter(outcome="tp").height / judged.height if judged.height else None

@saod.metric("recall", better="higher", unit="%", per_image=True)
def recall(matches, objects):
    image = ["split", "image_id"]
    hits = matches.filter(outcome="tp").group_by(image).len("value")
    return objects.group_by(image).len("weight").join(hits, on=image, how="left").fill_null(0)

def undeclared(matches, objects):
    return 1.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("metrics")
    random_use_case(place / "case", seed=10, images=60, classes=5)
    import_all(str(place / "store"), place / "case", "d", shard_images=13)
    import_all(str(place / "other"), place / "case", "d", shard_images=4096)
    (place / "own.py").write_text(MODULE)
    return place


@saod.metric("precision", better="higher", unit="%")
def precision(matches: pl.DataFrame, objects: pl.DataFrame) -> float | None:
    judged = matches.filter(pl.col("outcome").is_in(["tp", "fp"]))
    return judged.filter(outcome="tp").height / judged.height if judged.height else None


@saod.metric("missed", better="lower")
def missed(matches: pl.DataFrame, objects: pl.DataFrame) -> pl.DataFrame:
    hits = matches.filter(outcome="tp").group_by("class").len("hits")
    counts = objects.group_by("class").len("objects").join(hits, on="class", how="left").fill_null(0)
    return counts.select("class", value=pl.col("objects").cast(pl.Int64) - pl.col("hits").cast(pl.Int64))


@saod.metric("recall", better="higher", unit="%", per_image=True)
def recall(matches: pl.DataFrame, objects: pl.DataFrame) -> pl.DataFrame:
    image = ["split", "image_id"]
    hits = matches.filter(outcome="tp").group_by(image).len("value")
    return objects.group_by(image).len("weight").join(hits, on=image, how="left").fill_null(0)


def test_values_are_those_of_the_sums(folder) -> None:
    bench = saod.open(folder / "store")
    result = bench.score(metrics=[precision, missed, recall])["d"]
    per_class = result.classes
    fn = {name: row.objects * row.lrp_fn for name, row in per_class.items() if row.objects}
    counts = result.metrics["missed"].per_class
    assert counts == pytest.approx(fn, abs=1e-9)
    assert result.metrics["missed"].id == pytest.approx(np.mean(list(fn.values())))
    objects = sum(row.objects for row in per_class.values())
    assert result.metrics["recall"].id == pytest.approx(1 - sum(fn.values()) / objects)
    detected = sum(row.detections for row in per_class.values())
    assert result.metrics["precision"].id == pytest.approx((objects - sum(fn.values())) / detected)
    assert result.metrics["precision"].shift != result.metrics["precision"].id
    assert saod.open(folder / "other").score(metrics=[precision, missed, recall])["d"] == result


def test_a_sum_over_images_has_an_interval_of_its_resamples(folder) -> None:
    bench, count = saod.open(folder / "store"), 60
    results = bench.score(metrics=[precision, recall], bootstrap=count, seed=4)
    intervals = results["d"].intervals
    assert set(intervals.metrics) == {"recall"} and intervals.daq is not None
    matches = bench.matches("d", "id").filter(pl.col("outcome") == "tp").collect()
    objects = bench.objects("id").filter(~pl.col("crowd")).collect()
    ids = np.sort(bench.images("d", "id").collect()["image_id"].to_numpy())
    values = []
    for number in range(count):  # copies of images, really counted
        times = dict(zip(ids.tolist(), draws(Bootstrap(count, 4), "id", number, len(ids)).tolist(), strict=True))
        total = sum(times[image] for image in objects["image_id"])
        values.append(sum(times[image] for image in matches["image_id"]) / total)
    value = results["d"].metrics["recall"].id
    expected = np.percentile(values, [2.5, 97.5]) - np.mean(values) + value
    assert intervals.metrics["recall"]["id"] == pytest.approx(expected, abs=1e-12)


def test_the_command_puts_it_into_results_table_and_report(folder) -> None:
    store = folder / "store"
    args = ("--metric", "own:precision", "--metric", "own:recall", "--bootstrap", 20)
    run = saod_ray("score", store, *args, cwd=folder, env={"COLUMNS": "220"})
    assert run.returncode == 0, run.stderr
    value = json.loads((store / "results.json").read_text())["detectors"]["d"]
    assert value["metrics"]["precision"]["better"] == "higher" and value["metrics"]["precision"]["unit"] == "%"
    assert "precision↑" in run.stdout and "recall_T↑" in run.stdout
    assert f"{100 * value['metrics']['precision']['id']:.2f}" in run.stdout
    low, high = value["intervals"]["metrics"]["recall"]["id"]
    assert re.search(rf"{100 * low:.1f}(–|, ){100 * high:.1f}", run.stdout)
    text = Path(saod.report(store, folder / "r.html")).read_text()
    assert "precision_T" in text and repr(value["metrics"]["precision"]["id"]) in text
    plain = saod_ray("score", store, "--json")
    assert "metrics" not in json.loads(plain.stdout)["detectors"]["d"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("own", "write package.module:function"),
        ("no_such_module:f", "needs the module 'no_such_module', which is not installed"),
        ("own:precison", r"has no metric 'precison' \(did you mean 'precision'"),
        ("own:undeclared", "is not a metric: declare it with @saod_ray.metric"),
    ],
)
def test_targets_that_are_none(folder, monkeypatch, target, message) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(saod.SaodError, match=message):
        find_metric(target)


def declared(function, **options):
    return saod.metric("own", better="higher", **options)(function)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (declared(lambda m, o: "high"), "returned str: return a number, None or a frame"),
        (declared(lambda m, o: float("inf")), "is infinite"),
        (declared(lambda m, o: m.select("image_id")), "lacks the column class, value"),
        (declared(lambda m, o: 1.0, per_image=True), "declared per image: return a frame"),
    ],
)
def test_what_a_metric_may_not_return(folder, metric, message) -> None:
    with pytest.raises(saod.SaodError, match=message):
        saod.open(folder / "store").score(metrics=[metric])


def test_declarations_are_checked_and_shared_with_the_built_in_ones(folder) -> None:
    for options, message in (
        ({"name": "1st", "better": "higher"}, "cannot name a metric"),
        ({"name": "daq", "better": "higher"}, "is a built-in metric"),
        ({"name": "own", "better": "more"}, "use 'higher' or 'lower'"),
        ({"name": "own", "better": "lower", "unit": "km"}, "use '%' or ''"),
    ):
        with pytest.raises(saod.SaodError, match=message):
            saod.metric(options.pop("name"), **options)
    with pytest.raises(saod.SaodError, match="Two metrics are called 'precision'"):
        saod.open(folder / "store").score(metrics=[precision, precision])
    undefined = saod.open(folder / "store").score(metrics=[declared(lambda m, o: float("nan"))])["d"]
    assert undefined.metrics["own"].id is None
    for name, metric in BUILT_IN.items():
        assert metric.name == name and metric.better in ("higher", "lower") and metric.unit == "%"
        assert metric.value(undefined) is None or 0 <= metric.value(undefined) <= 1
