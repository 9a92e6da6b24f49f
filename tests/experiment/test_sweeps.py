"""Each sweep against independent scorings: small random stores, one scoring per value."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usecases import import_all, random_use_case

from saod_ray.config import ScoreSettings
from saod_ray.experiment import ablation, calibrators, detection_threshold, find, paper, tau, thresholds, top_k
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Row, perform
from saod_ray.experiment.sweep import over_detection_thresholds, over_image_thresholds
from saod_ray.score import matching
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.store import Store

SWEEPS = ("calibrators", "top-k", "detection-threshold", "tau", "thresholds", "ablation")
EVERY_IMAGE = "1e13"  # no uncertainty reaches it
AWAY = [9000.0, 9000.0, 1.0, 1.0]
PATHS = {
    "daq": ("daq",),
    "ba": ("ood", "ba"),
    **{name: ("id", name) for name in ("idq", "laece", "lrp")},
    **{f"{name}_t": ("shift", name) for name in ("idq", "laece", "lrp")},
}
CHOSEN = st.fixed_dictionaries(
    {
        "calibrator": st.sampled_from(["none", "linear", "isotonic", "histogram"]),
        "uncertainty": st.sampled_from(["score", "entropy"]),
        "aggregate": st.sampled_from(["top-3", "min", "sum"]),
        "detection_threshold": st.sampled_from(["lrp", "0.3"]),
        "tau": st.sampled_from([0.1, 0.5]),
        "bins": st.sampled_from([25, 7]),
        "conventions": st.sampled_from(["official", "paper"]),
    }
)
CASES = st.tuples(st.integers(0, 10**6), st.integers(0, 1))


def make_store(folder: Path, case: tuple[int, int]) -> Store:
    random_use_case(folder, case[0], first_id=case[1])
    import_all(str(folder / "store"), folder, shard_images=5)
    return Store.open(str(folder / "store"))


def scored(store: Store, **chosen: Any) -> dict[str, Any]:
    """The brute force: a scoring of its own."""
    return Benchmark(store, ScoreSettings.from_options(**chosen)).score(["d"])["d"].result.to_json()


def same(actual: Any, expected: Any) -> bool:
    pairs = zip(actual, expected, strict=True)
    return all(a is b is None or (None not in (a, b) and math.isclose(a, b, rel_tol=0, abs_tol=1e-9)) for a, b in pairs)


def picked(result: dict[str, Any]) -> list[float | None]:
    values = []
    for path in PATHS.values():
        value: Any = result
        for key in path:
            value = value[key]
        values.append(value)
    return values


def cells(context: ExperimentContext, experiment: Any) -> dict[tuple[str, ...], tuple[Any, ...]]:
    return {row.headers: row.values for row in experiment.rows(context) if isinstance(row, Row)}


@settings(max_examples=12)
@given(CASES, CHOSEN, st.sampled_from(["pseudo-ood", "0.4"]))
def test_u_is_swept_as_if_each_value_were_scored(tmp_path_factory, case, chosen, rule) -> None:
    folder = tmp_path_factory.mktemp("u")
    store = make_store(folder, case)
    context = ExperimentContext(store, ScoreSettings.from_options(**chosen, image_threshold=rule), ["d"])
    values = [-1.0, *thresholds.image_thresholds(context, "d")[::4], 2e12]
    for u, result in zip(values, over_image_thresholds(context, "d", values), strict=True):
        assert same([getattr(result, name) for name in PATHS], picked(scored(store, **chosen, image_threshold=repr(u))))
    shutil.rmtree(folder)


def test_matching_is_not_repeated_for_each_u(tmp_path, monkeypatch) -> None:
    context = ExperimentContext(make_store(tmp_path, (3, 1)), ScoreSettings(), ["d"])
    values, matched, real = thresholds.image_thresholds(context, "d"), [], matching.greedy

    def counted(split: Any, *args: Any, **options: Any) -> Any:
        matched.append(split)
        return real(split, *args, **options)

    context.self_aware("d")  # fitting matches, too
    for module in list(sys.modules.values()):
        if getattr(module, "greedy", None) is real:
            monkeypatch.setattr(module, "greedy", counted)
    assert len(over_image_thresholds(context, "d", values)) == 21
    assert len(matched) == len(["id", "id-c1", "id-c3", "id-c5"])


@settings(max_examples=8)
@given(CASES, CHOSEN)
def test_v_is_swept_as_if_each_value_were_scored(tmp_path_factory, case, chosen) -> None:
    folder = tmp_path_factory.mktemp("v")
    store = make_store(folder, case)
    context = ExperimentContext(store, ScoreSettings.from_options(**chosen), ["d"])
    values = thresholds.detection_thresholds()[::4]
    for v, result in zip(values, over_detection_thresholds(context, "d", values), strict=True):
        assert same(
            [getattr(result, name) for name in PATHS],
            picked(scored(store, **chosen | {"detection_threshold": repr(v)})),
        )
    shutil.rmtree(folder)


@settings(max_examples=6)
@given(CASES, CHOSEN)
def test_tau_is_swept_as_if_each_value_were_scored(tmp_path_factory, case, chosen) -> None:
    folder = tmp_path_factory.mktemp("tau")
    store = make_store(folder, case)
    if chosen["conventions"] == "paper":
        chosen = chosen | {"detection_threshold": "0.3"}  # there an LRP-optimal v follows tau, here it must not
    rows = cells(ExperimentContext(store, ScoreSettings.from_options(**chosen), ["d"]), tau)
    assert len(rows) == len(tau.TAUS)
    for value in tau.TAUS[::3]:
        changed = chosen | {"tau": value, "image_threshold": EVERY_IMAGE}
        before = scored(store, **changed | {"calibrator": "none"})["id"]
        after = scored(store, **changed)["id"]
        assert same(rows["d", f"{value:.1f}"], [before["laece"], after["laece"], after["lrp"]])
    shutil.rmtree(folder)


def test_v_stays_that_of_tau_0_1_by_the_papers_conventions_too(tmp_path) -> None:
    store = make_store(tmp_path, (11, 1))
    context = ExperimentContext(store, ScoreSettings.from_options(conventions="paper", tau=0.7), ["d"])
    fixed = scored(store, conventions="paper", tau=0.1, image_threshold=EVERY_IMAGE)["id"]
    assert cells(context, tau)["d", "0.1"][1:] == pytest.approx([fixed["laece"], fixed["lrp"]], abs=1e-9)


@settings(max_examples=6)
@given(CASES, CHOSEN)
def test_calibrators_are_compared_as_if_each_were_scored(tmp_path_factory, case, chosen) -> None:
    folder = tmp_path_factory.mktemp("calibrators")
    store = make_store(folder, case)
    rows = cells(ExperimentContext(store, ScoreSettings.from_options(**chosen), ["d"]), calibrators)
    results = [
        scored(store, **chosen | {"calibrator": kind, "image_threshold": EVERY_IMAGE})["id"]
        for kind in calibrators.KINDS
    ]
    assert same(rows["d", "LaECE"], [result["laece"] for result in results])
    assert same(rows["d", "LRP"], [result["lrp"] for result in results])
    shutil.rmtree(folder)


# val as if it were the ID images: the benchmark judges those ------------------------------------------------------


def val_as_id(folder: Path, target: Path, rows: list[dict[str, Any]]) -> Store:
    """A store whose ID images are val's, with these detections."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("store"))
    shutil.copy(folder / "val.json", target / "id.json")
    for split in ("id", "id-c1", "id-c3", "id-c5"):
        (target / f"{split}.detections.json").write_text(json.dumps(rows))
    import_all(str(target / "store"), target)
    return Store.open(str(target / "store"))


def as_it_is(store: Store, conventions: str) -> tuple[float | None, ...]:
    """LaECE, AP and LRP of raw detections, none of them rejected."""
    chosen = {"calibrator": "none", "detection_threshold": "-1", "image_threshold": EVERY_IMAGE}
    result = scored(store, **chosen, conventions=conventions)
    return result["id"]["laece"], result["accuracy"]["id"]["ap"], result["id"]["lrp"]


def written(folder: Path, seed: int) -> tuple[Store, list[dict[str, Any]], list[int], list[int]]:
    """A store without scores of 0, val's detections in it, its image ids, and its categories by label."""
    random_use_case(folder, seed, images=8)
    file = folder / "val.detections.json"
    rows = [row | {"score": max(row["score"], 1 / 64)} for row in json.loads(file.read_text())]
    file.write_text(json.dumps(rows))
    import_all(str(folder / "store"), folder)
    truth = json.loads((folder / "val.json").read_text())
    images, categories = (sorted(entry["id"] for entry in truth[key]) for key in ("images", "categories"))
    return Store.open(str(folder / "store")), rows, images, categories


@pytest.mark.parametrize("conventions", ["official", "paper"])
@pytest.mark.parametrize("seed", [1, 2])
def test_dummies_are_counted_as_if_they_were_there(tmp_path, seed, conventions) -> None:
    store, rows, images, categories = written(tmp_path / "case", seed)
    table = cells(ExperimentContext(store, ScoreSettings.from_options(conventions=conventions), ["d"]), top_k)
    classes = top_k.dummy_classes(len(images), len(categories))
    for k in (0, *top_k.FILLED):
        filled = list(rows)
        for image, dummies in zip(images, classes, strict=True):
            missing = max(k - sum(row["image_id"] == image for row in rows), 0)
            filled += [
                {"image_id": image, "category_id": categories[c], "bbox": AWAY, "score": 0.0, "uncertainty": [0.0, 0.0]}
                for c in dummies[:missing].tolist()
            ]
        brute = as_it_is(val_as_id(tmp_path / "case", tmp_path / str(k), filled), conventions)
        assert same(table["d", f"up to {k}" if k else "none"], [len(filled) / len(images), *brute])


@pytest.mark.parametrize("conventions", ["official", "paper"])
@pytest.mark.parametrize("seed", [1, 2])
def test_thresholded_detections_are_judged_as_if_the_others_were_never_there(tmp_path, seed, conventions) -> None:
    store, rows, images, categories = written(tmp_path / "case", seed)
    context = ExperimentContext(store, ScoreSettings.from_options(conventions=conventions), ["d"])
    table = cells(context, detection_threshold)
    assert len(table) == 5
    optimal = context.self_aware("d").detection_thresholds
    for name in table:
        v = optimal if name[1] == "LRP-opt." else np.full(len(categories), detection_threshold.FIXED[name[1]])
        left = [row for row in rows if row["score"] >= v[categories.index(row["category_id"])]]
        brute = as_it_is(val_as_id(tmp_path / "case", tmp_path / name[1], left), conventions)
        assert same(table[name], [len(left) / len(images), *brute])


# what comes out ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> ExperimentContext:
    """A store that passes for one of the paper's: its use case and one of its detectors."""
    folder = tmp_path_factory.mktemp("gen")
    random_use_case(folder, 6)
    file = folder / "use-case.toml"
    file.write_text(file.read_text().replace('"random"', '"gen"'))
    import_all(str(folder / "store"), folder, "f-rcnn")
    return ExperimentContext(Store.open(str(folder / "store")), ScoreSettings(), ["f-rcnn"])


@pytest.mark.parametrize("name", SWEEPS)
def test_outcomes_have_the_papers_values(papers, name) -> None:
    outcome = perform(find(name), papers)
    in_paper = {headers: row for headers, row in paper.table(name, "gen").items() if headers[0] == "f-rcnn"}
    assert bool(in_paper) == (name != "thresholds")  # which the paper draws without printing values
    assert {row.headers for row in outcome.rows} >= set(in_paper)
    assert {title for row in in_paper.values() for title in row} <= {column.title for column in outcome.columns}
    values = [value for row in outcome.paper_values for value in row if value is not None]
    assert sorted(values) == sorted(value for row in in_paper.values() for value in row.values())


def test_the_ablation_goes_from_nothing_to_the_default(papers) -> None:
    table = cells(papers, ablation)
    measures = {"DAQ": "daq", "BA": "ba", "LaECE": "laece", "LRP": "lrp", "LaECE_T": "laece_t", "LRP_T": "lrp_t"}
    for headers, changes in (
        (("0.5", "none", "TPR 0.95"), ablation.WITHOUT),
        (("LRP-opt.", "linear", "TPR 0.95"), {"image_threshold": "tpr-0.95"}),
        (("LRP-opt.", "linear", "pseudo-OOD"), {}),
    ):
        result = (
            Benchmark(papers.store, ScoreSettings.from_options(**changes)).score(["f-rcnn"])["f-rcnn"].result.to_json()
        )
        expected = dict(zip(PATHS, picked(result), strict=True))
        assert same(table["f-rcnn", *headers], [expected[measures[metric.title]] for metric in ablation.METRICS])
    assert len(table) == 4


def test_steps_of_u_reach_from_the_surest_image_to_the_least_sure(papers) -> None:
    values = thresholds.image_thresholds(papers, "f-rcnn")
    uncertainty = np.concatenate([papers.uncertainty("f-rcnn", split)[1] for split in ("id", "ood")])
    assert (values[0], values[-1]) == (uncertainty.min(), uncertainty[uncertainty < 1e12].max())
    assert len(values) == 21 and values == sorted(values)
    assert {headers[1] for headers in cells(papers, thresholds)} == {"u", "v"}
