"""A Ray cluster for as long as it is needed: one of our own on this machine, or one that runs already."""

from __future__ import annotations

import fcntl
import importlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from saod_ray.errors import SaodError

# before ray is imported: quiet, nothing reported to anyone, and no warnings about its own past
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # Ray warns of every actor of Ray Data
    "RAY_TRAIN_V2_ENABLED": "1",
    # Ray ends idle processes after a second, and a new one that decodes takes two seconds to begin
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

# what Ray says of every process that dies; the engine counts them, and says it in a line
PROCESS_DIED = ("A worker died or was killed while executing", "There are infinite retries remaining")
SESSION, LOCK = "saod-session-", ".lock"  # folders of private clusters, and what tells that one is in use
LONGEST_BASE = 14  # bytes of the folder that they are made in


@contextmanager
def connected(address: str | None, cpus: int | None = None, gpus: int | None = None) -> Iterator[None]:
    """Ray, connected. Without an address a private cluster listens on loopback alone and ends with the work.

    SIGTERM ends the work as Ctrl-C does, and nothing that Ray prints comes among what is printed on stdout.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise SaodError("Ray is not installed: `pip install 'saod-ray[ray]'`.") from None
    own: dict[str, Any] = {} if address else {"num_cpus": cpus, "num_gpus": gpus, "include_dashboard": False}
    with ExitStack() as stack:
        if address is None:
            own["_temp_dir"] = stack.enter_context(_session_folder())
            stack.enter_context(_on_loopback())
        stack.enter_context(_stdout_kept())
        may_set = stack.enter_context(_signals_kept())
        try:
            with _stderr_hidden():
                ray.init(address=address or "local", logging_level=logging.ERROR, log_to_driver=False, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise SaodError(
                f"Ray cannot be reached at '{address or 'local'}' ({error}): start the cluster, or leave --address out."
            ) from None
        try:
            if may_set:  # Ray's own handler raises SystemExit, which is lost where Ray's own code is interrupted by it
                signal.signal(signal.SIGTERM, signal.default_int_handler)
            yield
        finally:
            ray.shutdown()


def cluster_totals() -> tuple[float, float]:
    """CPUs and GPUs of the connected cluster, as it is now."""
    import ray

    total = ray.cluster_resources()
    return total.get("CPU", 0.0), total.get("GPU", 0.0)


@contextmanager
def _session_folder() -> Iterator[str]:
    """A folder for Ray's sockets, logs and spilled objects that nobody else can enter, and that goes with the cluster.

    What a killed process left is removed by the next one: its lock is free then.
    """
    base = Path(tempfile.gettempdir())
    if len(str(base)) > LONGEST_BASE:
        base = Path("/tmp")
    for left in base.glob(f"{SESSION}*"):
        _remove_session(left)
    folder = Path(tempfile.mkdtemp(prefix=SESSION, dir=base))  # with mode 0700
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield str(folder / "ray")  # which Ray opens to everybody
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_session(folder: Path) -> None:
    """Remove a session folder of ours whose process is gone."""
    with suppress(OSError):  # it is another user's, being made, or in use
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Ray takes the machine's own address where 127.0.0.1 is asked for, and listens on every interface; unless it is told
    that there are no clusters, which it otherwise knows from the operating system."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _stdout_kept() -> Iterator[None]:
    """Ray prints to stdout, whatever it is told; here to stderr, and without its page about every process that dies."""
    worker: Any = importlib.import_module("ray._private.worker")
    before = worker.print_to_stdstream

    def print_to_stderr(data: dict[str, Any], **options: Any) -> None:
        lines = [line for line in data.get("lines", ()) if not any(phrase in line for phrase in PROCESS_DIED)]
        if lines:
            before({**data, "lines": lines, "is_err": True}, **options)

    worker.print_to_stdstream = print_to_stderr
    try:
        yield
    finally:
        worker.print_to_stdstream = before


@contextmanager
def _stderr_hidden() -> Iterator[None]:
    """Ray's C++ writes to stderr while it connects, whatever its log level."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _signals_kept() -> Iterator[bool]:
    """SIGTERM does afterwards what it did before; gives whether this thread may say what it does."""
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield True
    finally:
        signal.signal(signal.SIGTERM, before)
