"""COCO AP of 10,000 images compared with faster-coco-eval and pycocotools, including reading: python -m benchmarks.ap.

Each runs in its own process: ours reads the store's shards, theirs the same detections as COCO JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import cost_of, python, saod_ray, workspace
from saod_ray.score import ap, split
from saod_ray.store.store import Store

PEER = """
import sys, json
if sys.argv[1] == "pycocotools":
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
else:
    from faster_coco_eval import COCO, COCOeval_faster as COCOeval
truth = COCO(sys.argv[2])
run = COCOeval(truth, truth.loadRes(sys.argv[3]), "bbox")
run.evaluate()
run.accumulate()
run.summarize()
json.dump(float(run.stats[0]), open(sys.argv[4], "w"))
"""


@dataclass(frozen=True)
class MediumSet:
    """Paths of the store, the ground truth and the COCO results, and the number of detections."""

    store: Path
    truth: Path
    detections: Path
    count: int


def medium_set() -> MediumSet:
    """Detections on 10,000 ID images as a store and as COCO JSON; generated once."""
    place = workspace("medium")
    detections = place / "id.detections.json"
    if not detections.exists():
        shutil.rmtree(place, ignore_errors=True)
        cost_of(sys.executable, "-m", "benchmarks.generate", place, "--scale", "medium")
        saod_ray("export", place / "store", "--detector", "a", "--split", "id", "--out", detections)
    shards = Store.open(str(place / "store")).shards("a", "id")
    return MediumSet(place / "store", place / "id.json", detections, sum(shard.detections for shard in shards))


def ours(uri: str, out: str) -> None:
    """Compute only AP from the shards, without a cache."""
    store = Store.open(uri)
    objects = split.ground_truth(store, "id")
    metrics = ap.accuracy(split.load(store, "a", "id", objects), objects, zero_id_misses=True)
    Path(out).write_text(json.dumps(metrics.ap))


def main() -> None:
    if sys.argv[1:2] == ["ours"]:
        return ours(*sys.argv[2:4])
    medium = medium_set()
    print(f"AP of {medium.count:,} detections on 10,000 images")
    out = workspace("medium") / "ap.json"
    values, costs = {}, {}
    for _ in range(2):  # the first run compiles the kernels if necessary
        shutil.rmtree(medium.store / "cache", ignore_errors=True)
        costs["saod-ray"] = cost_of(sys.executable, "-m", "benchmarks.ap", "ours", medium.store, out)
    values["saod-ray"] = json.loads(out.read_text())
    for peer in ("faster-coco-eval", "pycocotools"):
        costs[peer] = python(PEER, peer, medium.truth, medium.detections, out)
        values[peer] = json.loads(out.read_text())
    for name, cost in costs.items():
        print(f"{name:18}{cost}   AP {values[name]:.15f}   {cost.cpu / costs['saod-ray'].cpu:6.1f} times ours")
    return None


if __name__ == "__main__":
    main()
