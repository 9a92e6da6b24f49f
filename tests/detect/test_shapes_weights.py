"""The weights in the package are real detectors: drawn anew, the scenes of val are seen as well as ever."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import saod_ray.detect
from saod_ray.config import Part
from saod_ray.data import shapes
from saod_ray.data.formats import coco
from saod_ray.data.manifest import Classes, Manifest
from saod_ray.data.source_files import SourceFiles
from saod_ray.detect import registry
from saod_ray.detect.checkpoints import read
from saod_ray.score.ap import accuracy
from saod_ray.score.matching import TP, greedy
from saod_ray.train.accuracy import detect_manifest

WEIGHTS = Path(saod_ray.detect.__file__).parent / "weights" / "shapes"
KINDS = [entry.name for entry in registry.choose("shapes", "all")]
ALL = [entry.name for entry in registry.all_entries("shapes")]


@pytest.fixture(scope="module")
def val(tmp_path_factory) -> tuple[Path, Classes, Manifest]:
    root = tmp_path_factory.mktemp("val")
    recipe = shapes.Recipe(0, 1.0)
    drawn = shapes._write(str(root / "shapes"), recipe.seed, ("val", range(recipe.count("val"))))
    (root / "shapes/val.json").write_bytes(shapes._coco("val", drawn, recipe))
    part = Part("shapes/val.json", "shapes/val")
    return root, *coco.READER.read_annotated(SourceFiles(str(root)), part, None, None)


def test_all_weights_are_there_in_half_precision_and_small() -> None:
    files = sorted(WEIGHTS.glob("*.safetensors"))
    assert sorted(path.stem for path in files) == sorted(ALL)
    assert sum(path.stat().st_size for path in files) <= 12e6
    for path in files:
        kinds = {str(value.dtype) for value in read(path).values()}
        assert kinds <= {"torch.float16", "torch.int64"}, path


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_the_weights_reach_what_was_written_of_them(name, val) -> None:
    root, classes, manifest = val
    (entry,) = registry.choose("shapes", name)
    detector = registry.build(entry, classes.names, Path("/nowhere"), threads=1)
    split, objects = detect_manifest(detector, manifest, str(root))
    overall = accuracy(split, objects, zero_id_misses=False).overall
    written = json.loads((WEIGHTS / f"{name}.json").read_text())
    for figure, value in written["val"].items():
        assert getattr(overall, figure) == pytest.approx(value, abs=0.01)
    if name in KINDS:
        assert (overall.ap50 or 0) >= (0.75 if name == "d-detr" else 0.85)
    sure = split.select(split.score >= 0.3)
    matches = greedy(sure, objects, 0.1, zero_id_misses=False)
    gap = sure.score.mean() - np.where(matches.state == TP, matches.iou, 0.0).mean()
    if name in ("f-rcnn", "nll-rcnn", "es-rcnn"):
        assert gap > 0  # a softmax is over-confident
    if name == "atss":
        assert gap < 0
