"""Commands that start Ray, and every socket that they and their processes listen on while they run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from saod_ray.config import ScoreSettings
from saod_ray.detect import registry
from saod_ray.score.self_aware import Identity, SelfAware

CLASSES = ("ball", "crate", "cone", "ring", "star")
STILL = '''
import time
import numpy as np
from saod_ray.detect.detections import Detections

class Still:
    """Finds the same box in every image, slowly."""

    def __init__(self, spec, checkpoint, device, batch_size, seconds=0.0):
        self.spec, self._seconds = spec, seconds

    def detect(self, images):
        time.sleep(self._seconds)
        box, score = np.array([[1, 1, 9, 9]], np.float32), np.array([0.5], np.float32)
        return [Detections(np.zeros(1, np.int16), box, score) for _ in images]
'''


class Listener(NamedTuple):
    """A listening socket, and the process that has it."""

    host: str
    port: int
    process: str


def still_detector(folder: Path, seconds: float = 0.0) -> list[str]:
    """Write a detector and what makes it self-aware; returns the options that name both."""
    (folder / "still.py").write_text(STILL)
    (folder / "mine.toml").write_text(f'[still]\nbackend = "still:Still"\noptions = {{ seconds = {seconds} }}\n')
    (entry,) = registry.choose("shapes", str(folder / "mine.toml"))
    whose = Identity("still", "shapes", CLASSES, registry.fingerprint(entry, CLASSES, folder), "run")
    aware = SelfAware(ScoreSettings(), 0.9, np.zeros(len(CLASSES)), [None] * len(CLASSES), identity=whose)
    aware.save(folder / "still.json")
    return ["--selfaware", f"{folder}/still.json", "--detector", f"{folder}/mine.toml", "--weights", str(folder)]


@contextmanager
def started(*args: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that runs meanwhile, and is ended afterwards if it is still there."""
    command = [sys.executable, "-m", "saod_ray", *map(str, args)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **pipes, **options)
    try:
        yield process
        process.terminate()
        process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait()


def listeners(pid: int) -> set[Listener]:
    """Where a process and all its children listen now."""
    sockets: set[Listener] = set()
    with suppress(psutil.NoSuchProcess):
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                name = " ".join(process.cmdline())[:60]
                for connection in process.net_connections("inet"):
                    if connection.status == psutil.CONN_LISTEN:
                        sockets.add(Listener(connection.laddr.ip, connection.laddr.port, name))
    return sockets


def listeners_until_end(process: subprocess.Popen[str], patience: float) -> set[Listener]:
    """Every socket that a command listened on until it ended."""
    sockets: set[Listener] = set()
    until = time.monotonic() + patience
    while process.poll() is None:
        assert time.monotonic() < until, "the command does not end"
        sockets |= listeners(process.pid)
        time.sleep(0.2)
    return sockets


def digest(token: str) -> str:
    """What the gate keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
