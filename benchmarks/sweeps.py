"""Cost of sweeps over 21 values of u and of v compared with one scoring: python -m benchmarks.sweeps [--scale full].

Both are complete processes, including imports. They run first with an empty cache, then with a full one. With a full cache,
the scoring uses another image threshold, which is not in the cache.
"""

from __future__ import annotations

import argparse
import shutil
import sys

from benchmarks import generate
from benchmarks.measure import Cost, cost_of, python, saod_ray, workspace

SWEEP = """
import sys
from saod_ray.config import ScoreSettings
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.sweep import {function}
from saod_ray.experiment.thresholds import {values}
from saod_ray.store.store import Store
context = ExperimentContext(Store.open(sys.argv[1]), ScoreSettings(), ["a"])
outcomes = {function}(context, "a", {call})
assert len(outcomes) == 21
"""
OVER_U = SWEEP.format(
    function="over_image_thresholds", values="image_thresholds", call='image_thresholds(context, "a")'
)
OVER_V = SWEEP.format(
    function="over_detection_thresholds", values="detection_thresholds", call="detection_thresholds()"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=list(generate.SIZES), default="full")
    options = parser.parse_args()
    place = workspace(f"score-{options.scale}")  # shared with benchmarks.score
    if not (place / "store" / "ledger" / "a" / "ood").exists():
        shutil.rmtree(place, ignore_errors=True)
        cost_of(sys.executable, "-m", "benchmarks.generate", place, "--scale", options.scale)
    store = place / "store"
    saod_ray("score", store)  # compiles the kernels if necessary
    shutil.rmtree(store / "cache")
    first = saod_ray("score", store)
    shutil.rmtree(store / "cache")
    print_cost("21 values of u, empty cache", python(OVER_U, store), first, "the first scoring")
    saod_ray("score", store)  # fills the cache
    again = saod_ray("score", store, "--image-threshold", "0.5")
    print_cost("21 values of u, full cache", python(OVER_U, store), again, "a scoring with another u")
    over_v = python(OVER_V, store)
    print_cost("21 values of v, full cache", over_v, again, "a scoring with another u")
    print_cost("21 values of v, full cache", over_v, first, "the first scoring")


def print_cost(title: str, cost: Cost, scoring: Cost, scoring_title: str) -> None:
    print(f"{scoring_title:28}{scoring}")
    print(f"{title:28}{cost}   {cost.cpu / scoring.cpu:5.2f} scorings in CPU-seconds")


if __name__ == "__main__":
    main()
