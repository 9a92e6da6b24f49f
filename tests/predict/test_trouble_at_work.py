"""Detectors that end their process or their GPU, and requests that dawdle, on a cluster with as many GPUs as cores."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import cv2
import numpy as np
import pytest
from conftest import saod_ray
from typer.testing import CliRunner

from saod_ray.cli import app
from saod_ray.config import ScoreSettings
from saod_ray.data.images import decode
from saod_ray.data.prepare import ImageRequest, PrepareOptions, prepare
from saod_ray.detect import registry
from saod_ray.engine.cluster import QUIET, connected
from saod_ray.errors import SaodError
from saod_ray.predict.predictor import PredictorConfig
from saod_ray.predict.predictor import predict_files as in_process
from saod_ray.score.self_aware import Identity, SelfAware

pytestmark = pytest.mark.slow
# the engine's toy detector, which also writes down how many images each of its calls had
COUNTED = """
from pathlib import Path

from toys import Toy


class Counted(Toy):
    def __init__(self, *, calls, **options):
        super().__init__(**options)
        self._calls = calls

    def detect(self, images):
        with Path(self._calls).open("a") as out:
            out.write(f"{len(images)}\\n")
        return super().detect(images)
"""
SECONDS = 0.15  # that the served toy takes for an image


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a cluster whose GPUs are only declared."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 2, "include_dashboard": False})
    with connected(cluster.address):
        yield cluster.address
    cluster.shutdown()


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> list[str]:
    folder, rng = tmp_path_factory.mktemp("trouble"), np.random.default_rng(0)
    files = [str(folder / f"{number:02d}.png") for number in range(40)]
    for file in files:
        cv2.imwrite(file, rng.integers(0, 256, (20, 30, 3), np.uint8))
    return files


def content(file: str) -> int:
    """What the toy calls an image."""
    return zlib.crc32(np.ascontiguousarray(decode(Path(file).read_bytes(), file)))


def toy(folder: Path, batch_size: int = 1, **options: Any) -> PredictorConfig:
    """A toy detector in `mine.toml`, and in `mine.json` what makes it self-aware."""
    shutil.copy(Path(__file__).parents[1] / "engine" / "toys.py", folder / "toys.py")
    (folder / "counted.py").write_text(COUNTED)
    toml_options = ", ".join(
        f"{key} = {json.dumps(value)}" for key, value in {"calls": str(folder / "calls"), **options}.items()
    )
    (folder / "mine.toml").write_text(f'[toy]\nbackend = "counted:Counted"\noptions = {{ {toml_options} }}\n')
    classes = ("ball", "crate", "cone", "ring", "star")
    mark = registry.fingerprint(registry.choose("shapes", str(folder / "mine.toml"))[0], classes, folder)
    whose = Identity("toy", "shapes", classes, mark, "run")
    aware = SelfAware(ScoreSettings(), 0.9, np.zeros(len(classes)), [None] * len(classes), identity=whose)
    aware.save(folder / "mine.json")
    return PredictorConfig.from_self_aware(aware, str(folder / "mine.toml"), weights=folder, batch_size=batch_size)


def options(folder: Path) -> list[str]:
    return ["--selfaware", f"{folder}/mine.json", "--detector", f"{folder}/mine.toml", "--weights", str(folder)]


def calls(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "calls").read_text().split()] if (folder / "calls").exists() else []


# predict ----------------------------------------------------------------------------------------------------------


def test_a_process_that_ends_is_one_line_among_the_verdicts_and_batches_stay_small(address, images, tmp_path) -> None:
    """What Ray says of the process is not among them."""
    from saod_ray.engine.attempts import FATAL

    files = images[:9]
    setup = toy(tmp_path, 3, exits=[content(files[8])])
    run = saod_ray("predict", *files, *options(tmp_path), "--json", "--batch-size", 3, "--address", address)
    predictions = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 2 and "(raylet)" not in run.stderr
    assert "A process ended with work in hand (4 so far): Ray replays the work." in run.stderr
    counts = calls(tmp_path)
    # the last image is alone in its unit: twice as any other, twice after it was noted
    assert max(counts) == 3 and sum(counts) == 8 + 4
    assert predictions[8]["error"] == FATAL
    assert predictions[:8] == [outcome.to_json() for outcome in in_process(setup, files[:8], draw=False)]


def test_a_detector_that_cannot_be_built_is_a_sentence(address, images, tmp_path) -> None:
    from saod_ray.predict.batch import predict_batch

    with pytest.raises(SaodError, match="The processes of toy end before they are ready"):
        list(predict_batch(toy(tmp_path, built="exits"), images[:2], draw=False))


def test_sigterm_ends_it_as_ctrl_c_does(address, images, tmp_path) -> None:
    toy(tmp_path, seconds=0.2)
    command = [sys.executable, "-m", "saod_ray", "predict", *images, *options(tmp_path), "--json", "--address", address]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and "To start over, run: saod-ray predict" in errors
    assert 0 < len([json.loads(line) for line in [first, *rest.splitlines()]]) < len(images)


def test_names_need_not_be_utf_8(images, tmp_path) -> None:
    setup = toy(tmp_path)
    name = os.fsdecode(bytes(tmp_path) + b"/caf\xe9.png")
    shutil.copy(images[0], name)
    listed = os.fsencode(name) + b"\n" + os.fsencode(images[1]) + b"\n"
    expected = [outcome.to_json() for outcome in in_process(setup, images[:2], draw=False)]
    for more in (["--json"], []):
        run = CliRunner().invoke(app, ["predict", "-", *options(tmp_path), *more], input=listed)
        assert run.exception is None, run.output
        if more:
            assert [json.loads(line) for line in run.stdout.splitlines()] == [
                expected[0] | {"image": name},
                expected[1],
            ]
        assert "0 failed" in run.stderr


def test_a_name_that_no_file_can_have_is_not_tried_again(monkeypatch) -> None:
    monkeypatch.setattr("saod_ray.data.prepare.FIRST_PAUSE", -1.0)  # no pause can be that long
    (picture,) = prepare(PrepareOptions("/", is_any_path=True), [ImageRequest(0, "a\0b.png")])
    assert picture.error is not None and "embedded null byte" in picture.error


# serve ------------------------------------------------------------------------------------------------------------


class Served(NamedTuple):
    url: str
    folder: Path
    poison: str
    stack: ExitStack


@pytest.fixture(scope="module")
def served(address, images, tmp_path_factory) -> Iterator[Served]:
    """Two images a batch, up to four requests a call; the last image spoils the GPU for the process."""
    from saod_ray.predict.server import RequestLimits, serve_http

    folder = tmp_path_factory.mktemp("served")
    setup = toy(folder, 2, seconds=SECONDS, poisons=[content(images[-1])])
    limits = RequestLimits(10**6, 10**6, gather=4, wait=0.5, arrive=3.0)
    with ExitStack() as stack:
        url = stack.enter_context(serve_http(setup, limits, host="127.0.0.1", port=0, replicas=1, is_private=True))
        yield Served(url, folder, images[-1], stack)


def ask(url: str, file: str | None = None) -> tuple[int, Any]:
    body = Path(file).read_bytes() if file else None
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "image/png"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_requests_in_flight_share_a_call_and_batches_stay_small(served, images) -> None:
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda file: ask(f"{served.url}/predict", file), images[:8]))
    assert [status for status, _ in answers] == [200] * 8
    counts = calls(served.folder)
    assert sum(counts) == 8 and max(counts) == 2


def test_a_body_that_never_ends_is_answered(served) -> None:
    host, _, port = served.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as wire:
        wire.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 1000\r\n\r\nabc")
        answer = wire.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408") and b"took more than 3 s" in answer


def test_a_second_one_on_the_cluster_is_refused(served, tmp_path) -> None:
    from saod_ray.predict.server import APP, RequestLimits, serve_http

    with (
        pytest.raises(SaodError, match=f"'{APP}' application runs on that cluster already"),
        serve_http(toy(tmp_path), RequestLimits(1, 1, 1, 0.0), host="127.0.0.1", port=0, replicas=1, is_private=False),
    ):
        raise AssertionError
    assert ask(f"{served.url}/healthz")[0] == 200


def test_a_replica_whose_gpu_is_spoilt_is_replaced(served, images) -> None:
    files = [*images[:3], served.poison]
    with ThreadPoolExecutor(4) as clients:
        answers = dict(zip(files, clients.map(lambda file: ask(f"{served.url}/predict", file), files), strict=True))
    status, answer = answers[served.poison]
    assert status == 503 and answer["error"].endswith("again in some seconds.")
    assert {status for status, _ in answers.values()} <= {200, 503}
    until = time.monotonic() + 90
    while ask(f"{served.url}/predict", images[0])[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.2)


def test_requests_that_were_taken_on_are_answered_when_it_ends(served, images) -> None:
    """More than Serve would wait for by what it does without being asked."""
    before = len(calls(served.folder))
    with ThreadPoolExecutor(39) as clients:
        answers = [clients.submit(ask, f"{served.url}/predict", file) for file in images[:39]]
        while len(calls(served.folder)) < before + 3:
            time.sleep(0.05)
        time.sleep(1.0)  # the others are on their way
        served.stack.close()
    assert [answer.result()[0] for answer in answers] == [200] * 39


def test_serve_stays_on_a_cluster_and_where_it_listens(served, address, tmp_path) -> None:
    from saod_ray.predict.server import RequestLimits, serve_http

    with (
        pytest.raises(
            SaodError, match=f"Ray Serve already listens on {served.url.removeprefix('http://')} of that cluster"
        ),
        serve_http(toy(tmp_path), RequestLimits(1, 1, 1, 0.0), host="127.0.0.1", port=1, replicas=1, is_private=False),
    ):
        raise AssertionError
