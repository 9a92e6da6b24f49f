"""A self-aware detector behind HTTP, on Ray Serve: POST /predict, GET /healthz."""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import ray
from ray import serve
from ray.serve.context import _get_global_client, _set_global_client
from ray.serve.exceptions import RayServeException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from saod_ray.data.prepare import PreparedImage
from saod_ray.detect.outcomes import PoisonedError
from saod_ray.engine.cluster import is_loopback
from saod_ray.errors import SaodError
from saod_ray.predict.bodies import RefusedError, decode_pixels, extract_image
from saod_ray.predict.gate import is_authorised
from saod_ray.predict.predictor import Predictor, PredictorConfig

APP = "saod-ray"
MAX_QUEUED = 100  # requests that a replica works on, and as many that wait for it; more are refused with 503
ROUTES = {"/predict": "POST", "/healthz": "GET"}
HEALTH_CHECK_PERIOD = 1.0  # seconds; Serve replaces a replica after the third failed check
CLOSE = {"connection": "close"}
QUIET = {"log_level": "ERROR", "enable_access_log": False}


class RequestLimits(NamedTuple):
    """The largest request that is answered, and how requests are batched."""

    max_bytes: int
    max_pixels: int
    gather: int  # requests per call of the detector, at most
    wait: float  # seconds for which a call waits for more requests
    arrive: float = 30.0  # seconds that a body may take to arrive
    token: str | None = None  # SHA-256 of the token that requests must send; None needs no token


class Endpoint:
    """A replica. It detects in a thread of its own, so that it receives further requests meanwhile."""

    def __init__(self, config: PredictorConfig, limits: RequestLimits) -> None:
        _bind_inside()
        self._limits, self._identity = limits, config.self_aware.require_identity()
        self._problem = ""  # why this replica cannot detect any more
        self._thread = ThreadPoolExecutor(1)
        # built by the thread that uses it: torch limits its threads per thread
        self._predictor: Predictor = self._thread.submit(config.build).result()
        batched: Any = self._predict_batch  # the methods that Serve adds to it have no types
        batched.set_max_batch_size(limits.gather)
        batched.set_batch_wait_timeout_s(limits.wait)

    def check_health(self) -> None:
        """Called by Serve, which replaces a replica for which it raises."""
        if self._problem:
            raise RuntimeError(self._problem)

    async def __call__(self, request: Request) -> JSONResponse:
        """Answer a request; a refusal is {"error": SENTENCE}."""
        try:
            return JSONResponse(await self._answer(request))
        except RefusedError as refusal:
            return JSONResponse({"error": str(refusal)}, refusal.status, refusal.headers)
        except ClientDisconnect:
            return JSONResponse({"error": "The client closed the connection."}, 400)

    async def _answer(self, request: Request) -> dict[str, Any]:
        path = request.url.path
        if not is_authorised(request.headers.get("authorization", "").encode("latin-1"), self._limits.token):
            sentence = "This needs a token: send it as `Authorization: Bearer SECRET`."
            raise RefusedError(401, sentence, {"www-authenticate": "Bearer", **CLOSE})
        if path not in ROUTES:
            raise RefusedError(404, f"There is nothing at {path}: POST an image to /predict, or GET /healthz.")
        if request.method != ROUTES[path]:
            allowed = {"allow": ROUTES[path]}
            raise RefusedError(405, f"{path} takes {ROUTES[path]}, not {request.method}.", allowed)
        if path == "/healthz":
            if self._problem:
                raise _unusable()
            detector, use_case = self._identity.detector, self._identity.use_case
            return {
                "status": "ok",
                "detector": detector,
                "use_case": use_case,
                "fingerprint": self._identity.fingerprint,
            }
        data = extract_image(request.headers.get("content-type", ""), await self._body(request))
        answer: dict[str, Any] | RefusedError = await self._predict_batch(data)
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    async def _body(self, request: Request) -> bytes:
        """The whole body; refused with 408 if it takes too long, without reading the rest."""
        try:
            async with asyncio.timeout(self._limits.arrive):
                return await self._receive(request)
        except TimeoutError as error:
            raise RefusedError(
                408, f"The body took more than {self._limits.arrive:g} s to arrive: send a smaller file.", CLOSE
            ) from error

    async def _receive(self, request: Request) -> bytes:
        """The whole body; refused with 413 by its declared length, or as soon as it exceeds the limit."""
        max_bytes, parts, size = self._limits.max_bytes, list[bytes](), 0
        declared = request.headers.get("content-length", "")
        refusal = RefusedError(413, f"The body is larger than {max_bytes:,} bytes: send a smaller file.", CLOSE)
        if declared.isdecimal() and int(declared) > max_bytes:
            raise refusal
        async for part in request.stream():
            size += len(part)
            if size > max_bytes:
                raise refusal
            parts.append(part)
        return b"".join(parts)

    @serve.batch
    async def _predict_batch(self, bodies: list[bytes]) -> list[Any]:
        """The JSON value or the refusal of each image; Serve gathers the calls of concurrent requests."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._predict, bodies)

    def _predict(self, bodies: list[bytes]) -> list[Any]:
        if self._problem:
            return [_unusable() for _ in bodies]
        answers: list[Any] = []
        images: list[PreparedImage] = []
        for number, data in enumerate(bodies):
            try:
                images.append(PreparedImage(number, decode_pixels(data, self._limits.max_pixels)))
                answers.append(None)
            except RefusedError as refusal:
                answers.append(refusal)
        try:
            predictions = self._predictor.predict([""] * len(images), images)
        except PoisonedError as error:
            self._problem = str(error)
            return [answer or _unusable() for answer in answers]
        except SaodError as error:
            return [answer or RefusedError(500, str(error)) for answer in answers]
        for image, prediction in zip(images, predictions, strict=True):
            if prediction.verdict is not None:
                answers[image.image_id] = prediction.verdict.to_json()
            else:
                failure = RefusedError(500, f"The detector failed on this image ({prediction.error}).")
                answers[image.image_id] = failure
        return answers


def _bind_inside() -> None:
    """Let this replica's gRPC server, which Serve binds to every interface, listen where its cluster does.

    On a private cluster that is loopback. Serve starts the server after it has built the replica's class.
    """
    address = ray.util.get_node_ip_address()
    if is_loopback(address):
        replica: Any = importlib.import_module("ray.serve._private.replica")
        add_port = replica.add_port_to_grpc_server
        replica.add_port_to_grpc_server = lambda server, place: add_port(server, place.replace("[::]", address))


def _unusable() -> RefusedError:
    sentence = "This replica cannot detect any more and is being replaced: send the request again in some seconds."
    return RefusedError(503, sentence, {"retry-after": "10"})


@contextmanager
def serve_http(
    config: PredictorConfig,
    limits: RequestLimits,
    *,
    host: str,
    port: int,
    replicas: int,
    is_private: bool,
    drain: float = 30.0,
) -> Iterator[str]:
    """Serve on the connected Ray cluster until the context ends; yields the URL.

    Requests that are being answered then have `drain` seconds to finish. On a private cluster port 0 picks a free port,
    and a port in use or missing cores are refused before anything starts. Raises SaodError.
    """
    gpus = min(1.0, ray.cluster_resources().get("GPU", 0.0))
    if is_private:
        _refuse_too_many_replicas(replicas)
    port = _choose_port(host, port, is_private)
    deployment: Any = serve.deployment(
        name=APP,
        num_replicas=replicas,
        ray_actor_options={"num_cpus": 1, "num_gpus": gpus},
        max_ongoing_requests=max(MAX_QUEUED, 2 * limits.gather),
        max_queued_requests=MAX_QUEUED,
        graceful_shutdown_timeout_s=drain,
        health_check_period_s=HEALTH_CHECK_PERIOD,
        logging_config=QUIET,
    )(Endpoint)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    serve.start(http_options={"host": host, "port": port}, logging_config=QUIET)
    try:
        _deploy(deployment.bind(config, limits))
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        serve.delete(APP)  # waits for the requests in flight; a private cluster's Serve ends with the cluster
        _set_global_client(None)  # or Serve would use it for the next cluster of this process


def _deploy(application: Any) -> None:
    try:
        serve.run(application, name=APP, route_prefix="/", logging_config=QUIET)
    except (RuntimeError, ValueError, RayServeException) as error:  # another application may have the same route
        reason = " ".join(str(error).split())
        raise SaodError(f"Ray Serve did not start ({reason}): fix the cause and run the command again.") from error


def _refuse_too_many_replicas(replicas: int) -> None:
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if replicas > cpus:
        raise SaodError(f"--replicas {replicas} need as many cores, and there are {cpus}: ask for fewer.")


def _choose_port(host: str, port: int, is_private: bool) -> int:
    """The port to listen on. A Serve that already runs on the cluster keeps its own, and gets our application."""
    client: Any = _get_global_client(raise_if_no_controller_running=False)
    if client is None and is_private:
        return _free_port(host, port)
    if client is None:
        if not port:
            raise SaodError("--port 0 is for a private cluster: name the port of the cluster to listen on.")
        return port
    if APP in serve.status().applications:
        raise SaodError(
            f"A '{APP}' application runs on that cluster already: stop the other `saod-ray serve`, remove what a killed "
            "one left with `serve shutdown`, or use another cluster."
        )
    running = client.http_config
    if host != running.host or port not in (0, running.port):
        raise SaodError(
            f"Ray Serve already listens on {running.host}:{running.port} of that cluster: give --host {running.host} "
            f"--port {running.port}, or stop it with `serve shutdown`."
        )
    return int(running.port)


def _free_port(host: str, port: int) -> int:
    """The port itself, or any free one for 0. Raises SaodError where it is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SaodError(f"Cannot listen on {host}:{port} ({error.strerror}): give another --port.") from error
        return int(probe.getsockname()[1])
