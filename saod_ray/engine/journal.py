"""How a run went: run.json with figures, and a log of every receipt, both in the store. No result depends on them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import saod_ray
from saod_ray import __version__
from saod_ray.engine.plan import Plan
from saod_ray.engine.workers import Receipt
from saod_ray.store.store import Store

PACKAGES = ("ray", "torch", "mmdet", "numpy", "opencv-python", "pyarrow", "polars")


class Journal:
    """Kept in memory while a run lasts, and written when it ends, however that is short of a kill."""

    def __init__(self, store: Store, made: Plan, settings: dict[str, Any]) -> None:
        self._store, self._made, self._settings = store, made, settings
        self._began, self._start = datetime.now(UTC), time.monotonic()
        self._stages: dict[str, float] = {}
        self._totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._lines = [f"{self._began:%Y-%m-%d %H:%M:%S} begins: {json.dumps(settings, sort_keys=True, default=str)}"]
        self.facts: dict[str, Any] = {}

    def note(self, receipt: Receipt) -> None:
        """A shard was committed."""
        sums = self._totals[receipt.detector]
        for name in ("images", "empty", "failed", "detections", "seconds"):
            sums[name] += getattr(receipt, name)
        unit = f"{receipt.unit.split} {receipt.unit.name}"
        self._lines.append(
            f"{time.monotonic() - self._start:9.2f} s {receipt.detector} {unit}: {receipt.images} images, {receipt.empty} "
            f"empty, {receipt.failed} failed, {receipt.detections} detections, {receipt.seconds:.2f} s"
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; what ends the run is written down before it goes on."""
        began = time.monotonic()
        try:
            yield
        except BaseException as error:
            self._stages[name] = round(time.monotonic() - began, 3)
            self.close(f"ended while {name}: {type(error).__name__}: {error}")
            raise
        self._stages[name] = round(time.monotonic() - began, 3)

    def close(self, outcome: str) -> None:
        """Write both files."""
        self._lines.append(f"{time.monotonic() - self._start:9.2f} s {outcome}")
        seconds = time.monotonic() - self._start
        record = {
            "began": self._began.isoformat(timespec="seconds"),
            "outcome": outcome,
            "seconds": round(seconds, 3),
            "stages": self._stages,
            "settings": self._settings,
            "typed": self._typed(),
            "units": len(self._made.work),
            "cached": self._made.cached,
            "detectors": {name: self._figures(sums) for name, sums in sorted(self._totals.items())},
            "packages": {name: _version(name) for name in PACKAGES} | {"saod-ray": __version__},
            "commit": _commit(),
            **self.facts,
        }
        self._store.folder.put("run.json", json.dumps(record, indent=1, sort_keys=True, default=str).encode())
        log = "\n".join([*self._lines, ""]).encode()
        self._store.folder.put(f"log/{self._began:%Y%m%d-%H%M%S-%f}.log", log)

    def _typed(self) -> dict[str, tuple[str, str]]:
        """Detector → use case and detectors as somebody typed them, in this run and earlier ones."""
        case, detectors = self._settings.get("use_case"), str(self._settings.get("detectors"))
        file = detectors if detectors.endswith(".toml") else None
        return self._store.last_run().typed | {name: (str(case), file or name) for name in self._made.missing if case}

    def _figures(self, sums: dict[str, float]) -> dict[str, float]:
        stage = self._stages.get("detecting", 0.0)
        rates = {
            "images_a_second": round(sums["images"] / stage, 3) if stage else 0.0,
            "images_a_second_of_an_actor": round(sums["images"] / sums["seconds"], 3) if sums["seconds"] else 0.0,
        }
        return {**{name: round(value, 3) for name, value in sums.items()}, **rates}


def _commit() -> str | None:
    """The commit of the code that runs, where it runs from a repository."""
    root = Path(saod_ray.__file__).resolve().parents[1]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None


def _version(name: str) -> str:
    try:
        return version(name)
    except Exception:  # a package that is not there, or not as a package
        return ""
