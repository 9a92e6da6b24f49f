"""Compile the kernels by scoring a tiny store: `python -m saod_ray.score.warm`, which set-up runs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from saod_ray.config import ScoreSettings, UseCase
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.store.coco_import import import_results
from saod_ray.store.store import Store

_TRUTH = {
    "images": [{"id": 1}, {"id": 2}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9]}],
    "categories": [{"id": 1, "name": "thing"}],
}
_CASE = """
name = "warm"
[splits.val]
annotations = "truth.json"
[splits.id]
annotations = "truth.json"
severities = []
[[splits.ood]]
name = "ood"
annotations = "truth.json"
"""


def warm() -> None:
    """Import and score two images in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "truth.json").write_text(json.dumps(_TRUTH))
        (folder / "use-case.toml").write_text(_CASE)
        rows = [{"image_id": i, "category_id": 1, "bbox": [i, 0, 9, 9], "score": 0.5} for i in (1, 2)]
        (folder / "found.json").write_text(json.dumps(rows))
        case = UseCase.load(folder / "use-case.toml")
        for split in case.split_names():
            import_results(f"{folder}/store", case, "warm", split, folder / "found.json", shard_images=1)
        for aggregate in ("top-3", "mean"):
            settings = ScoreSettings(aggregate=aggregate)
            Benchmark(Store.open(f"{folder}/store"), settings, False, Bootstrap(2, 0)).score(["warm"])


if __name__ == "__main__":
    warm()
