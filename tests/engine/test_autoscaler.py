"""A cluster that has nothing but a head until a run asks for GPUs, and nothing again when it is over."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from heads import end, free_port, ray
from toy_runs import tiny

from saod_ray.engine.cluster import QUIET

pytestmark = pytest.mark.slow
PATIENCE = 120.0  # seconds
HEAD = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"
PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"


def scaling(address: str) -> dict[str, object]:
    """At most two nodes of one GPU each, that go when they were idle for three seconds."""
    return {
        "cluster_name": "grows",
        "max_workers": 2,
        "upscaling_speed": 10,
        "idle_timeout_minutes": 0.05,
        "provider": {
            "type": "external",
            "module": PROVIDER,
            "gcs_address": address,
            "launch_multiple": True,
            "head_node_id": HEAD,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "gpu": {"resources": {"CPU": 3, "GPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2},
        },
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "initialization_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
        "file_mounts": {},
        "cluster_synced_files": [],
    }


@pytest.fixture
def head() -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a head that listens, and the environment of those who may talk to it."""
    # Ray's sockets have long names, so the folder must have a short one
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as temp:
        port, agent = free_port(), free_port()
        config = Path(temp) / "scaling.json"
        config.write_text(json.dumps(scaling(f"127.0.0.2:{port}")))
        env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | QUIET
        env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        scales = {"RAY_FAKE_CLUSTER": "1", "RAY_enable_autoscaler_v2": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
        scales |= {"RAY_CLOUD_INSTANCE_ID": HEAD, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD}
        process = ray(
            "start", "--head", "--block", f"--port={port}", f"--temp-dir={temp}", "--num-cpus=0", "--num-gpus=0",
            "--node-ip-address=127.0.0.2", "--include-dashboard=false", f"--dashboard-agent-listen-port={agent}",
            f"--autoscaling-config={config}", "--object-store-memory=200000000", env=env | scales,
        )  # fmt: skip
        try:
            wait_until_up(process, port)
            yield f"127.0.0.2:{port}", env
        finally:
            end(process)


def wait_until_up(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.2", port)) == 0:
                return
        time.sleep(0.5)
    raise AssertionError("The head did not come up.")


def test_the_cluster_grows_for_a_run_and_shrinks_after_it(head, tmp_path_factory, tmp_path) -> None:
    address, env = head
    here = Path(__file__).parent
    command = [sys.executable, str(here / "autoscaled.py"), address, tiny(tmp_path_factory), tmp_path / "store"]
    ran = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["before"] == 0 and report["after"] == 0 and report["images"] == 4 * 7
    assert min(report["during"]) >= 1 and max(report["during"]) == 2
