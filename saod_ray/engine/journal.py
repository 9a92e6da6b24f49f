"""How a run goes: run.json with rates and counts, and a log of every receipt. No result depends on them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import saod_ray
from saod_ray import __version__
from saod_ray.engine.plan import Plan
from saod_ray.store.store import Store
from saod_ray.versions import package_versions

if TYPE_CHECKING:
    from saod_ray.engine.run import RunStatistics
    from saod_ray.engine.workers import Receipt

PACKAGES = ("ray", "torch", "mmdet", "numpy", "opencv-python", "pyarrow", "polars")
WRITE_EVERY = 5.0  # seconds, so that a killed run leaves its record


class Journal:
    """Written into the store while a run proceeds, and when it ends."""

    def __init__(self, store: Store, plan: Plan, settings: dict[str, Any]) -> None:
        self._store, self._plan, self._settings = store, plan, settings
        self._began, self._start = datetime.now(UTC), time.monotonic()
        self._written = float("-inf")
        self._stages: dict[str, float] = {}
        self._totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._lines = [f"{self._began:%Y-%m-%d %H:%M:%S} begins: {json.dumps(settings, sort_keys=True, default=str)}"]
        self._commit = _commit()
        self._command_args = self._merged_command_args()
        self.statistics: RunStatistics | None = None

    def note(self, receipt: Receipt) -> None:
        """A shard was committed."""
        sums = self._totals[receipt.detector]
        for name in ("images", "empty", "failed", "detections", "seconds"):
            sums[name] += getattr(receipt, name)
        unit = f"{receipt.unit.split} {receipt.unit.name}"
        self.log(
            f"{receipt.detector} {unit}: {receipt.images} images, {receipt.empty} empty, {receipt.failed} failed, "
            f"{receipt.detections} detections, {receipt.seconds:.2f} s"
        )

    def log(self, message: str) -> None:
        """Add a line to the log."""
        self._lines.append(f"{time.monotonic() - self._start:9.2f} s {message}")
        if time.monotonic() - self._written > WRITE_EVERY:
            self._write("running")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; what ends the run is recorded."""
        began = time.monotonic()
        self._write("running")
        try:
            yield
        except BaseException as error:
            self._stages[name] = round(time.monotonic() - began, 3)
            self.close(f"ended while {name}: {type(error).__name__}: {error}")
            raise
        self._stages[name] = round(time.monotonic() - began, 3)

    def close(self, outcome: str) -> None:
        """Write both files for the last time."""
        self._lines.append(f"{time.monotonic() - self._start:9.2f} s {outcome}")
        self._write(outcome)

    def _write(self, outcome: str) -> None:
        record = {
            "began": self._began.isoformat(timespec="seconds"),
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
            "outcome": outcome,
            "seconds": round(time.monotonic() - self._start, 3),
            "stages": self._stages,
            "settings": self._settings,
            "typed": self._command_args,
            "units": len(self._plan.units),
            "cached": self._plan.cached,
            "detectors": {name: self._rates(sums) for name, sums in sorted(self._totals.items())},
            "packages": package_versions(PACKAGES) | {"saod-ray": __version__},
            "commit": self._commit,
            **(msgspec.to_builtins(self.statistics) if self.statistics else {}),
        }
        text = json.dumps(record, indent=1, sort_keys=True, default=str)
        self._store.folder.put("run.json", text.encode(), durable=False)
        log = "\n".join([*self._lines, ""])
        self._store.folder.put(f"log/{self._began:%Y%m%d-%H%M%S-%f}.log", log.encode(), durable=False)
        self._written = time.monotonic()

    def _merged_command_args(self) -> dict[str, tuple[str, str]]:
        """Detector → use case and --detectors as typed on the command line, in this run and earlier ones."""
        case, detectors = self._settings.get("use_case"), str(self._settings.get("detectors"))
        file = detectors if detectors.endswith(".toml") else None
        return self._store.last_run().command_args | {
            name: (str(case), file or name) for name in self._plan.missing if case
        }

    def _rates(self, sums: dict[str, float]) -> dict[str, float]:
        seconds = self._stages.get("detecting", time.monotonic() - self._start)
        rates = {
            "images_per_second": round(sums["images"] / seconds, 3) if seconds else 0.0,
            "images_per_second_per_actor": round(sums["images"] / sums["seconds"], 3) if sums["seconds"] else 0.0,
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
