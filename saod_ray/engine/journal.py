"""The record of a run in the store: run.json with rates and counts, and a log. No result depends on them."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import threading
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
from saod_ray.files import Folder
from saod_ray.store.store import Store
from saod_ray.versions import package_versions

if TYPE_CHECKING:
    from saod_ray.engine.run import RunStatistics
    from saod_ray.engine.workers import Receipt

PACKAGES = ("ray", "torch", "mmdet", "numpy", "opencv-python", "pyarrow", "polars")
WRITE_INTERVAL = 5.0  # seconds between versions of run.json, and of the log in an object store
logger = logging.getLogger(__name__)


class RunLog:
    """A log file in a store.

    On disk every line is appended at once, so that a SIGKILL loses none. An object store cannot append: there `upload`
    writes the whole file.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder, self._name = folder, name
        self._lines: list[str] = []  # not written yet; in an object store all of them
        self._lock = threading.RLock()  # a signal handler may log while the main thread does

    def append(self, line: str) -> None:
        """Add a line. A full disk does not end the run: the line is written together with a later one."""
        with self._lock:
            self._lines.append(line)
            if self._folder.is_local:
                pending, self._lines = self._lines, []
                try:
                    self._append_to_disk(pending)
                except OSError:
                    self._lines = [*pending, *self._lines]

    def _append_to_disk(self, lines: list[str]) -> None:
        path = Path(self._folder.path(self._name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def upload(self) -> None:
        """Write the whole file to an object store."""
        if not self._folder.is_local:
            content = "".join(f"{line}\n" for line in self._lines)
            self._folder.put(self._name, content.encode(), durable=False)


class Journal:
    """Records a run in its store while it proceeds, and when it ends."""

    def __init__(self, store: Store, plan: Plan, settings: dict[str, Any]) -> None:
        self._store, self._plan, self._settings = store, plan, settings
        self._began, self._start = datetime.now(UTC), time.monotonic()
        self._written = float("-inf")
        self._stages: dict[str, float] = {}
        self._totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._commit = _commit()
        self._command_args = self._merged_command_args()
        self.statistics: RunStatistics | None = None
        self._log = RunLog(store.folder, f"log/{self._began:%Y%m%d-%H%M%S-%f}.log")
        options = json.dumps(settings, sort_keys=True, default=str)
        self._log.append(f"{self._began:%Y-%m-%d %H:%M:%S} begins: {options}")

    def note(self, receipt: Receipt) -> None:
        """Count and log a committed shard."""
        sums = self._totals[receipt.detector]
        for name in ("images", "empty", "failed", "detections", "seconds"):
            sums[name] += getattr(receipt, name)
        unit = f"{receipt.unit.split} {receipt.unit.name}"
        self.log(
            f"{receipt.detector} {unit}: {receipt.images} images, {receipt.empty} empty, {receipt.failed} failed, "
            f"{receipt.detections} detections, {receipt.seconds:.2f} s"
        )

    def log(self, message: str) -> None:
        """Add a line to the log, and update run.json from time to time."""
        self._append(message)
        if time.monotonic() - self._written > WRITE_INTERVAL:
            self._write("running")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; an exception that ends it is recorded."""
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
        """Log the outcome, and write run.json for the last time."""
        self._append(outcome)
        self._write(outcome)

    def _append(self, message: str) -> None:
        logger.debug(message)
        self._log.append(f"{time.monotonic() - self._start:9.2f} s {message}")

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
        self._log.upload()
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
    """The commit of the running code, if it runs from a repository."""
    root = Path(saod_ray.__file__).resolve().parents[1]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return process.stdout.strip() or None if process.returncode == 0 else None
