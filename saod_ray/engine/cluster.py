"""Connections to Ray: a private cluster on this machine that ends with the work, or one that runs already."""

from __future__ import annotations

import fcntl
import importlib
import ipaddress
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from saod_ray.errors import SaodError, os_reason

# set before ray is imported: no usage reports, no chatter, no deprecation warnings
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # Ray warns about every actor of Ray Data
    "RAY_TRAIN_V2_ENABLED": "1",
    # Ray ends idle processes after a second, and a new one takes two seconds before it decodes
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

# what Ray prints for every process that dies; the engine counts them and prints one line instead
PROCESS_DIED = ("A worker died or was killed while executing", "There are infinite retries remaining")
SESSION, LOCK = "saod-session-", ".lock"  # prefix of private clusters' folders, and the lock of one in use
MAX_BASE = 14  # characters of the path of their parent folder: socket paths have a limit
CONNECT_SECONDS = 10.0  # until an address counts as unreachable; Ray itself tries for minutes
logger = logging.getLogger(__name__)


@contextmanager
def connected(address: str | None, cpus: int | None = None, gpus: int | None = None) -> Iterator[None]:
    """Connect to Ray. Without an address, start a private cluster that listens on loopback alone and ends with the work.

    Meanwhile SIGTERM ends the work as Ctrl-C does, and Ray prints nothing on stdout. Raises SaodError if Ray is not
    installed or cannot be reached.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if address is not None:
        check_address(address)
    try:
        import ray
    except ImportError as error:
        raise SaodError("Ray is not installed: `pip install 'saod-ray[ray]'`.") from error
    options: dict[str, Any] = {} if address else {"num_cpus": cpus, "num_gpus": gpus, "include_dashboard": False}
    with ExitStack() as stack:
        if address is None:
            options["_temp_dir"] = stack.enter_context(_session_folder())
            stack.enter_context(_on_loopback())
        stack.enter_context(_stdout_protected())
        may_set = stack.enter_context(_signals_restored())
        try:
            with _stderr_hidden():
                ray.init(address=address or "local", logging_level=logging.ERROR, log_to_driver=False, **options)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise _unreachable(address or "local", error) from error
        try:
            logger.info("Connected to %s.", f"Ray at {address}" if address else "a private Ray cluster")
            if may_set:  # Ray's own handler raises SystemExit, which gets lost where it interrupts Ray's own code
                signal.signal(signal.SIGTERM, signal.default_int_handler)
            yield
        finally:
            ray.shutdown()


def check_address(address: str) -> None:
    """Raise SaodError if nothing listens at an address, long before Ray gives up.

    Only addresses with host and port are tried: `auto` is resolved by Ray.
    """
    location = os.environ.get("RAY_ADDRESS", "auto") if address == "auto" else address
    scheme, _, rest = location.rpartition("://")
    if location in ("auto", "local") or scheme not in ("", "ray"):
        return
    host, colon, port = rest.partition("/")[0].rpartition(":")
    if not colon or not port.isdecimal():
        raise SaodError(
            f"'{address}' is not the address of a Ray cluster: give --address auto, HOST:PORT or ray://HOST:PORT."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str, error: Exception) -> SaodError:
    reason = "no answer" if isinstance(error, TimeoutError) else os_reason(error)
    return SaodError(f"Ray cannot be reached at '{address}' ({reason}): start the cluster, or leave --address out.")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    inner = getattr(address, "ipv4_mapped", None)  # ::ffff:127.0.0.1
    return (inner or address).is_loopback


def cluster_totals() -> tuple[float, float]:
    """CPUs and GPUs of the connected cluster, as it is now."""
    import ray

    total = ray.cluster_resources()
    return total.get("CPU", 0.0), total.get("GPU", 0.0)


@contextmanager
def _session_folder() -> Iterator[str]:
    """A folder for Ray's sockets, logs and spilled objects. Only this user can enter it, and it is removed afterwards.

    Folders that killed processes left, whose locks are free, are removed first.
    """
    base = Path(tempfile.gettempdir())
    if len(str(base)) > MAX_BASE:
        base = Path("/tmp")
    for leftover in base.glob(f"{SESSION}*"):
        _remove_session(leftover)
    folder = Path(tempfile.mkdtemp(prefix=SESSION, dir=base))  # with mode 0700
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield str(folder / "ray")  # Ray lets everybody enter this one
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_session(folder: Path) -> None:
    """Remove a session folder of this user whose process is gone."""
    with suppress(OSError):  # it belongs to another user, is being created, or is in use
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a new cluster use 127.0.0.1 alone.

    Ray would replace 127.0.0.1 by the machine's address and listen on every interface, except on operating systems where
    it does not support clusters. This constant makes it believe that it runs on one of those.
    """
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _stdout_protected() -> Iterator[None]:
    """Redirect what Ray prints on stdout to stderr, without the page that it prints for every process that dies."""
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
    """Hide what Ray's C++ code writes to stderr while it connects, at any log level."""
    sys.stderr.flush()
    original = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
        os.close(nowhere)


@contextmanager
def _signals_restored() -> Iterator[bool]:
    """Restore the handler of SIGTERM afterwards; yields whether this thread may set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield True
    finally:
        signal.signal(signal.SIGTERM, before)
