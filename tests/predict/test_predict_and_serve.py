"""A real detector, run and scored, then asked again by `predict` and over HTTP: the same verdicts, the same bits."""

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
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import cv2
import numpy as np
import psutil
import pytest
from conftest import saod_ray
from slow_verdicts import expected, same
from typer.testing import CliRunner

from saod_ray import SelfAware
from saod_ray.cli import app
from saod_ray.config import ScoreSettings, UseCase
from saod_ray.data.images import decode
from saod_ray.data.shapes import Recipe, make
from saod_ray.detect import registry
from saod_ray.engine.cluster import connected
from saod_ray.engine.job import Job
from saod_ray.engine.resources import ResourceOptions
from saod_ray.engine.run import Run
from saod_ray.errors import SaodError
from saod_ray.predict.predictor import PredictorConfig
from saod_ray.predict.predictor import predict_files as in_process
from saod_ray.score.benchmark import Benchmark
from saod_ray.store.seals import encode_json
from saod_ray.store.store import Store

pytestmark = pytest.mark.slow
MOST = 200_000  # bytes of a request


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with connected(None, cpus=2):
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("predict-data")
    make(str(root), Recipe(0, 0.02), lambda done, total: None, workers=1)
    return root


@pytest.fixture(scope="module")
def store(data, tmp_path_factory, cluster) -> Store:
    """A run of atss. Half of val's images are accepted: with six of them, pseudo-OOD decides too little."""
    uri = str(tmp_path_factory.mktemp("predict-run") / "store")
    job = Job.from_use_case(UseCase.load("shapes", str(data)), uri, "atss", registry.weights_folder())
    Run(job, job.plan(), ResourceOptions(actors=(1, 1))).detect(lambda receipt: None)
    scored = Benchmark(job.store, ScoreSettings(image_threshold="tpr-0.5")).score(["atss"])
    job.store.folder.put("selfaware/atss.json", encode_json(scored["atss"].selfaware))
    return Store.open(uri)


@pytest.fixture(scope="module")
def file(store) -> Path:
    return Path(store.uri) / "selfaware" / "atss.json"


@pytest.fixture(scope="module")
def verdicts(store, data, file) -> dict[str, dict[str, Any]]:
    """Path → verdict, from the shards of id and ood."""
    value = json.loads(file.read_text())
    by_name = expected(store, "atss", "id", value) | expected(store, "atss", "ood", value)
    return {str(data / name): verdict for name, verdict in by_name.items()}


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_images_are_of_both_kinds(verdicts) -> None:
    assert {verdict["accepted"] for verdict in verdicts.values()} == {True, False}
    assert sum(len(verdict["detections"]) for verdict in verdicts.values()) > 5


# predict ----------------------------------------------------------------------------------------------------------


def test_predict_says_what_scoring_said(verdicts, file, data, tmp_path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    listed = "\n".join([str(bad), *verdicts, "gone.png"])
    options = ("--selfaware", file, "--json", "--draw", tmp_path / "drawn")
    run = saod_ray("predict", "-", *options, input=listed, cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    predictions = lines(run.stdout)
    assert [prediction["image"] for prediction in predictions] == [str(bad), *verdicts, "gone.png"]
    assert "is not an image" in predictions[0]["error"] and predictions[-1]["error"] == "There is no file gone.png."
    for prediction in predictions[1:-1]:
        same(prediction, verdicts[prediction["image"]], exact=True)
        assert cv2.imread(prediction["drawn"]) is not None
    assert len(list((tmp_path / "drawn").iterdir())) == len(verdicts)
    accepted = sum(verdict["accepted"] for verdict in verdicts.values())
    assert f"{accepted} accepted, {len(verdicts) - accepted} rejected, 2 failed" in run.stderr


def test_predict_in_words_for_a_folder(verdicts, file, data) -> None:
    run = CliRunner().invoke(
        app, ["predict", str(data / "shapes" / "id"), "--selfaware", str(file), "--detector", "atss"]
    )
    assert run.exception is None
    heads = [line for line in run.stdout.splitlines() if not line.startswith("  ")]
    id_verdicts = {name: verdict for name, verdict in verdicts.items() if "/id/" in name}
    assert len(heads) == len(id_verdicts)
    for line in heads:
        name, _, summary = line.partition(": ")
        assert summary.startswith("accepted" if id_verdicts[name]["accepted"] else "rejected")
    assert len(run.stdout.splitlines()) - len(heads) == sum(
        len(verdict["detections"]) for verdict in id_verdicts.values()
    )


def test_with_ray_it_is_the_same_in_the_same_order(verdicts, file) -> None:
    from saod_ray.predict.batch import predict_batch

    setup = PredictorConfig.from_self_aware(SelfAware.load(file))
    files = ["gone.png", *verdicts, *reversed(list(verdicts))]
    predictions = [outcome.to_json() for outcome in predict_batch(setup, files, draw=False)]
    assert predictions == [outcome.to_json() for outcome in in_process(setup, files, draw=False)]
    for prediction in predictions[1:]:
        same(prediction, verdicts[prediction["image"]], exact=True)


def toy_setup(file: Path, folder: Path, **options: Any) -> PredictorConfig:
    """The engine's toy detector with the numbers that were fitted for atss."""
    shutil.copy(Path(__file__).parents[1] / "engine" / "toys.py", folder / "toys.py")
    toml_options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
    (folder / "mine.toml").write_text(f'[toy]\nbackend = "toys:Toy"\noptions = {{ {toml_options} }}\n')
    aware = SelfAware.load(file)
    entry = registry.choose("shapes", str(folder / "mine.toml"))[0]
    mark = registry.fingerprint(entry, aware.identity.classes, folder)
    whose = aware.identity._replace(detector="toy", fingerprint=mark)
    return PredictorConfig.from_self_aware(replace(aware, identity=whose), str(folder / "mine.toml"), weights=folder)


def test_images_that_end_or_fail_a_detector_cost_themselves_alone(verdicts, file, tmp_path, monkeypatch) -> None:
    from saod_ray.engine.attempts import FATAL
    from saod_ray.predict import batch
    from saod_ray.predict.batch import predict_batch

    monkeypatch.setattr(batch, "UNIT_IMAGES", 2)  # the last unit is one image, which must not pay for another's
    files = list(verdicts)[:7]
    names = [zlib.crc32(np.ascontiguousarray(decode(Path(file_name).read_bytes(), file_name))) for file_name in files]
    plain = [outcome.to_json() for outcome in in_process(toy_setup(file, tmp_path), files, draw=False)]
    setup = toy_setup(file, tmp_path, exits=[names[1]], raises=[names[4]])
    predictions = [outcome.to_json() for outcome in predict_batch(setup, files, draw=False)]
    assert predictions[1] == {"image": files[1], "error": FATAL}
    assert predictions[4]["error"].startswith("RuntimeError: will not look at")
    good = [0, 2, 3, 5, 6]
    assert [predictions[k] for k in good] == [plain[k] for k in good]


def test_three_lines_of_python(verdicts, file) -> None:
    aware = SelfAware.load(file)
    for (name, verdict), predicted in zip(verdicts.items(), aware.predict(list(verdicts)), strict=True):
        same(predicted.to_json(), verdict, exact=True)
        pixels = cv2.cvtColor(cv2.imread(name), cv2.COLOR_BGR2RGB)
    assert aware.predict([pixels])[0].to_json() == predicted.to_json()
    with pytest.raises(SaodError, match=r"Number 0 of 1 images: There is no file gone\.png"):
        aware.predict(["gone.png"])


def test_another_detector_is_refused(file, tmp_path, golden_store) -> None:
    def refusal_message(selfaware: Path, **options: Any) -> str:
        with pytest.raises(SaodError) as refusal:
            PredictorConfig.from_self_aware(SelfAware.load(selfaware), **options)
        return str(refusal.value)

    assert "is for 'atss', not for f-rcnn" in refusal_message(file, detector="f-rcnn")
    assert "is for the use case 'shapes', not 'gen'" in refusal_message(file, use_case="gen")
    weights = tmp_path / "weights" / "shapes"
    weights.mkdir(parents=True)
    shipped = Path(registry.__file__).parent / "weights" / "shapes"
    shutil.copy(shipped / "f-rcnn.safetensors", weights / "atss.safetensors")
    assert "is for 'atss' with fingerprint" in refusal_message(file, weights=tmp_path / "weights")
    aware, other = SelfAware.load(file), registry.choose("shapes", "f-rcnn")[0]
    built = registry.build(other, aware.identity.classes, registry.weights_folder())
    with pytest.raises(SaodError, match="not for 'f-rcnn'"):
        aware.predict([], built)
    SelfAware.fit(golden_store.uri, "toy").save(tmp_path / "toy.json")
    detector_file = tmp_path / "mine.toml"
    detector_file.write_text('[toy]\nbackend = "torchvision"\ncheckpoint = "x.pth"\noptions = { model = "x" }\n')
    (tmp_path / "x.pth").touch()
    assert "imported detections" in refusal_message(tmp_path / "toy.json", detector=str(detector_file))


def test_a_mistake_is_one_sentence(file) -> None:
    run = saod_ray("predict", "--selfaware", file, "--detector", "f-rcnn", "x.png")
    assert run.returncode == 1 and run.stdout == "" and len(run.stderr.splitlines()) == 1


# serve ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url(file, cluster) -> Iterator[str]:
    from saod_ray.predict.server import RequestLimits, serve_http

    limits = RequestLimits(MOST, 1_000_000, gather=4, wait=0.05)
    with serve_http(
        PredictorConfig.from_self_aware(SelfAware.load(file)),
        limits,
        host="127.0.0.1",
        port=0,
        replicas=1,
        is_private=True,
    ) as place:
        yield place


def ask(url: str, body: bytes | None = None, kind: str = "image/png", method: str | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(url, body, {"Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_answers_are_what_scoring_said_also_to_many_at_once(url, verdicts) -> None:
    def post(name: str) -> tuple[int, Any]:
        return ask(f"{url}/predict", b"no image") if name == "bad" else ask(f"{url}/predict", Path(name).read_bytes())

    names = [name for file_name in verdicts for name in (file_name, "bad", file_name)]
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(post, names))
    for name, (status, answer) in zip(names, answers, strict=True):
        if name == "bad":
            assert status == 415 and "not an image" in answer["error"]
        else:
            assert status == 200
            same(answer, verdicts[name], exact=True)


def test_health_names_the_detector(url, store) -> None:
    status, answer = ask(f"{url}/healthz", method="GET")
    assert status == 200
    assert (answer["detector"], answer["fingerprint"]) == ("atss", store.pages("atss", "val")[0].origin.file)


def test_other_requests_get_a_sentence(url, verdicts) -> None:
    good = Path(next(iter(verdicts))).read_bytes()
    form = b'--XX\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n' + good + b"\r\n--XX--\r\n"
    status, answer = ask(f"{url}/predict", form, "multipart/form-data; boundary=XX")
    assert status == 200
    same(answer, next(iter(verdicts.values())), exact=True)
    wide, small = (cv2.imencode(".png", np.zeros((size, 1000, 3), np.uint8))[1].tobytes() for size in (1001, 999))
    for status, *rest in (
        (404, "/", None, "", "GET"), (404, "/predict/x", good, "image/png", "POST"), (405, "/predict", None, "", "GET"),
        (405, "/healthz", b"", "image/png", "POST"), (415, "/predict", good, "text/plain", "POST"),
        (400, "/predict", small[:90], "image/png", "POST"), (400, "/predict", b"", "image/png", "POST"),
        (413, "/predict", wide, "image/png", "POST"),
    ):  # fmt: skip
        path, body, kind, method = rest
        got, answer = ask(url + path, body, kind, method)
        assert got == status and answer["error"].endswith("."), (path, answer)


@pytest.mark.parametrize("length", [f"Content-Length: {10**12}", "Transfer-Encoding: chunked"])
def test_a_body_that_is_too_large_is_answered_before_it_ends(url, length) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as wire:
        wire.sendall(f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n{length}\r\n\r\n".encode())
        if "chunked" in length:
            wire.sendall(b"%x\r\n" % (MOST + 1) + b"x" * (MOST + 1) + b"\r\n")  # and no end
        answer = wire.makefile("rb").read()  # until the server closes
    assert answer.startswith(b"HTTP/1.1 413") and b"larger than 200,000 bytes" in answer


def test_it_still_answers_after_all_that(url, verdicts) -> None:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
    name, verdict = next(iter(verdicts.items()))
    for _ in range(2):  # on one connection
        connection.request("POST", "/predict", Path(name).read_bytes(), {"Content-Type": "application/octet-stream"})
        same(json.load(connection.getresponse()), verdict, exact=True)


def test_a_signal_ends_the_command_and_leaves_nothing(file, verdicts) -> None:
    command = [sys.executable, "-m", "saod_ray", "serve", "--selfaware", str(file), "--port", "0"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    server = subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **pipes)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        place = line.partition(" answers at ")[2].partition(": POST")[0]
        name, verdict = next(iter(verdicts.items()))
        same(ask(f"{place}/predict", Path(name).read_bytes())[1], verdict, exact=True)
        family = psutil.Process(server.pid).children(recursive=True)
        assert family
        server.send_signal(signal.SIGTERM)
        rest, errors = server.communicate(timeout=60)
    finally:
        server.kill()
    status = "Starting Ray ...\nLoading 'atss' ...\n"
    assert (server.returncode, rest, errors) == (0, "", status)
    until = time.monotonic() + 20
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in family):
        assert time.monotonic() < until, family
        time.sleep(0.1)
