"""Load on `saod-ray serve` against a bare loop over the same detector: python -m benchmarks.serve [--clients 1,8,32].

The loop is one process that reads, decodes and detects the same files in sequence, without HTTP and without Ray. It runs
right before and right after each measurement, which is compared with the mean of the two. If they differ much, the machine
was busy, and the line is not reliable. Latencies are measured by the clients, without start-up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from threading import local
from typing import Any

import numpy as np

from benchmarks.measure import saod_ray, workspace
from saod_ray.predict.predictor import PredictorConfig, predict_files
from saod_ray.score.self_aware import SelfAware

WARM = 8  # requests before the clock starts
HEADERS = {"Content-Type": "application/octet-stream"}


def fitted(detector: str) -> tuple[Path, list[str]]:
    """A self-aware detector of shapes, and the image files of id. The first call runs the detector on 100 images per split."""
    data, store = workspace("shapes"), workspace("serve")
    file = store / "selfaware" / f"{detector}.json"
    if not file.exists():
        saod_ray("run", "--detectors", detector, "--limit", 100, "--store", store, "--data", data)
    return file, sorted(str(path) for path in (data / "shapes" / "id").iterdir())


def bare_loop(config: PredictorConfig, files: list[str]) -> float:
    """Images per second of a loop in this process."""
    outcomes = predict_files(config, files, draw=False)
    list(islice(outcomes, WARM))
    began = time.perf_counter()
    return len(list(outcomes)) / (time.perf_counter() - began)


class Clients:
    """`count` connections, each of which sends the next request as soon as the last one is answered."""

    def __init__(self, url: str, count: int) -> None:
        self._address, self._count, self._thread_data = url.removeprefix("http://"), count, local()

    def ask(self, body: bytes) -> float:
        """Send one request; return the seconds until the answer arrived."""
        if not hasattr(self._thread_data, "wire"):
            self._thread_data.wire = HTTPConnection(self._address, timeout=120)
        began = time.perf_counter()
        self._thread_data.wire.request("POST", "/predict", body, HEADERS)
        answer = self._thread_data.wire.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {text.decode()}")
        return time.perf_counter() - began

    def load(self, bodies: list[bytes]) -> tuple[float, np.ndarray]:
        """Requests per second, and the latency of each in seconds."""
        with ThreadPoolExecutor(self._count) as pool:
            list(pool.map(self.ask, bodies[:WARM]))
            began = time.perf_counter()
            seconds = np.array(list(pool.map(self.ask, bodies)))
            return len(bodies) / (time.perf_counter() - began), seconds


def measure(options: Any, file: Path, files: list[str], wait: float) -> None:
    """Start the server, measure it with an increasing number of clients, and stop it."""
    config = PredictorConfig.from_self_aware(SelfAware.load(file))
    bodies = [Path(name).read_bytes() for name in files]
    command = [sys.executable, "-m", "saod_ray", "serve", "--selfaware", str(file), "--port", "0"]
    command += ["--replicas", str(options.replicas), "--wait-ms", str(wait), "--batch-size", str(options.batch_size)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = server.stdout.readline().partition(" answers at ")[2].partition(": POST")[0]
        for clients in map(int, options.clients.split(",")):
            before = bare_loop(config, files)
            rate, seconds = Clients(url, clients).load(bodies)
            after = bare_loop(config, files)
            p50, p95, p99 = np.percentile(seconds, [50, 95, 99]) * 1000
            ratio = 2 * rate / (before + after)
            print(
                f"{wait:7.0f} {clients:8d} {rate:8.1f}/s {p50:8.1f} {p95:8.1f} {p99:8.1f} {before:8.1f} {after:8.1f} {ratio:6.2f}",
                flush=True,
            )
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    """Print requests per second, latencies and the ratio to the bare loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--detector", default="atss")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--wait-ms", default="0,10")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=1)
    options = parser.parse_args()
    file, files = fitted(options.detector)
    chosen = [files[k % len(files)] for k in range(options.requests)]
    print(
        f"{options.detector}, {options.requests} requests, {options.replicas} replicas, batches of {options.batch_size}"
    )
    print("wait ms  clients  requests   p50 ms   p95 ms   p99 ms   loop/s    after  ratio")
    for wait in map(float, options.wait_ms.split(",")):
        measure(options, file, chosen, wait)


if __name__ == "__main__":
    main()
