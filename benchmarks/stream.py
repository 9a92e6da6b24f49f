"""Six detectors through the engine against bare loops and an earlier engine: python -m benchmarks.stream [WHAT ...].

WHAT is `shapes` (the trained detectors of the use case), `computing` or `waiting` (six stand-ins that burn a core or wait
for a set time per image, 640x480, corrupted), `decoding` (six that cost next to nothing, so that preparing images is what
takes time), `memory` (the object store at few and many images, and while actors start slowly) and `push` (units of one
small image and a detector that does nothing). Start-up does not count in rates: time runs from the first units to the last.

`--old DIR` names a checkout of an earlier commit, whose engine is measured in the same run, in turn with this one.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import saod_ray, workspace
from benchmarks.stand_in import photographs, tables
from benchmarks.stream_ways import Setting, bare_loops, measure_engine, measure_old_engine
from benchmarks.watch import Measurement
from saod_ray.detect import registry

LITTLE = 0.2  # ms of a stand-in beside which preparing images dominates
KINDS = ("shapes", "computing", "waiting", "decoding", "memory", "push")


def shapes_setting(options: Any) -> Setting:
    """The detectors of shapes that have weights, on id-c3."""
    place = workspace("shapes")
    saod_ray("data", "build", "shapes", "--data", place)
    weights = registry.weights_folder(options.weights)
    names = [entry.name for entry in registry.choose("shapes") if registry.state(entry, weights).weights]
    title = f"shapes: {len(names)} detectors ({','.join(names)})"
    images = min(400, options.images)
    return Setting(title, "shapes", str(place), ",".join(names), str(weights), "id-c3", images, 32)


def stand_in_setting(options: Any, kind: str) -> Setting:
    """Six detectors that cost a set time on corrupted photographs, in units of the default size."""
    case = photographs("photographs", options.images, 640, 480)
    ms = LITTLE if kind == "decoding" else options.ms
    detectors = tables(kind, 6, ms, computes=kind != "waiting")
    title = f"{kind}: six stand-ins of {ms} ms on 640x480"
    return Setting(title, case, None, detectors, "weights", "id-c3", options.images, 128)


def compare(setting: Setting, options: Any) -> None:
    """One line per way and repetition, then the medians of the ratios."""
    cores = os.cpu_count() or 1
    print(f"\n{setting.title}, {setting.images} images of {setting.split}, units of {setting.unit_images}", flush=True)
    rows: list[tuple[Measurement, Measurement, Measurement | None]] = []
    for _ in range(options.repeat):
        loops = bare_loops(setting, cores)
        print(f"{f'bare loops, {cores} processes':26}{loops}", flush=True)
        engine = measure_engine(setting)
        print(f"{'engine (Ray Data)':26}{engine}", flush=True)
        old = measure_old_engine(setting, options.old) if options.old else None
        if old:
            print(f"{'old engine (Ray Core)':26}{old}", flush=True)
        rows.append((loops, engine, old))
    print(f"engine over bare loops: {median(engine.rate / loops.rate for loops, engine, _ in rows):.2f}")
    if options.old:
        ratios = [engine.rate / old.rate for _, engine, old in rows if old]
        starts = [engine.first_unit - old.first_unit for _, engine, old in rows if old]
        print(f"engine over old engine: {median(ratios):.2f}; first unit {median(starts):+.1f} s later")


def memory(options: Any) -> None:
    """The peak of the object store must not depend on the number of images, nor on slow actors."""
    print(f"\nmemory: six stand-ins that wait 1 ms, units of 128 images, {128 * 640 * 480 * 3 / 1e6:.0f} MB each")
    for images, seconds in ((options.memory[0], 0.0), (options.memory[0], 30.0), (options.memory[1], 0.0)):
        case = photographs("photographs", images, 640, 480)
        detectors = tables(f"brief-{seconds:.0f}", 6, 1.0, computes=False, start_seconds=seconds / 6)
        measured = measure_engine(Setting("", case, None, detectors, "weights", "id-c3", images, 128))
        start = f", actors start in {seconds:.0f} s" if seconds else ""
        print(f"{images:7,} images{start}: at most {measured.store_mb:.0f} MB in the object store", flush=True)


def push(options: Any) -> None:
    """How many tiny units go through in a minute, and what the driver spends on each."""
    case = photographs("small", options.units, 64, 64)
    setting = Setting("", case, None, tables("null", 1, 0, False), "weights", "id", options.units, 1)
    for name, measured in (
        ("engine (Ray Data)", measure_engine(setting)),
        ("old engine (Ray Core)", measure_old_engine(setting, options.old) if options.old else None),
    ):
        if measured:
            print(f"\npush: {name}: {60 * measured.rate:,.0f} units per minute", end="")
            print(f", {measured.driver_ms:.1f} CPU-ms of the driver per unit, {measured.cpu_ms:.1f} of all processes")


def main() -> None:
    options = _options()
    for kind in options.what:
        if kind in ("memory", "push"):
            {"memory": memory, "push": push}[kind](options)
        else:
            compare(shapes_setting(options) if kind == "shapes" else stand_in_setting(options, kind), options)


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=KINDS, metavar="WHAT", help=", ".join(KINDS))
    parser.add_argument("--old", type=Path, metavar="DIR", help="a checkout of commit b40d690, for its engine")
    parser.add_argument("--repeat", type=int, default=2, help="how often the ways are measured in turn")
    parser.add_argument("--images", type=int, default=4096, help="of a comparison; shapes has 400")
    parser.add_argument("--memory", type=int, nargs=2, default=(500, 5000), metavar="IMAGES", help="few and many")
    parser.add_argument("--units", type=int, default=1000, help="of a push")
    parser.add_argument("--ms", type=float, default=4.0, help="that a stand-in takes per image")
    parser.add_argument("--weights", metavar="DIR", help="the weights folder of shapes")
    options = parser.parse_args()
    if unknown := set(options.what) - set(KINDS):
        parser.error(f"{', '.join(sorted(unknown))}: use {', '.join(KINDS)}")
    return options


if __name__ == "__main__":
    main()
