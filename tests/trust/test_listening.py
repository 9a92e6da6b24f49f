"""What listens while `serve`, `run` and `train` work, who may ask, and what requests may look like."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import cv2
import numpy as np
import pytest
from conftest import saod_ray
from listening import Listener, digest, listeners, listeners_until_end, started, still_detector

from saod_ray.data.shapes import Recipe, make
from saod_ray.errors import SaodError
from saod_ray.predict import gate

SECRET = "correct-horse-battery-staple"
PATIENCE = 400  # seconds that a command may take


def assert_on_loopback(sockets: set[Listener]) -> None:
    assert sockets, "nothing was seen to listen"
    outside = {listener for listener in sockets if not gate.is_loopback(listener.host)}
    assert not outside, outside


# the gate by itself -----------------------------------------------------------------------------------------------


def test_a_host_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    assert gate.token_digest("127.0.0.1", None) is None
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(SaodError, match="--token-file"):
            gate.token_digest(host, None)
    file = tmp_path / "token"
    for text in ("", "short", "with a space in the middle", "\x00" * 20):
        file.write_text(text)
        with pytest.raises(SaodError, match="does not hold a token"):
            gate.token_digest("0.0.0.0", file)
    with pytest.raises(SaodError, match="cannot be read"):
        gate.token_digest("0.0.0.0", tmp_path)
    file.write_text(SECRET + "\n")
    assert gate.token_digest("0.0.0.0", file) == digest(SECRET)


def test_the_command_refuses_before_anything_starts(tmp_path: Path) -> None:
    run = saod_ray("serve", *still_detector(tmp_path), "--host", "0.0.0.0", "--port", 0)
    assert run.returncode == 1 and "--token-file FILE" in run.stderr and len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "header", [b"", b"Bearer", b"Bearer wrong", SECRET.encode(), b"Basic " + SECRET.encode(), b"\xff"]
)
def test_another_token_is_none(header: bytes) -> None:
    assert not gate.is_authorised(header, digest(SECRET))
    assert gate.is_authorised(b"bearer " + SECRET.encode(), digest(SECRET))
    assert gate.is_authorised(header, None)


async def request(
    app: gate.App, path: str = "/predict", headers: list[Any] | None = None
) -> tuple[int, dict[str, Any]]:
    """The status and JSON that an ASGI application answers."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    await app({"type": "http", "path": path, "headers": headers or []}, receive, send)
    assert dict(sent[0]["headers"])[b"content-type"].startswith(b"application/json")
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def text_app(status: int, text: bytes, kind: bytes = b"text/plain") -> gate.App:
    """An application that answers as Ray Serve does."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": text[:3], "more_body": True})
        await send({"type": "http.response.body", "body": text[3:]})

    return app


@pytest.mark.parametrize("status", [413, 429, 500, 503])
def test_every_answer_is_json(status: int) -> None:
    assert asyncio.run(request(gate.Gate(text_app(status, b"Too bad")))) == (status, {"error": "Too bad"})
    assert asyncio.run(request(gate.Gate(text_app(200, b"success")))) == (200, {"status": "success"})
    same = text_app(status, b'{"error": "x."}', b"application/json")
    assert asyncio.run(request(gate.Gate(same))) == (status, {"error": "x."})


def test_what_raises_is_an_answer_too() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("a secret path")

    status, answer = asyncio.run(request(gate.Gate(app)))
    assert status == 500 and "secret" not in answer["error"]


def test_no_more_requests_at_once_than_the_limit() -> None:
    async def three_requests() -> list[tuple[int, dict[str, Any]]]:
        free = asyncio.Event()
        answer = text_app(200, b"done")

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await free.wait()
            await answer(scope, receive, send)

        app = gate.Gate(slow, max_requests=1)
        first = asyncio.create_task(request(app))
        await asyncio.sleep(0)
        second = await request(app)
        free.set()
        return [await first, second, await request(app)]

    answers = asyncio.run(three_requests())
    assert [status for status, _ in answers] == [200, 503, 200]


# a server ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The process and port of a real `saod-ray serve` with a token."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "token").write_text(SECRET)
    with started("serve", *still_detector(folder), "--port", 0, "--token-file", folder / "token") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " answers at " in line, process.communicate(timeout=60)[1]
        yield process.pid, int(line.partition(": POST")[0].rpartition(":")[2])


def http(port: int, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    message = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, named)
    try:
        with urllib.request.urlopen(message, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def raw(port: int, data: bytes) -> bytes:
    """What is answered to these bytes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        wire.sendall(data)
        return wire.makefile("rb").read()


@pytest.mark.slow
def test_serve_listens_on_loopback_alone(server: tuple[int, int]) -> None:
    sockets = listeners(server[0])
    assert_on_loopback(sockets)
    assert server[1] in {listener.port for listener in sockets}


@pytest.mark.slow
def test_the_token_is_asked_for(server: tuple[int, int]) -> None:
    image = cv2.imencode(".png", np.zeros((20, 20, 3), np.uint8))[1].tobytes()
    port, good = server[1], f"Bearer {SECRET}"
    assert http(port, "/predict", image, Content_Type="image/png", Authorization=good)[0] == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {SECRET}"}):
        for path, body in (("/predict", image), ("/healthz", None), ("/-/routes", None)):
            status, answer = http(port, path, body, Content_Type="image/png", **headers)
            assert status == 401 and "token" in answer["error"]
    assert http(port, "/healthz", None, Authorization=good)[1]["detector"] == "still"
    assert http(port, "/-/healthz") == (200, {"status": "success"})


@pytest.mark.slow
def test_odd_requests_get_json_and_an_end(server: tuple[int, int]) -> None:
    port = server[1]
    line = b"GET /-/healthz HTTP/1.1\r\nHost: x\r\n"
    for status, data in (
        (431, line + b"X: " + b"x" * (gate.MAX_HEADER_BYTES + 10) + b"\r\n\r\n"),
        (431, line + b"X: " + b"x" * (gate.MAX_HEADER_BYTES + 10)),  # and no end
        (431, line + b"X: y\r\n" * gate.MAX_HEADER_BYTES),
        (431, b"GET /" + b"x" * (gate.MAX_HEADER_BYTES + 10)),
        (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not HTTP\r\n\r\n"),
        (408, line),  # and no end
    ):
        answer = raw(port, data)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d" % status), (status, answer[:200])
        assert json.loads(body)["error"].endswith(".")
    assert http(port, "/-/healthz")[0] == 200


@pytest.mark.slow
def test_ray_s_folder_is_private_and_goes_with_the_cluster(tmp_path: Path) -> None:
    from saod_ray.engine.cluster import LOCK, SESSION, _remove_session, connected

    left = tmp_path / f"{SESSION}left"
    (left / "deep").mkdir(parents=True)
    (left / LOCK).touch()
    with connected(None, cpus=1):
        import ray

        folder = Path(ray._private.worker.global_worker.node.get_session_dir_path()).parents[1]
        assert folder.name.startswith(SESSION) and stat.S_IMODE(folder.stat().st_mode) == 0o700
        _remove_session(folder)
        assert folder.exists()  # it is in use
    assert not folder.exists()
    _remove_session(left)
    assert not left.exists()


# other commands ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("listening-data")
    make(str(root), Recipe(0, 0.02), lambda done, total: None, workers=1)
    return root


@pytest.mark.slow
def test_run_listens_on_loopback_alone(data: Path, tmp_path: Path) -> None:
    still_detector(tmp_path, seconds=0.05)
    options = ("--use-case", "shapes", "--data", data, "--detectors", tmp_path / "mine.toml", "--bootstrap", 0)
    with started("run", *options, "--store", tmp_path / "store") as process:
        assert_on_loopback(listeners_until_end(process, PATIENCE))
        assert process.returncode == 0, process.communicate()[1]


@pytest.mark.slow
def test_train_listens_on_loopback_alone(data: Path, tmp_path: Path) -> None:
    options = ("--detector", "atss", "--epochs", 1, "--batch-size", 4, "--limit", 8, "--data", data)
    with started("train", *options, "--weights", tmp_path) as process:
        assert_on_loopback(listeners_until_end(process, PATIENCE))
        assert process.returncode == 0, process.communicate()[1]
