"""Attack a real `saod-ray serve` with malformed and unauthorised requests."""

from __future__ import annotations

import io
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from benchmarks.mutations import mangled
from saod_ray.config import ScoreSettings
from saod_ray.detect import registry
from saod_ray.score.self_aware import Identity, SelfAware

if TYPE_CHECKING:
    from benchmarks.attack import Attack

SHORT_WAIT, LONG_WAIT = 0.5, 30.0  # seconds to wait for more of an answer
SECRET = "an-attack-does-not-know-this"
CLASSES = ("ball", "crate", "cone", "ring", "star")
DETECTOR = '''
import numpy as np
from saod_ray.detect.detections import Detections

class Still:
    """Finds the same box in every image."""

    def __init__(self, spec, checkpoint, device, batch_size):
        self.spec = spec

    def detect(self, images):
        box, score = np.array([[1, 1, 9, 9]], np.float32), np.array([0.5], np.float32)
        return [Detections(np.zeros(1, np.int16), box, score) for _ in images]
'''


def attack_server(attack: Attack) -> Iterator[str]:
    """Check that every answer is JSON, that nothing is answered without the token, and that the server survives."""
    folder = attack.folder / "server"
    folder.mkdir()
    process = _start_server(folder)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = int(line.partition(": POST")[0].rpartition(":")[2])
        for request, has_token in _requests(attack.rng, len(attack.times(250))):
            yield _outcome(port, request, has_token, attack.notes)
        yield _outcome(port, _post(_image(), SECRET), True, attack.notes, must_answer=True)
    finally:
        process.terminate()
        process.communicate()


def _start_server(folder: Path) -> subprocess.Popen[str]:
    (folder / "still.py").write_text(DETECTOR)
    (folder / "mine.toml").write_text('[still]\nbackend = "still:Still"\n')
    (folder / "token").write_text(SECRET)
    (entry,) = registry.choose("shapes", str(folder / "mine.toml"))
    identity = Identity("still", "shapes", CLASSES, registry.fingerprint(entry, CLASSES, folder), "run")
    aware = SelfAware(ScoreSettings(), 0.9, np.zeros(len(CLASSES)), [None] * len(CLASSES), identity=identity)
    aware.save(folder / "still.json")
    options = ["--selfaware", "still.json", "--detector", "mine.toml", "--token-file", "token", "--port", "0"]
    limits = ["--max-bytes", "200KB", "--max-pixels", "100000"]
    command = [sys.executable, "-m", "saod_ray", "serve", *options, *limits]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _image(side: int = 20) -> bytes:
    sink = io.BytesIO()
    Image.new("RGB", (side, side)).save(sink, "PNG")
    return sink.getvalue()


def _post(body: bytes, token: str, kind: str = "image/png", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = [
        "POST /predict HTTP/1.1",
        "Host: x",
        "Connection: close",
        f"Content-Type: {kind}",
        f"Content-Length: {size}",
    ]
    return "\r\n".join([*lines, f"Authorization: Bearer {token}", "", ""]).encode() + body


def _requests(rng: random.Random, count: int) -> Iterator[tuple[bytes, bool]]:
    """Requests, each with whether it contains the token."""
    form = b'--XX\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n' + _image() + b"\r\n--XX--\r\n"
    kind = "multipart/form-data; boundary=XX"
    for _ in range(count):
        token = SECRET if rng.random() < 0.5 else rng.choice(("", "wrong", SECRET[:-1], SECRET.upper()))
        match rng.randrange(6):
            case 0:
                request = _post(mangled(_image(), rng), token)
            case 1:
                request = _post(mangled(form, rng), token, kind)
            case 2:
                request = _post(
                    _image(rng.choice((20, 400))), token, rng.choice(("", "text/plain", kind, "image/", "é"))
                )
            case 3:
                request = _post(b"x" * rng.choice((0, 10, 300_000)), token)
            case 4:
                request = _post(form * 40, token, kind)
            case _:
                head, blank, body = _post(_image(), token).partition(b"\r\n\r\n")
                request = mangled(head, rng) + blank + body
        yield request, SECRET.encode() in request


def _outcome(port: int, request: bytes, has_token: bool, notes: list[str], must_answer: bool = False) -> str:
    answer = _answer(port, request, LONG_WAIT if must_answer else SHORT_WAIT)
    if not answer:
        return "wrong" if must_answer else "refused"
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        status, is_json = int(head.split()[1]), isinstance(json.loads(_dechunked(head, body)), dict)
    except (ValueError, IndexError):
        status, is_json = 0, False
    is_fine = is_json and (status >= 400 or has_token) and status != 500 and (status == 200 or not must_answer)
    if not is_fine:
        notes.append(f"{request[:120]!r} is answered by {answer[:200]!r}")
        return "wrong"
    return "harmless" if status < 400 else "refused"


def _answer(port: int, request: bytes, seconds: float) -> bytes:
    """Everything that arrives until the server closes the connection or `seconds` pass without data."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as wire:
            wire.sendall(request)
            while part := wire.recv(1 << 16):
                answer += part
    except OSError:  # a timeout, or the server closed the connection
        pass
    return answer


def _dechunked(head: bytes, body: bytes) -> bytes:
    """The body of the first answer, chunked or not."""
    if b"transfer-encoding: chunked" in head.lower():
        size, _, rest = body.partition(b"\r\n")
        return rest[: int(size, 16)]
    return body
