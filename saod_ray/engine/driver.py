"""The driver of a pipeline: it reads messages, reports what the run waits for, and stops on a signal."""

from __future__ import annotations

import pickle
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
import ray.data
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from saod_ray.engine.attempts import AttemptSnapshot
from saod_ray.engine.pipeline import PipelineOptions, WorkerProblem
from saod_ray.errors import SaodError

POLL = 1.0  # seconds between looks at the attempt log
FIRST_WAIT, LATER_WAITS = 30.0, 300.0  # seconds without progress before the first message, and between later ones
STOPPING = "Stopping after the units in flight; press Ctrl-C again to quit now."


def _ignore(*_: Any) -> None:
    """Do nothing."""


@dataclass
class Callbacks:
    """Callbacks of a driver; both are also called from another thread."""

    on_prepared: Callable[[int], None] = _ignore  # the number of images prepared since the last call
    on_message: Callable[[str], None] = _ignore  # what the run waits for, what died, that it stops


class Driver:
    """Iterates the messages of one pipeline."""

    def __init__(self, dataset: ray.data.Dataset, log: Any, options: PipelineOptions, callbacks: Callbacks) -> None:
        self._dataset, self._log, self._options, self._callbacks = dataset, log, options, callbacks
        self._over = threading.Event()
        self._is_stopping = False
        self._last = AttemptSnapshot(0, 0, 0, 0)

    def messages(self) -> Generator[Any, None, None]:
        """The messages that workers yield. Raises SaodError if a worker fails. Close it to end the pipeline."""
        monitor = threading.Thread(target=self._monitor, daemon=True)
        batches: Any = iter(self._dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
        with self._signals():
            monitor.start()
            try:
                for batch in batches:
                    for message in map(pickle.loads, batch["message"].to_pylist()):
                        if isinstance(message, WorkerProblem):
                            raise SaodError(message.sentence)
                        yield message
                if self._is_stopping:  # the units that were left passed through without being begun
                    raise KeyboardInterrupt
            except RayError as error:
                raise self._explained(error) from error
            finally:
                batches.close()  # ends the pipeline, whatever holds on to this frame
                self._over.set()
                monitor.join()
                self._look()

    @property
    def deaths(self) -> int:
        """How many processes ended with a task in hand."""
        return self._last.deaths

    @property
    def workers(self) -> int:
        """How many workers were started."""
        return self._last.workers

    # signals ------------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """On the first SIGINT or SIGTERM let the tasks in hand finish; on the second one end the run at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._is_stopping:
            raise KeyboardInterrupt
        self._is_stopping = True
        self._log.stop.remote()
        self._callbacks.on_message(STOPPING)

    # the monitor --------------------------------------------------------------------------------------------

    def _monitor(self) -> None:
        moved, patience = time.monotonic(), FIRST_WAIT
        while not self._over.wait(POLL):
            before, now = self._last, self._look()
            if self._is_stopping and not now.in_hand:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # ends the wait for messages
                return
            if now != before or now.in_hand:
                moved, patience = time.monotonic(), FIRST_WAIT
            elif time.monotonic() - moved > patience:
                self._callbacks.on_message(self._missing())
                moved, patience = time.monotonic(), LATER_WAITS

    def _look(self) -> AttemptSnapshot:
        """Read the attempt log, and report newly prepared images and deaths."""
        try:
            now: AttemptSnapshot = ray.get(self._log.snapshot.remote(), timeout=10 * POLL)
        except (RayError, GetTimeoutError):
            return self._last
        if now.prepared > self._last.prepared:
            self._callbacks.on_prepared(now.prepared - self._last.prepared)
        if now.deaths > self._last.deaths:
            self._callbacks.on_message(
                f"A process ended with work in hand ({now.deaths} so far): Ray replays the work."
            )
        self._last = now
        return now

    def _missing(self) -> str:
        """A sentence on the resources that the run waits for."""
        request = f"{self._options.actor_cpus:g} CPUs" + (
            f" and {self._options.actor_gpus:g} GPUs" if self._options.actor_gpus else ""
        )
        total, free = ray.cluster_resources(), ray.available_resources()
        counts = ", ".join(f"{free.get(name, 0):g} of {total.get(name, 0):g} {name}s" for name in ("CPU", "GPU"))
        return f"Waiting for the cluster: a detector needs {request} on one node; free are {counts}."

    def _explained(self, error: RayError) -> SaodError:
        """The error that a worker raised, or one about Ray."""
        if isinstance(error, RayTaskError) and isinstance(error.cause, SaodError):
            return SaodError(str(error.cause).splitlines()[0])  # Ray Data adds lines of its own
        reason = " ".join(str(error).split())[:300]
        return SaodError(f"Ray Data ended the run ({type(error).__name__}: {reason}): run the same command to resume.")
