"""Ray clusters as processes of their own on this machine: started, and ended with all that they started."""

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
    """A process group of its own, so that all it starts can be ended with it."""
    command = [sys.executable, "-m", "ray.scripts.scripts", *args]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started; `ray start --block` needs a while for it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(15)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
