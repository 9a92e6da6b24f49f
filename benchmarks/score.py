"""Score a full-size detector with an empty cache, and again with other settings: python -m benchmarks.score [--scale full].

For comparison, pycocotools does one of the several matchings of a published evaluation: it loads the detections on 10,000
test images as JSON and matches them at one IoU threshold.

`--against DIR` compares with another checkout of this repository instead: both score the same store in turns. It prints the
ratios of their CPU-seconds, with the smallest value of each side over the rounds.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from benchmarks import ap, generate
from benchmarks.measure import Cost, cost_of, python, saod_ray, workspace
from saod_ray.store.store import Store

# stated for the published evaluation on this kind of machine; not measured here
OFFICIAL_CPU, OFFICIAL_DETECTIONS, OFFICIAL_GIB = 600.0, 25_000_000, 14.0

PEER = """
import sys, numpy
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
truth = COCO(sys.argv[1])
run = COCOeval(truth, truth.loadRes(sys.argv[2]), "bbox")
run.params.iouThrs = numpy.array([0.1])
run.params.areaRng, run.params.areaRngLbl = [[0, 1e10]], ["all"]
run.evaluate()
run.accumulate()
"""


AGAIN = {
    "calibrator isotonic": ["--calibrator", "isotonic"],
    "calibrator histogram": ["--calibrator", "histogram"],
    "tau 0.5": ["--tau", "0.5"],
    "aggregate top-5": ["--aggregate", "top-5"],
    "the same again": [],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=list(generate.SIZES), default="full")
    parser.add_argument("--no-peer", action="store_true", help="skip the minute that pycocotools takes")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout to compare with")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of --against")
    options = parser.parse_args()
    store, count = prepare_store(options.scale)
    if options.against is not None:
        compare(Path(store.uri).resolve(), options.against.resolve(), options.rounds)
        return
    cold = saod_ray("score", store.uri)
    print(f"first scoring               {cold}   {count / cold.cpu:12,.0f} detections per CPU-second")
    for name, args in AGAIN.items():
        again = saod_ray("score", store.uri, *args)
        print(f"again, {name:21}{again}   {again.cpu / cold.cpu:5.2f} of the first")
    official = OFFICIAL_DETECTIONS / OFFICIAL_CPU
    print(
        f"stated for the published evaluation: {OFFICIAL_CPU:.0f} CPU-s and {OFFICIAL_GIB:.0f} GiB for {OFFICIAL_DETECTIONS:,}"
    )
    print(
        f"  ratio in detections per CPU-second (first scoring, against that statement): {count / cold.cpu / official:.0f}"
    )
    if not options.no_peer:
        medium = ap.medium_set()
        peer = python(PEER, medium.truth, medium.detections)
        rate = medium.count / peer.cpu
        print(f"pycocotools, one matching   {peer}   {rate:12,.0f} detections per CPU-second")
        print(
            f"  ratio in detections per CPU-second (all of the scoring against one matching): {count / cold.cpu / rate:.0f}"
        )


def prepare_store(scale: str) -> tuple[Store, int]:
    """The store with an empty cache, and its number of detections. Kernels are compiled."""
    place = workspace(f"score-{scale}")
    if not (place / "store" / "ledger" / "a" / "ood").exists():
        shutil.rmtree(place, ignore_errors=True)
        cost_of(sys.executable, "-m", "benchmarks.generate", place, "--scale", scale)
    store = Store.open(str(place / "store"))
    count = sum(shard.detections for split in store.splits for shard in store.shards("a", split))
    saod_ray("score", store.uri, "--partial")  # compiles the kernels if necessary
    shutil.rmtree(place / "store" / "cache")
    print(f"{count:,} detections on {sum(s.images for x in store.splits for s in store.shards('a', x)):,} images")
    return store, count


def compare(store: Path, other: Path, rounds: int) -> None:
    """Measure both checkouts in turns, each from an empty cache."""
    sides = {"here": Path.cwd(), "there": other}
    costs: dict[str, dict[str, list[Cost]]] = {}
    shutil.rmtree(store / "cache", ignore_errors=True)
    saod_ray("score", store, checkout=other)  # compiles the kernels of the other checkout
    for number in range(rounds):
        for side in list(sides)[:: 1 if number % 2 else -1]:
            shutil.rmtree(store / "cache", ignore_errors=True)
            for name, args in {"first scoring": [], **AGAIN}.items():
                cost = saod_ray("score", store, *args, checkout=sides[side])
                costs.setdefault(name, {}).setdefault(side, []).append(cost)
    for name, by_side in costs.items():
        ours, theirs = (min(by_side[side], key=lambda cost: cost.cpu) for side in sides)
        print(f"{name:24} here {ours}   there {theirs}   {ours.cpu / theirs.cpu:5.2f} of its CPU-seconds")


if __name__ == "__main__":
    main()
