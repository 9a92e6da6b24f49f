"""Six detectors over one stream against a bare loop, six passes and Ray Data: python -m benchmarks.stream [WHAT …].

WHAT is `shapes` (the trained detectors of the use case), `computing` or `waiting` (six stand-ins that burn a core or wait
for a set time an image, 640×480, corrupted), `decoding` (six that cost next to nothing, so that decoding and corrupting
is what takes time), `memory` (the object store at few and many images) and `push` (units of one
small image and a detector that does nothing). Start-up is aside: time counts from the first units to the last.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import saod_ray, workspace
from benchmarks.stand_in import photographs, tables
from benchmarks.stream_ways import Figures, Setting, bare_loops, one_by_one, ray_data, streamed
from saod_ray.detect import registry
from saod_ray.engine.cluster import connected
from saod_ray.engine.run import ResourceOptions

LITTLE = 0.2  # ms of a stand-in beside which decoding is much


def shapes(options: Any) -> Setting:
    """The detectors of shapes that have weights, on id-c3."""
    place = workspace("shapes")
    saod_ray("data", "build", "shapes", "--data", place)
    weights = registry.weights_folder(options.weights)
    entries = [each for each in registry.choose("shapes") if registry.state(each, weights).weights]
    if not entries:
        raise SystemExit("No detector of shapes has weights: give --weights DIR.")
    names = ",".join(each.name for each in entries)
    title = f"shapes: {len(entries)} detectors ({names})"
    return Setting(title, "shapes", str(place), names, weights, "id-c3", min(400, options.images))


def stand_ins(options: Any, kind: str) -> Setting:
    """Six that cost a set time on corrupted photographs, in units as the engine has them by default."""
    case = photographs("photographs", options.images, 640, 480)
    ms = LITTLE if kind == "decoding" else options.ms
    title = f"{kind}: six stand-ins of {ms} ms on 640×480"
    six = tables(kind, 6, ms, computes=kind != "waiting")
    return Setting(title, case, None, six, Path(), "id-c3", options.images, ResourceOptions())


def small(units: int) -> Setting:
    """Units of one image of 64×64, and one detector that does nothing."""
    case = photographs("small", units, 64, 64)
    return Setting(
        f"push: {units} units", case, None, tables("null", 1, 0, False), Path(), "id", units, ResourceOptions(unit_images=1)
    )


def compare(setting: Setting, options: Any) -> None:
    """A line for each way, with its throughput over that of the loops that have as many cores."""
    cores = os.cpu_count() or 1
    print(f"\n{setting.title}, {setting.images} images of {setting.split}, units of {setting.sizes.unit_images}")
    single, loops = bare_loops(setting, 1), bare_loops(setting, cores)
    print(f"{'bare loop, 1 process':34}{single}\n{f'bare loops, {cores} processes':34}{loops}", flush=True)
    began = time.monotonic()
    with connected(None, cpus=cores):
        print(f"a private cluster of {cores} cores starts in {time.monotonic() - began:.1f} s")
        ways: list[tuple[str, Callable[[], Figures]]] = [
            ("engine, one stream", lambda: streamed(setting)),
            ("engine, one pass a detector", lambda: one_by_one(setting)),
            ("Ray Data decodes (no shards)", lambda: ray_data(setting, cores)),
        ]
        found = {}
        for name, way in ways[: 3 if options.ray_data else 2]:
            found[name] = way()
            print(
                f"{name:34}{found[name]}   {found[name].rate / single.rate:5.2f} of 1 loop, "
                f"{found[name].rate / loops.rate:5.2f} of {cores}   actors start in {found[name].starting:.1f} s, "
                f"{found[name].store_mb:.0f} MB in the object store",
                flush=True,
            )
    ours, passes = found["engine, one stream"], found["engine, one pass a detector"]
    print(f"one stream over one pass a detector: {ours.rate / passes.rate:.2f} times the images a second", end="")
    print(f", {passes.cpu_ms / ours.cpu_ms:.2f} times fewer CPU-ms")


def memory(options: Any) -> None:
    """The object store's peak must not depend on how many images there are."""
    print(f"\nmemory: six stand-ins that wait 1 ms, units of 64 images, {64 * 640 * 480 * 3 / 1e6:.0f} MB each")
    for images in options.memory:
        case = photographs("photographs", images, 640, 480)
        six = tables("brief", 6, 1.0, computes=False)
        setting = Setting("", case, None, six, Path(), "id-c3", images, ResourceOptions(unit_images=64))
        with connected(None):
            print(f"{images:7,} images: at most {streamed(setting).store_mb:.0f} MB in the object store", flush=True)


def push(options: Any) -> None:
    """How many tiny units go through in a minute, and what the driver spends on each."""
    setting = small(options.units)
    with connected(None):
        found = streamed(setting)
    print(f"\n{setting.title} of one small image: {60 * found.rate:,.0f} units a minute", end="")
    print(f", {found.driver_ms:.1f} CPU-ms of the driver a unit, {found.cpu_ms:.1f} CPU-ms of all processes")


def main() -> None:
    options = _options()
    for what in options.what:
        if what in ("memory", "push"):
            {"memory": memory, "push": push}[what](options)
        else:
            compare(shapes(options) if what == "shapes" else stand_ins(options, what), options)


def _options() -> Any:
    ways = ("shapes", "computing", "waiting", "decoding", "memory", "push")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=ways, metavar="WHAT", help=", ".join(ways))
    parser.add_argument("--images", type=int, default=2000, help="of a comparison; shapes has 400")
    parser.add_argument("--memory", type=int, nargs=2, default=(500, 5000), metavar="IMAGES", help="few and many")
    parser.add_argument("--units", type=int, default=1000, help="of a push")
    parser.add_argument("--ms", type=float, default=4.0, help="that a stand-in takes for an image")
    parser.add_argument("--weights", metavar="DIR", help="where weights of shapes are kept")
    parser.add_argument("--no-ray-data", dest="ray_data", action="store_false", help="without that peer")
    options = parser.parse_args()
    if unknown := set(options.what) - set(ways):
        parser.error(f"{', '.join(sorted(unknown))}: use {', '.join(ways)}")
    return options


if __name__ == "__main__":
    main()
