"""Accuracy of the detectors of shapes, with the weights in the package: python -m benchmarks.shapes.

Prints the table in docs/training.md: AP on val and id, and the calibration gap on val: the mean score minus the share of true
positives times their mean IoU, over detections with a score of at least 0.3. Positive means over-confident.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.measure import saod_ray, workspace
from saod_ray.config import UseCase
from saod_ray.detect import registry
from saod_ray.score.ap import accuracy
from saod_ray.score.matching import TP, greedy
from saod_ray.store.manifests import ManifestCache
from saod_ray.train.accuracy import detect_manifest

MIN_SCORE = 0.3
TAU = 0.1


def table() -> list[dict[str, object]]:
    """One row per detector."""
    place = workspace("shapes")
    saod_ray("data", "build", "shapes", "--data", place)
    case = UseCase.load("shapes", str(place))
    built = ManifestCache(case)
    classes, nowhere = built.description().classes, Path("/nowhere")  # so that the package's own weights are used
    rows = []
    for entry in registry.all_entries("shapes"):
        detector = registry.build(entry, classes, nowhere, threads=1)
        row: dict[str, object] = {"detector": entry.name}
        for source in ("val", "id"):
            split, objects = detect_manifest(detector, built.manifest(source), case.root)
            overall = accuracy(split, objects, zero_id_misses=False).overall
            row |= {f"AP {source}": overall.ap, f"AP50 {source}": overall.ap50}
            if source == "val":
                confident = split.select(split.score >= MIN_SCORE)
                matches = greedy(confident, objects, TAU, zero_id_misses=False)
                hit = matches.state == TP
                row["confidence"] = float(confident.score.mean() - np.where(hit, matches.iou, 0.0).mean())
        rows.append(row)
        print(
            "| " + " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()) + " |", flush=True
        )
    return rows


if __name__ == "__main__":
    print("| detector | AP val | AP50 val | score - precision x IoU | AP id | AP50 id |\n|---|---|---|---|---|---|")
    (workspace("shapes") / "table.json").write_text(json.dumps(table(), indent=1))
