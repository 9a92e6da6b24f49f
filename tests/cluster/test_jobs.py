"""Submit jobs to a real head on loopback."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from heads import end, free_port, ray

from saod_ray.data import shapes

pytestmark = pytest.mark.slow

JOBS = Path(__file__).parents[2] / "jobs"
BIN = str(Path(sys.executable).parent)
START_TIMEOUT = 120.0  # seconds for a head to start; a busy machine needs long
DETECTOR = '''
import numpy as np

from saod_ray.detect.detections import Detections


class Middle:
    """Finds one thing, in the middle of every image."""

    def __init__(self, spec, checkpoint, device, batch_size):
        self.spec = spec

    def detect(self, images):
        return [self._one(*image.shape[:2], float(image.mean())) for image in images]

    def _one(self, height, width, mean):
        box = np.array([[width / 4, height / 4, 3 * width / 4, 3 * height / 4]], np.float32)
        return Detections(np.zeros(1, np.int16), box, np.array([mean / 256], np.float32))
'''


class Head(NamedTuple):
    """A cluster: environment and address for processes, its folder, and the address for jobs."""

    env: dict[str, str]
    gcs: str
    temp: str
    dashboard: str


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    # Ray's sockets have long names, so the folder needs a short one. `ray start` replaces 127.0.0.1 with the machine's
    # public address, but not 127.0.0.2
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as temp:
        port, dashboard, agent = free_port(), free_port(), free_port()
        env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        env |= {"PATH": f"{BIN}:{env['PATH']}", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        env |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
        process = ray(
            "start", "--head", "--block", f"--port={port}", f"--temp-dir={temp}", "--num-cpus=2", "--num-gpus=0",
            "--node-ip-address=127.0.0.2", "--include-dashboard=true", "--dashboard-host=127.0.0.1",
            f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}", "--object-store-memory=200000000",
            env=env,
        )  # fmt: skip
        try:
            started = Head(env, f"127.0.0.2:{port}", temp, f"http://127.0.0.1:{dashboard}")
            wait_until_up(process, started)
            yield started
        finally:
            end(process)


def wait_until_up(process: subprocess.Popen[bytes], head: Head) -> None:
    until = time.monotonic() + START_TIMEOUT
    while time.monotonic() < until and process.poll() is None:
        if cli(head, "job", "list", f"--address={head.dashboard}").returncode == 0:
            return
        time.sleep(1)
    logs = "\n".join(path.read_text()[-2000:] for path in Path(head.temp).glob("session_*/logs/dashboard*.log"))
    raise AssertionError(f"The head did not start.\n{logs}")


def cli(head: Head, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ray.scripts.scripts", *args]
    return subprocess.run(command, env=head.env, capture_output=True, text=True, timeout=600)


def submit(head: Head, *entry: str, **env_vars: str) -> subprocess.CompletedProcess[str]:
    return cli(
        head, "job", "submit", f"--address={head.dashboard}", f"--working-dir={JOBS}",
        f"--runtime-env-json={json.dumps({'env_vars': env_vars})}", "--", *entry,
    )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and a detector that needs no weights."""
    folder = tmp_path_factory.mktemp("jobs")
    shapes.make(str(folder / "data"), shapes.Recipe(0, 0.01), lambda done, total: None)
    (folder / "middle_detector.py").write_text(DETECTOR)
    (folder / "detectors.toml").write_text('[middle]\nbackend = "middle_detector:Middle"\n')
    return folder


def options(place: Path) -> list[str]:
    return [f"--detectors={place / 'detectors.toml'}", f"--data={place / 'data'}", f"--store={place / 'store'}"]


def test_a_run_is_submitted_verified_and_scored(head: Head, place: Path) -> None:
    done = submit(head, "python", "run.py", *options(place), "--unit-images=8")
    assert done.returncode == 0, done.stdout + done.stderr
    verified = subprocess.run([sys.executable, "-m", "saod_ray", "verify", str(place / "store")], capture_output=True)
    assert verified.returncode == 0, verified.stderr
    results = json.loads((place / "store" / "results.json").read_text())
    assert results["detectors"].keys() == {"middle"}
    scored = submit(head, "python", "score.py", str(place / "store"), "--tau=0.5", "--json")
    assert scored.returncode == 0, scored.stdout + scored.stderr
    assert '"tau": 0.5' in scored.stdout
    assert json.loads((place / "store" / "results.json").read_text()) != results


def test_a_mistake_fails_the_job_with_its_sentence(head: Head, place: Path) -> None:
    done = submit(head, "python", "run.py", "--use-case=shaeps", *options(place))
    assert done.returncode == 1
    assert "saod-ray: " in done.stdout + done.stderr and "shaeps" in done.stdout + done.stderr


def test_a_run_waits_for_the_first_gpu_node(head: Head, place: Path) -> None:
    """As on a cluster that scales from zero: the node joins after the job has begun. Its GPU is declared, not real."""
    entry = ["python", "run.py", *options(place)[:-1], f"--store={place / 'later'}", "--limit=2", "--gpus-per-actor=1"]
    sent = cli(
        head, "job", "submit", f"--address={head.dashboard}", f"--working-dir={JOBS}", "--no-wait",
        "--submission-id=later", "--", *entry,
    )  # fmt: skip
    assert sent.returncode == 0, sent.stdout + sent.stderr
    node = ray(
        "start", "--block", f"--address={head.gcs}", "--num-cpus=2", "--num-gpus=1", "--node-ip-address=127.0.0.3",
        f"--temp-dir={head.temp}/node", f"--dashboard-agent-listen-port={free_port()}", "--object-store-memory=200000000", env=head.env,
    )  # fmt: skip
    try:
        followed = cli(head, "job", "logs", f"--address={head.dashboard}", "--follow", "later")
        assert "succeeded" in followed.stdout + followed.stderr, followed.stdout + followed.stderr
    finally:
        end(node)
    assert (place / "later" / "results.json").exists()
