"""Generate the files of the demo, two invented detectors on an invented use case: python -m examples.demo.make."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import generate
from saod_ray.splits import SplitName

HERE = Path(__file__).parent
SIZES = (60, 90, 90)
CLASSES = 5
DRIFT = {**generate.DRIFT, "pseudo-ood": 0.38, "ood": 0.36}
DETECTORS = {"sharp": 0.0, "blunt": 0.2}  # drift of the detections from the ground truth


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        case, worlds = generate.make_use_case(Path(name), SIZES, CLASSES, seed=11)
        for source in ("val", "id", "ood"):
            text = (Path(name) / f"{source}.json").read_bytes()
            (HERE / f"{source}.json.gz").write_bytes(gzip.compress(text, mtime=0))
        toml = (Path(name) / "use-case.toml").read_text().replace(".json", ".json.gz").replace("generated", "demo")
        (HERE / "use-case.toml").write_text(toml)
    for skill, (detector, worse) in enumerate(DETECTORS.items()):
        shutil.rmtree(HERE / detector, ignore_errors=True)
        (HERE / detector).mkdir()
        for number, split in enumerate(case.split_names()):
            world = worlds[SplitName(split).source]
            drift = min(DRIFT[split] + worse, 1.0)
            rng = np.random.default_rng([11, skill, number])
            rows = generate.detections(rng, world, 0, world.images, CLASSES, drift, per_image=14)
            listed = coco_results(rows.image_id, rows.offsets, rows.columns)
            path = HERE / detector / f"{split}.json.gz"
            path.write_bytes(gzip.compress(json.dumps(listed, separators=(",", ":")).encode(), mtime=0))


def coco_results(image_id: np.ndarray, offsets: np.ndarray, columns: dict[str, np.ndarray]) -> list[dict[str, object]]:
    image = np.repeat(image_id, np.diff(offsets)).tolist()
    box = np.round(columns["box"].astype(np.float64), 1)
    bbox = np.round(np.concatenate([box[:, :2], (box[:, 2:] - box[:, :2])], axis=1), 1).tolist()
    score = np.round(columns["score"].astype(np.float64), 4).tolist()
    keys = ("image_id", "category_id", "bbox", "score")
    category = (columns["label"] + 1).tolist()
    return [dict(zip(keys, row, strict=True)) for row in zip(image, category, bbox, score, strict=True)]


if __name__ == "__main__":
    main()
