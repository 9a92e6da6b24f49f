"""Memory and speed of parsing Objects365's train file against json.load and ijson: python -m benchmarks.objects365.

The file is generated in the data set's format, with its ratio of 15 annotations per image. The real file has 5 GB.
"""

from __future__ import annotations

import argparse
import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.measure import python, workspace
from saod_ray.data.formats.objects365 import AMBIGUOUS, MATCHES, OOD

OURS = """
import sys
from saod_ray.config import OodSource, Part
from saod_ray.data.formats import objects365
from saod_ray.data.source_files import SourceFiles
files = SourceFiles(sys.argv[1], ["train.json"], lambda done, total: None)
manifest = objects365.READER.read_unlabelled(files, Part("train.json", "train"), OodSource(name="near"))
assert manifest.images.height == int(sys.argv[2]), manifest.images.height
"""
# both only visit every annotation
JSON_LOAD = "import json, sys; data = json.load(open(sys.argv[1])); print(len(data['annotations']))"
IJSON = "import ijson, sys; print(sum(1 for _ in ijson.items(open(sys.argv[1], 'rb'), 'annotations.item')))"
ANNOTATION = (
    '{"id": %d, "iscrowd": 0, "isfake": 0, "area": %.13f, "isreflected": 0, "bbox": [%.10f, %.10f, %.14f, %.14f], '
    '"image_id": %d, "category_id": %d}'
)
BATCH_IMAGES = 20_000  # images written at once


def generate(path: Path, size: int) -> int:
    """Write a file of about `size` bytes; return the number of OOD images."""
    names = [*(name for names in MATCHES.values() for name in names), *AMBIGUOUS, *OOD]
    rng = np.random.default_rng(0)
    near, first, count = 0, len(names) - len(OOD), int(size / 3370)
    with path.open("w") as out:
        out.write('{"images": [')
        for i in range(count):
            image = {"height": 512, "id": i, "license": 5, "width": 769, "url": ""}
            out.write(", " * bool(i))
            out.write(json.dumps({**image, "file_name": f"images/v1/patch{i % 50}/objects365_v1_{i:08d}.jpg"}))
        out.write('], "annotations": [')
        number = 0
        for start in range(0, count, BATCH_IMAGES):
            lines = []
            for i in range(start, min(start + BATCH_IMAGES, count)):
                is_near = i % 49 == 0
                near += is_near
                low = first if is_near else 0
                for category in (*rng.integers(low, len(names), rng.integers(14, 17)).tolist(), low):
                    values = rng.random(5) * 500
                    lines.append(ANNOTATION % (number, *values.tolist(), i, category + 1))
                    number += 1
            out.write((", " * bool(start)) + ", ".join(lines))
        categories = [{"name": name, "id": k} for k, name in enumerate(names, 1)]
        out.write(f'], "licenses": [{{"name": "", "id": 0, "url": ""}}], "categories": {json.dumps(categories)}}}')
    return near


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=0.4)
    parser.add_argument(
        "--no-peers", action="store_true", help="skip json.load, which needs eight times the file size in memory"
    )
    options = parser.parse_args()
    place = workspace("objects365")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # a child inherits the peak memory of its parent
        near = pool.submit(generate, place / "train.json", int(options.gigabytes * 1e9)).result()
    gigabytes = (place / "train.json").stat().st_size / 1e9
    ours = python(OURS, place, near)
    print(f"saod-ray   {gigabytes:5.2f} GB   {ours}   {gigabytes * 1000 / ours.cpu:6.0f} MB per CPU-second")
    for name, code in () if options.no_peers else (("ijson", IJSON), ("json.load", JSON_LOAD)):
        peer = python(code, place / "train.json")
        ratios = f"{peer.cpu / ours.cpu:5.1f} times our CPU, {peer.gib / ours.gib:.1f} times our memory"
        print(f"{name:<10} {gigabytes:5.2f} GB   {peer}   {ratios}")
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
