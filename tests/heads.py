"""Start and end Ray clusters as separate processes on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ray(*args: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Run a `ray` command in its own process group, so that `end` reaches everything it starts."""
    command = [sys.executable, "-m", "ray.scripts.scripts", *args]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything it started; `ray start --block` takes a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(15)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
