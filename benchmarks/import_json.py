"""Memory and speed of importing large COCO JSON against json.load: python -m benchmarks.import_json [--gigabytes 1]."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from benchmarks.ap import medium_set
from benchmarks.measure import python, saod_ray, workspace

PEER = "import json, sys; json.load(open(sys.argv[1]))"


def enlarge(source: Path, target: Path, size: int) -> None:
    """Repeat the list in `source` until `target` has at least `size` bytes."""
    inner = source.read_bytes().strip()[1:-1]
    with target.open("wb") as out:
        out.write(b"[" + inner)
        while out.tell() < size:
            out.write(b",\n" + inner)
        out.write(b"]\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument(
        "--no-peer", action="store_true", help="skip json.load, which needs seven times the file size in memory"
    )
    options = parser.parse_args()
    medium = medium_set()
    place = workspace("import")
    for share in (0.25, 1.0):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        file = place / "found.json"
        enlarge(medium.detections, file, int(share * options.gigabytes * 1e9))
        case = medium.truth.parent / "use-case.toml"
        args = ["--use-case", case, "--detector", "a", "--split", "id", "--detections", file]
        cost = saod_ray("import", place / "store", *args)
        gigabytes = file.stat().st_size / 1e9
        print(f"import of {gigabytes:5.2f} GB     {cost}   {gigabytes * 1000 / cost.cpu:6.0f} MB per CPU-second")
    if not options.no_peer:
        peer = python(PEER, file)
        print(
            f"json.load of {gigabytes:5.2f} GB  {peer}   {peer.cpu / cost.cpu:5.1f} times our CPU, {peer.gib / cost.gib:.1f} times our memory"
        )
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
