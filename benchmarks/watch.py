"""How benchmarks.stream measures an engine: rates from receipts, and samples of CPU time and of the object store.

An earlier engine is measured with this module too, so it imports nothing of saod_ray.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psutil

SKIPPED = 4  # units at the start that do not count: they were prepared while the actors started
STORE_INTERVAL = 0.25  # seconds between looks at the object store; each costs a millisecond or two
CPU_EVERY = 20  # so many of them: a look at all processes costs ten milliseconds


class Measurement(NamedTuple):
    """Of one way: images per second, CPU-milliseconds per image, and seconds until the first unit is done."""

    rate: float
    cpu_ms: float
    first_unit: float = 0.0
    store_mb: float = 0.0
    driver_ms: float = 0.0  # CPU of the driver per unit

    def __str__(self) -> str:
        more = f"  first unit after {self.first_unit:5.1f} s  {self.store_mb:5.0f} MB" if self.first_unit else ""
        return f"{self.rate:8.1f} images/s {self.cpu_ms:8.1f} CPU-ms per image{more}"


class Watch:
    """Samples the object store and the CPU time of this process and its children, and notes when units are done."""

    def __init__(self, detectors: int) -> None:
        self._detectors, self._left = detectors, dict[Any, int]()
        self.done: list[tuple[float, int]] = []  # when, images
        self.peak = 0.0
        self._spent: dict[int, float] = {}
        self._over, self._lock = threading.Event(), threading.Lock()
        self._sampling = 0.0  # CPU of the sampling thread
        self._at = {"cpu": 0.0, "own": 0.0}

    def on_receipt(self, receipt: Any) -> None:
        """A unit is done when its last detector is."""
        left = self._left.pop(receipt.unit, self._detectors) - 1
        if left:
            self._left[receipt.unit] = left
            return
        self.done.append((time.monotonic(), receipt.images))
        if len(self.done) == SKIPPED:
            self._at = {"cpu": self._cpu(), "own": self._own()}

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        self._began = time.monotonic()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def measurement(self) -> Measurement:
        """From the unit after those skipped to the last."""
        skipped = min(SKIPPED, len(self.done) // 2)
        since = self.done[skipped - 1][0]
        counted = self.done[skipped:]
        images, seconds = sum(images for _, images in counted), counted[-1][0] - since
        return Measurement(
            rate=images / seconds,
            cpu_ms=1e3 * (self._cpu() - self._at["cpu"]) / images,
            first_unit=self.done[0][0] - self._began,
            store_mb=self.peak / 1e6,
            driver_ms=1e3 * (self._own() - self._at["own"]) / len(counted),
        )

    def _own(self) -> float:
        return time.process_time() - self._sampling

    def _sample(self) -> None:
        looks = 0
        while not self._over.wait(STORE_INTERVAL):
            self.peak = max(self.peak, _store_bytes())
            looks += 1
            if looks % CPU_EVERY == 0:
                self._cpu()
            self._sampling = time.thread_time()

    def _cpu(self) -> float:
        """So far, without the sampling; what a process spends between the last look and its end is lost."""
        with self._lock:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    self._spent[process.pid] = sum(process.cpu_times()[:2])
            return sum(self._spent.values()) + self._own()


def _store_bytes() -> float:
    """What the cluster's object store holds; Ray reports it as a resource that is not available."""
    ray: Any = importlib.import_module("ray")
    name = "object_store_memory"
    return float(ray.cluster_resources()[name] - ray.available_resources().get(name, 0))
