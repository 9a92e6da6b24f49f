"""Cost of intervals relative to the scoring itself: python -m benchmarks.bootstrap [--scale full] [--replicates 1000]."""

from __future__ import annotations

import argparse
import shutil
import sys

from benchmarks import generate
from benchmarks.measure import cost_of, saod_ray, workspace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=list(generate.SIZES), default="full")
    parser.add_argument("--replicates", type=int, default=1000)
    options = parser.parse_args()
    place = workspace(f"score-{options.scale}")  # shared with benchmarks.score
    if not (place / "store" / "ledger" / "a" / "ood").exists():
        shutil.rmtree(place, ignore_errors=True)
        cost_of(sys.executable, "-m", "benchmarks.generate", place, "--scale", options.scale)
    store, resampled = place / "store", ["--bootstrap", options.replicates]
    saod_ray("score", store, *resampled)  # compiles the kernels if necessary
    shutil.rmtree(store / "cache")
    first = saod_ray("score", store)
    print(f"first scoring                      {first}")
    shutil.rmtree(store / "cache")
    with_resamples = saod_ray("score", store, *resampled)
    print(f"with {options.replicates:,} resamples               {with_resamples}")
    share = (with_resamples.cpu - first.cpu) / first.cpu
    print(f"  resamples alone: {share:.2f} of the CPU-seconds of the scoring")
    print(f"the same again                     {saod_ray('score', store, *resampled)}")
    again = saod_ray("score", store, "--tau", 0.5, *resampled)
    print(f"another tau, with resamples        {again}")


if __name__ == "__main__":
    main()
