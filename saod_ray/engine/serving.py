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
from saod_ray.errors import SaodError
from saod_ray.predict.bodies import RefusedError, image_of, pixels_of
from saod_ray.predict.gate import is_authorised, is_loopback
from saod_ray.predict.predictor import Predictor, Setup

APP = "saod-ray"
WAITING = 100  # requests that a replica takes on, and as many wait for it; more are told to come again
ROUTES = {"/predict": "POST", "/healthz": "GET"}
LOOKED_AFTER = 1.0  # seconds between Serve's questions after a replica; the third bad answer ends it
CLOSE = {"connection": "close"}
QUIET = {"log_level": "ERROR", "enable_access_log": False}


class Limits(NamedTuple):
    """What a request may bring, and how requests are taken together."""

    max_bytes: int
    max_pixels: int
    gather: int  # requests of one call
    wait: float  # seconds for which a call waits for more of them
    arrive: float = 30.0  # seconds that a body may take to arrive
    token: str | None = None  # the SHA-256 of what a request must bring, where one is asked for


class Endpoint:
    """A replica. Detecting has a thread of its own, so that requests come in meanwhile."""

    def __init__(self, setup: Setup, limits: Limits) -> None:
        _bind_inside()
        self._limits, self._whose = limits, setup.aware.require_identity()
        self._problem = ""  # why nothing can be detected any more
        self._thread = ThreadPoolExecutor(1)
        # built by the thread that uses it: how many threads torch may use is a property of the thread
        self._predictor: Predictor = self._thread.submit(setup.predictor).result()
        together: Any = self._together  # what Serve adds to it has no types
        together.set_max_batch_size(limits.gather)
        together.set_batch_wait_timeout_s(limits.wait)

    def check_health(self) -> None:
        """Serve asks this, and replaces a replica for which it raises."""
        if self._problem:
            raise RuntimeError(self._problem)

    async def __call__(self, request: Request) -> JSONResponse:
        """Answer a request; whatever is wrong with it is a sentence."""
        try:
            return JSONResponse(await self._answered(request))
        except RefusedError as refusal:
            return JSONResponse({"error": str(refusal)}, refusal.status, refusal.headers)
        except ClientDisconnect:
            return JSONResponse({"error": "The client went away."}, 400)

    async def _answered(self, request: Request) -> dict[str, Any]:
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
            mine = self._whose
            known = {"detector": mine.detector, "use_case": mine.use_case, "fingerprint": mine.fingerprint}
            return {"status": "ok", **known}
        data = image_of(request.headers.get("content-type", ""), await self._body(request))
        answer: dict[str, Any] | RefusedError = await self._together(data)
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    async def _body(self, request: Request) -> bytes:
        """The body, within the time that it may take. The rest of one that is refused is not waited for."""
        try:
            async with asyncio.timeout(self._limits.arrive):
                return await self._received(request)
        except TimeoutError:
            raise RefusedError(
                408, f"The body took more than {self._limits.arrive:g} s to arrive: send a smaller file.", CLOSE
            ) from None

    async def _received(self, request: Request) -> bytes:
        """One that is too large is refused by what it says of itself, or as soon as it is."""
        most, parts, size = self._limits.max_bytes, list[bytes](), 0
        said = request.headers.get("content-length", "")
        refusal = RefusedError(413, f"The body is larger than {most:,} bytes: send a smaller file.", CLOSE)
        if said.isdecimal() and int(said) > most:
            raise refusal
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise refusal
            parts.append(part)
        return b"".join(parts)

    @serve.batch
    async def _together(self, bodies: list[bytes]) -> list[Any]:
        """Requests that came together; each has an answer or a refusal of its own."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._looked_at, bodies)

    def _looked_at(self, bodies: list[bytes]) -> list[Any]:
        if self._problem:
            return [_unusable() for _ in bodies]
        answers: list[Any] = []
        pictures: list[PreparedImage] = []
        for number, data in enumerate(bodies):
            try:
                pictures.append(PreparedImage(number, pixels_of(data, self._limits.max_pixels)))
                answers.append(None)
            except RefusedError as refusal:
                answers.append(refusal)
        try:
            outcomes = self._predictor.outcomes([""] * len(pictures), pictures)
        except PoisonedError as error:
            self._problem = str(error)
            return [answer or _unusable() for answer in answers]
        except SaodError as error:
            return [answer or RefusedError(500, str(error)) for answer in answers]
        for picture, outcome in zip(pictures, outcomes, strict=True):
            if outcome.verdict is not None:
                answers[picture.image_id] = outcome.verdict.to_json()
            else:
                failed = RefusedError(500, f"The detector failed on this image ({outcome.error}).")
                answers[picture.image_id] = failed
        return answers


def _bind_inside() -> None:
    """Let this replica's gRPC server, which Serve binds to every interface, listen where its cluster does.

    Serve starts it after the replica's own class is built. On a private cluster that is loopback.
    """
    address = ray.util.get_node_ip_address()
    if is_loopback(address):
        replica: Any = importlib.import_module("ray.serve._private.replica")
        add_port = replica.add_port_to_grpc_server
        replica.add_port_to_grpc_server = lambda server, place: add_port(server, place.replace("[::]", address))


def _unusable() -> RefusedError:
    said = "This replica cannot detect any more and is being replaced: send the request again in some seconds."
    return RefusedError(503, said, {"retry-after": "10"})


@contextmanager
def serving(
    setup: Setup, limits: Limits, host: str, port: int, replicas: int, private: bool, drain: float = 30.0
) -> Iterator[str]:
    """Serve on the Ray cluster that is connected, for as long as the context lasts; gives the URL.

    On a `private` cluster it is known beforehand whether the port is free and the cores are there. In the end requests
    have `drain` seconds to be answered.
    """
    gpus = min(1.0, ray.cluster_resources().get("GPU", 0.0))
    if private:
        _refuse_crowd(replicas)
    port = _port(host, port, private)
    ask = {"num_cpus": 1, "num_gpus": gpus}
    made: Any = serve.deployment(
        name=APP,
        num_replicas=replicas,
        ray_actor_options=ask,
        max_ongoing_requests=max(WAITING, 2 * limits.gather),
        max_queued_requests=WAITING,
        graceful_shutdown_timeout_s=drain,
        health_check_period_s=LOOKED_AFTER,
        logging_config=QUIET,
    )(Endpoint)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    serve.start(http_options={"host": host, "port": port}, logging_config=QUIET)
    try:
        _run(made.bind(setup, limits))
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        serve.delete(APP)  # requests that are being answered are answered; a private cluster's Serve ends with it
        _set_global_client(None)  # else Serve takes it for that of the next cluster of this process


def _run(application: Any) -> None:
    try:
        serve.run(application, name=APP, route_prefix="/", logging_config=QUIET)
    except (RuntimeError, ValueError, RayServeException) as error:  # another application may be at the same route
        reason = " ".join(str(error).split())
        raise SaodError(f"Ray Serve did not start ({reason}): mend that and try again.") from None


def _refuse_crowd(replicas: int) -> None:
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if replicas > cpus:
        raise SaodError(f"--replicas {replicas} need as many cores, and there are {cpus}: ask for fewer.")


def _port(host: str, port: int, private: bool) -> int:
    """Where to listen. A Serve that runs on the cluster already stays where it is, and takes one of us."""
    client: Any = _get_global_client(raise_if_no_controller_running=False)
    if client is None and private:
        return _free(host, port)
    if client is None:
        if not port:
            raise SaodError("--port 0 is for a private cluster: say which port of the cluster to listen on.")
        return port
    if APP in serve.status().applications:
        raise SaodError(
            f"There is a '{APP}' on that cluster already: end the other `saod-ray serve`, or what a killed one left with "
            "`serve shutdown`, or use another cluster."
        )
    there = client.http_config
    if host != there.host or port not in (0, there.port):
        raise SaodError(
            f"Ray Serve listens on {there.host}:{there.port} of that cluster already: give --host {there.host} "
            f"--port {there.port}, or end it with `serve shutdown`."
        )
    return int(there.port)


def _free(host: str, port: int) -> int:
    """The port, or any free one for 0; one that is taken is refused before anything starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SaodError(f"{host}:{port} cannot be listened on ({error.strerror}): give another --port.") from None
        return int(probe.getsockname()[1])
