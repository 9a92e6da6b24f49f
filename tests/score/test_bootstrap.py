"""Bootstrap replicates equal the scores of data sets that are actually resampled, with images drawn twice in them twice."""

from __future__ import annotations

import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from conftest import saod_ray
from hypothesis import example, given, settings
from hypothesis import strategies as st
from usecases import SPLITS, import_all, random_use_case

from saod_ray.config import ScoreSettings
from saod_ray.report.results import results
from saod_ray.score import bootstrap, thresholds
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import METRICS, RESAMPLED, Bootstrap, OodSeparation, draws
from saod_ray.score.evaluation import Decisions
from saod_ray.score.results import BenchmarkResult
from saod_ray.store.seals import encode_json
from saod_ray.store.store import Store

REFERENCE = st.fixed_dictionaries(
    {
        "calibrator": st.sampled_from(["none", "linear", "isotonic"]),
        "uncertainty": st.sampled_from(["score", "entropy"]),
        "aggregate": st.sampled_from(["top-3", "min"]),
        "image-threshold": st.sampled_from(["pseudo-ood", "tpr-0.95", "0.6"]),
        "detection-threshold": st.sampled_from(["lrp", "0.3"]),
        "tau": st.sampled_from([0.1, 0.5]),
        "bins": st.sampled_from([25, 10]),
        "conventions": st.sampled_from(["official", "paper"]),
    }
)


def replicates(uri: str, resamples: Bootstrap, partial: bool = False, **chosen: Any) -> np.ndarray:
    found = (
        Benchmark(Store.open(uri), ScoreSettings.from_options(**chosen), partial, resamples)
        .score(["d"])["d"]
        .replicates
    )
    assert found is not None and found.shape == (resamples.replicates, len(METRICS))
    return found


def resampled(data: dict[str, Any], resamples: Bootstrap, number: int) -> dict[str, Any]:
    """The data of a resample in the reference's terms: every copy of an image is an image; val stays as it is."""
    out = {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}
    for source, splits in (("id", [split for split in SPLITS if split.startswith("id")]), ("ood", ["ood"])):
        ids = sorted(data["images"][source])
        times = draws(resamples, source, number, len(ids))
        copies = [old for old, many in zip(ids, times, strict=True) for _ in range(many)]
        out["images"][source] = list(range(len(copies)))

        def taken(rows: list[dict[str, Any]], copies: list[int] = copies) -> list[dict[str, Any]]:
            return [row | {"image": new} for new, old in enumerate(copies) for row in rows if row["image"] == old]

        out["objects"][source] = taken(data["objects"][source])
        for split in splits:
            out["detections"][split] = taken(data["detections"][split])
    return out


@settings(max_examples=25)
@given(st.integers(0, 10**6), REFERENCE, st.integers(0, 1))
@example(5, {"calibrator": "isotonic", "uncertainty": "score", "aggregate": "top-3", "image-threshold": "pseudo-ood",
             "detection-threshold": "lrp", "tau": 0.1, "bins": 25, "conventions": "official"}, 0)  # fmt: skip
def test_a_replicate_is_the_references_score_of_the_resampled_data(tmp_path_factory, seed, chosen, first_id) -> None:
    folder = tmp_path_factory.mktemp("case")
    data = random_use_case(folder, seed, first_id=first_id)
    import_all(str(folder / "store"), folder, shard_images=5)
    resamples = Bootstrap(4, seed)
    found = replicates(str(folder / "store"), resamples, **{key.replace("-", "_"): chosen[key] for key in chosen})
    for number, row in enumerate(found):
        expected = reference.benchmark(resampled(data, resamples, number), chosen)
        if chosen["calibrator"] != "none" and (expected["id.near_a_bin_edge"] or expected["shift.near_a_bin_edge"]):
            continue  # a calibrator's last bit would decide
        values = [expected[name] for name in RESAMPLED]
        assert row.tolist() == pytest.approx(values, abs=1e-9, nan_ok=True)
    shutil.rmtree(folder)


def write_resampled(source: Path, target: Path, data: dict[str, Any]) -> None:
    """A use case on disk with other id and ood images than `source`, and the same val."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("store"))
    categories = sorted(each["id"] for each in json.loads((source / "val.json").read_text())["categories"])
    for name in ("id", "ood"):
        value = json.loads((source / f"{name}.json").read_text())
        value["images"] = [{"id": i, "file_name": f"{i}.jpg"} for i in data["images"][name]]
        value["annotations"] = [
            {"id": k + 1, "image_id": o["image"], "category_id": categories[o["label"]], "bbox": o["bbox"]}
            | {"area": o["area"], "iscrowd": o["crowd"]}
            for k, o in enumerate(data["objects"][name])
        ]
        (target / f"{name}.json").write_text(json.dumps(value))
    for split in SPLITS[2:]:
        rows = [
            {"image_id": d["image"], "category_id": categories[d["label"]], "bbox": d["bbox"], "score": d["score"]}
            for d in data["detections"][split]
        ]
        (target / f"{split}.detections.json").write_text(json.dumps(rows))


@pytest.mark.parametrize("calibrator", ["linear", "histogram", "platt", "temperature"])
@pytest.mark.parametrize("conventions", ["official", "paper"])
def test_a_replicate_is_the_score_of_a_store_of_the_resampled_images(tmp_path, calibrator, conventions) -> None:
    data = random_use_case(tmp_path / "case", seed=10, images=60, classes=5, first_id=1)
    import_all(str(tmp_path / "store"), tmp_path / "case")
    resamples = Bootstrap(3, seed=8)
    chosen = {"calibrator": calibrator, "conventions": conventions, "bins": 7}
    found = replicates(str(tmp_path / "store"), resamples, **chosen)
    for number, row in enumerate(found):
        place = tmp_path / str(number)
        write_resampled(tmp_path / "case", place, resampled(data, resamples, number))
        import_all(str(place / "store"), place)
        result = (
            Benchmark(Store.open(str(place / "store")), ScoreSettings.from_options(**chosen)).score(["d"])["d"].result
        )
        values = [metric.value(result) for metric in METRICS]
        assert row.tolist() == pytest.approx([math.nan if v is None else v for v in values], abs=1e-9, nan_ok=True)


UNCERTAIN = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1e12]), min_size=1, max_size=12)


@settings(max_examples=300)
@given(UNCERTAIN, UNCERTAIN, st.sampled_from([0.0, 0.2, 0.35, 0.5, 2e12]), st.integers(0, 1000))
def test_balanced_accuracy_of_weights_is_that_of_copies(inside, outside, threshold, seed) -> None:
    here, away = np.array(inside), np.array(outside)
    rng = np.random.default_rng(seed)
    times = [rng.integers(0, 4, len(each)) for each in (here, away)]
    copies = [np.repeat(each, many) for each, many in zip((here, away), times, strict=True)]
    accepted = [each < threshold for each in (here, away)]
    for conventions in ("official", "paper"):
        chosen = ScoreSettings.from_options(conventions=conventions)
        decided = [Decisions(np.arange(len(u)), u, a) for u, a in zip((here, away), accepted, strict=True)]
        found = OodSeparation(*decided, chosen, threshold).ba(*times)
        if not all(map(len, copies)):
            assert found is None
        elif conventions == "paper":
            assert found == thresholds.decided_accuracy(*(each < threshold for each in copies))["ba"]
        else:
            assert found == thresholds.balanced_accuracy(*copies, threshold)["ba"]


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Store:
    """Two detectors of one use case: the second finds the same boxes with other scores."""
    folder = tmp_path_factory.mktemp("two")
    random_use_case(folder / "case", seed=10, images=60, classes=5)
    import_all(str(folder / "store"), folder / "case", "d")
    rng = np.random.default_rng(1)
    for split in SPLITS:
        path = folder / "case" / f"{split}.detections.json"
        rows = json.loads(path.read_text())
        path.write_text(json.dumps([row | {"score": row["score"] * rng.uniform(0.7, 1)} for row in rows]))
    import_all(str(folder / "store"), folder / "case", "e")
    return Store.open(str(folder / "store"))


def results_of(store: Store, resamples: Bootstrap | None, *names: str) -> BenchmarkResult:
    scored = Benchmark(store, ScoreSettings(), resamples=resamples).score(names or ("d", "e"))
    return results(store, ScoreSettings(), scored, False, resamples)


def test_without_resamples_nothing_is_other(two) -> None:
    plain = results_of(two, None).to_json()
    value = results_of(two, Bootstrap(20)).to_json()
    assert plain.pop("digest") != value.pop("digest")
    assert value.pop("bootstrap") == {"replicates": 20, "seed": 0, "level": 0.95}
    for each in value["detectors"].values():
        assert set(each.pop("intervals")) == {"daq", "id", "ood", "rank", "shift"}
    assert encode_json(value) == encode_json(plain)


def test_intervals_are_percentiles_of_the_replicates(two) -> None:
    resamples = Bootstrap(400, seed=5)
    value = results_of(two, resamples).detectors
    rows = {name: Benchmark(two, ScoreSettings(), False, resamples).score([name])[name].replicates for name in "de"}
    for name in "de":
        for column, metric in enumerate(METRICS):
            moved = rows[name][:, column] - rows[name][:, column].mean() + metric.value(value[name])
            ordered = sorted(moved.tolist())
            low, high = metric.interval(value[name])
            assert ordered[9] <= low <= ordered[10] and ordered[389] <= high <= ordered[390]
    first = [1 + (e > d) for d, e in zip(rows["d"][:, 0], rows["e"][:, 0], strict=True)]
    assert 0 < first.count(1) < 400  # neither always wins
    assert value["d"].intervals.rank == [sorted(first)[9], sorted(first)[389]]


def test_ranks_skip_the_undefined_and_share_equals() -> None:
    def rows(*daqs: float) -> np.ndarray:
        return np.array([[daq, *[0.0] * (len(METRICS) - 1)] for daq in daqs])

    nan = math.nan
    found = {"a": rows(0.5, 0.5, nan), "b": rows(0.5, 0.6, 0.1), "c": rows(0.1, 0.2, nan), "d": rows(nan, nan, nan)}
    assert bootstrap.rank_intervals(found) == {"a": [1, 2], "b": [1, 1], "c": [3, 3], "d": None}


def test_an_undefined_resample_does_not_spoil_the_interval() -> None:
    assert bootstrap.interval(np.array([math.nan, 0.25, math.nan]), 0.5) == [0.5, 0.5]
    assert bootstrap.interval(np.array([math.nan]), 0.5) is None


def test_what_was_not_seen_has_no_interval(tmp_path) -> None:
    random_use_case(tmp_path / "case", seed=5)
    import_all(str(tmp_path / "store"), tmp_path / "case", shard_images=5)
    store = Store.open(str(tmp_path / "store"))
    for split in ("ood", "id-c1", "id-c3", "id-c5"):
        shutil.rmtree(store.folder.path(f"ledger/d/{split}"))
    resamples = Bootstrap(30)
    scored = Benchmark(store, ScoreSettings(), True, resamples).score(["d"])
    found = results(store, ScoreSettings(), scored, True, resamples).to_json()["detectors"]["d"]["intervals"]
    assert found["daq"] is None and found["ood"]["ba"] is None and found["rank"] is None
    assert found["shift"] == {"idq": None, "laece": None, "lrp": None}
    assert all(found["id"].values())


def test_replicates_depend_on_neither_workers_nor_their_number_nor_the_cache(two) -> None:
    resamples = Bootstrap(150, seed=2)
    benchmark = Benchmark(two, ScoreSettings(), False, resamples)
    fitted = benchmark.fit("d")
    split_scores = {split: benchmark.score_split("d", split, fitted) for split in SPLITS[2:]}
    data = benchmark.bootstrap_input(fitted, split_scores)
    found = []
    for workers in (1, 2, 5):
        with ThreadPoolExecutor(workers) as pool:
            found.append(bootstrap.replicates(data, resamples, pool))
    for _ in range(2):  # computed, then looked up
        found.append(replicates(two.uri, resamples))
    assert all(each.tobytes() == found[0].tobytes() for each in found)
    assert replicates(two.uri, Bootstrap(70, seed=2)).tobytes() == found[0][:70].tobytes()
    assert replicates(two.uri, Bootstrap(70, seed=3)).tobytes() != found[0][:70].tobytes()


def test_the_command_writes_and_shows_intervals(two) -> None:
    run = saod_ray("score", two.uri, "--bootstrap", 50, "--bootstrap-seed", 4, "--json")
    assert run.returncode == 0, run.stderr
    value = json.loads(run.stdout)
    assert value["bootstrap"] == {"level": 0.95, "replicates": 50, "seed": 4}
    assert value == results_of(two, Bootstrap(50, 4)).to_json()
    options = ("--bootstrap", 50, "--bootstrap-seed", 4)
    shown = saod_ray("score", two.uri, *options, env={"COLUMNS": "200"}).stdout
    low, high = value["detectors"]["d"]["intervals"]["daq"]
    assert f"[{100 * low:.1f}, {100 * high:.1f}]" in shown and "rank by DAQ: d " in shown
    kept = saod_ray("score", two.uri, "--json")  # without the option, the resamples of the store's results are kept
    assert json.loads(kept.stdout) == value
    assert "bootstrap" not in json.loads(saod_ray("score", two.uri, "--bootstrap", 0, "--json").stdout)
    assert saod_ray("score", two.uri, "--bootstrap", -1).returncode == 1
