"""Measure child processes: CPU-seconds, wall seconds and peak memory, including start-up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """CPU-seconds, wall seconds, and peak memory in GiB."""

    cpu: float
    wall: float
    gib: float

    def __str__(self) -> str:
        return f"{self.cpu:7.2f} CPU-s  {self.wall:7.2f} s  {self.gib:5.2f} GiB"


def cost_of(*command: object, checkout: Path | None = None) -> Cost:
    """Run a command to its end, optionally with the code of another checkout. Output is shown only if it fails."""
    began = time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(checkout)} if checkout is not None else None
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=checkout, env=env
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed:\n{output.decode()}")
    return Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - began, usage.ru_maxrss / 2**20)


def saod_ray(*args: object, checkout: Path | None = None) -> Cost:
    return cost_of(sys.executable, "-m", "saod_ray", *args, checkout=checkout)


def python(code: str, *args: object) -> Cost:
    return cost_of(sys.executable, "-c", code, *args)


def workspace(name: str) -> Path:
    """The folder in which a benchmark keeps generated data for later runs."""
    return Path("runs") / "bench" / name
