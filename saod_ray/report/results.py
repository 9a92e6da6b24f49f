"""results.json: every figure, full precision, sorted keys, the same bytes for the same inputs."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Any

from saod_ray import __version__
from saod_ray.config import ScoreSettings
from saod_ray.score.benchmark import Scored
from saod_ray.store.store import Store

PACKAGES = ("numba", "numpy", "polars", "pyarrow", "scipy")


def results(store: Store, settings: ScoreSettings, scored: dict[str, Scored], partial: bool) -> dict[str, Any]:
    """The value of results.json."""
    known = store.description
    value: dict[str, Any] = {
        "format": 1,
        "use_case": known.name,
        "conventions": settings.conventions,
        "settings": settings.model_dump(mode="json"),
        "provenance": {
            "saod_ray": __version__,
            "python": platform.python_version(),
            "packages": {name: version(name) for name in PACKAGES},
            "use_case": {"version": known.version, "annotations": known.annotations, "manifests": known.manifests},
            "detections": {name: _origins(store, name) for name in scored},
        },
        "detectors": {name: each.figures for name, each in scored.items()},
    }
    if partial:
        value["partial"] = True
    return value


def _origins(store: Store, detector: str) -> dict[str, dict[str, str]]:
    """What each split's detections were made from."""
    return {split: {page.unit: page.origin.sha256 for page in store.pages(detector, split)} for split in store.splits}


def encoded(value: dict[str, Any]) -> bytes:
    """JSON text that a person can read and a byte comparison can trust; NaN cannot get in."""
    return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()
