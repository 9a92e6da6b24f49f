"""Figures that the official evaluation printed for a stored set of detections."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import reference
from conftest import GOLDEN

from saod_ray.config import ScoreSettings
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.store import Store

EXPECTED = json.loads((GOLDEN / "expected.json").read_text())


def look_up(figures: dict[str, Any], path: str) -> Any:
    value: Any = figures
    for key in path.split("."):
        value = value[key]
    return value


@pytest.mark.parametrize("run", EXPECTED["runs"], ids=lambda run: run["name"])
def test_official_figures(run: dict[str, Any], golden_store: Store) -> None:
    settings = ScoreSettings.from_options(**{key.replace("-", "_"): value for key, value in run["settings"].items()})
    figures = Benchmark(golden_store, settings).score(["toy"])["toy"].result.to_json()
    for path, expected in run["expected"].items():
        assert look_up(figures, path) == pytest.approx(expected, abs=1e-9), path
    classes = dict(zip(golden_store.description.classes, golden_store.description.category_ids, strict=True))
    thresholds = {str(classes[name]): value for name, value in figures["detection_thresholds"].items()}
    assert thresholds == pytest.approx(run["detection_thresholds_by_category_id"], abs=1e-9)


def test_coco_figures(golden_store: Store) -> None:
    figures = Benchmark(golden_store, ScoreSettings()).score(["toy"])["toy"].result.to_json()
    for key, expected in EXPECTED["coco_on_id"].items():
        assert figures["accuracy"]["id"][key] == pytest.approx(expected, abs=1e-12), key


def golden_data() -> dict[str, Any]:
    """The fixture in the reference's terms."""
    import gzip

    def read(name: str) -> Any:
        with gzip.open(GOLDEN / name) as file:
            return json.load(file)

    truth = {source: read(f"{source}.json.gz") for source in ("val", "id", "ood")}
    label = {c: k for k, c in enumerate(sorted(c["id"] for c in truth["val"]["categories"]))}
    data: dict[str, Any] = {"classes": len(label), "images": {}, "objects": {}, "detections": {}}
    for source, value in truth.items():
        data["images"][source] = [image["id"] for image in value["images"]]
        data["objects"][source] = [
            {"image": a["image_id"], "label": label[a["category_id"]], "crowd": a["iscrowd"]}
            | {key: a[key] for key in ("id", "bbox", "area")}
            for a in value["annotations"]
        ]
    for split in ("val", "pseudo-ood", "id", "id-c1", "id-c3", "id-c5", "ood"):
        data["detections"][split] = [
            {"image": d["image_id"], "label": label[d["category_id"]], "bbox": d["bbox"], "score": d["score"]}
            | dict(zip(("entropy", "ds"), d["uncertainty"], strict=True))
            for d in read(f"{split}.detections.json.gz")
        ]
    return data


@pytest.mark.parametrize("conventions", ["official", "paper"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"calibrator": "isotonic", "tau": 0.5}, {"calibrator": "histogram", "image-threshold": "tpr-0.95"}],
    ids=["default", "isotonic", "histogram"],
)
def test_both_conventions_against_the_reference(changes: dict[str, Any], conventions: str, golden_store: Store) -> None:
    """The paper's conventions have no published figures; the reference, proved by the official ones, stands in."""
    base = {"calibrator": "linear", "uncertainty": "score", "aggregate": "top-3"}
    asked = base | {"image-threshold": "pseudo-ood", "detection-threshold": "lrp", "conventions": conventions} | changes
    expected = reference.benchmark(golden_data(), asked)
    settings = ScoreSettings.from_options(**{key.replace("-", "_"): value for key, value in asked.items()})
    figures = Benchmark(golden_store, settings).score(["toy"])["toy"].result.to_json()
    thresholds = expected.pop("detection_thresholds")
    got = [math.nan if v is None else v for v in figures["detection_thresholds"].values()]
    assert got == pytest.approx(thresholds, nan_ok=True)
    for path, value in expected.items():
        if not path.endswith("near_a_bin_edge"):
            assert look_up(figures, path) == pytest.approx(value, abs=1e-12), path
