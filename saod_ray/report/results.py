"""results.json: every figure, full precision, sorted keys, the same bytes for the same inputs."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Any

from saod_ray import __version__
from saod_ray.config import ScoreSettings
from saod_ray.score import bootstrap
from saod_ray.score.benchmark import Scored
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.store import seals
from saod_ray.store.store import Store

PACKAGES = ("numba", "numpy", "polars", "pyarrow", "scipy")


def results(
    store: Store,
    settings: ScoreSettings,
    scored: dict[str, Scored],
    partial: bool,
    resamples: Bootstrap | None = None,
) -> dict[str, Any]:
    """The value of results.json; intervals are in it where there are resamples, and nothing else is then other."""
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
            "detections": {name: origins(store, name) for name in scored},
        },
        "detectors": {name: each.figures for name, each in scored.items()},
    }
    if partial:
        value["partial"] = True
    if resamples is not None:
        value["bootstrap"] = resampling(resamples)
        for name, each in _intervals(scored).items():
            value["detectors"][name] = {**scored[name].figures, "intervals": each}
    return seals.sealed(value)


def resampling(resamples: Bootstrap) -> dict[str, Any]:
    """How intervals were made."""
    return {**resamples._asdict(), "level": bootstrap.LEVEL}


def _intervals(scored: dict[str, Scored]) -> dict[str, dict[str, Any]]:
    found = {name: each.replicates for name, each in scored.items() if each.replicates is not None}
    # a detector without a DAQ has no rank, even if some resamples (in which IDQ is 0) have one
    ranks = bootstrap.rank_intervals({name: found[name] for name in found if scored[name].figures["daq"] is not None})
    each = {name: bootstrap.intervals(scored[name].figures, values) for name, values in found.items()}
    return {name: {**each[name], "rank": ranks.get(name)} for name in found}


def origins(store: Store, detector: str) -> dict[str, dict[str, str]]:
    """What each split's detections were made from."""
    return {split: seals.origins(store, detector, split) for split in store.splits}


def encoded(value: dict[str, Any]) -> bytes:
    """JSON text that a person can read and a byte comparison can trust; NaN cannot get in."""
    return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()
