"""Domain shift: figures by severity, and by corruption and severity, which only a recorded draw makes possible."""

from __future__ import annotations

from typing import Any

import numpy as np

from saod_ray.report.judged import Judged
from saod_ray.score import ap
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.daq import quality

FIGURES = ("laece", "lrp", "lrp_loc", "lrp_fp", "lrp_fn", "idq")


def severity_of(split: str) -> int:
    """How strongly a split's images are corrupted.

    >>> severity_of("id"), severity_of("id-c5")
    (0, 5)
    """
    return int(split.removeprefix("id-c")) if split.startswith("id-c") else 0


def severity(each: Judged, benchmark: Benchmark) -> dict[str, Any]:
    """The figures of one severity; results.json has those of all severities together."""
    return {"split": each.name, **_figures(each, benchmark, np.ones(len(each.accepted), bool))}


def corruptions(each: Judged, benchmark: Benchmark, drawn: list[str | None]) -> list[dict[str, Any]]:
    """The figures over the images that drew each corruption; nothing where no draw is recorded (an import)."""
    names = np.array([name or "" for name in drawn], object)
    table = []
    for name in sorted({name for name in drawn if name}):
        table.append({"corruption": name, **_figures(each, benchmark, names == name)})
    return table


def _figures(each: Judged, benchmark: Benchmark, chosen: np.ndarray) -> dict[str, Any]:
    official = benchmark.settings.conventions == "official"
    found = quality(each.sums(benchmark, chosen), benchmark.settings)
    accuracy = ap.accuracy(each.raw.on_images(chosen), benchmark.objects["id"], zero_id_misses=official)
    return {
        "severity": severity_of(each.name),
        "images": int(chosen.sum()),
        "accepted": float(each.accepted[chosen].mean()) if chosen.any() else None,
        "ap": accuracy["ap"],
        **{name: found[name] for name in FIGURES},
    }
