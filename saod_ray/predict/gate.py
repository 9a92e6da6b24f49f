"""The gate between the network and a served detector: a token, limits on headers and connections, answers in JSON.

On clusters that `saod-ray serve` starts itself, Ray Serve's proxy loads `middlewares` in its own process (see
RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH). Replicas check the token as well, on every cluster.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saod_ray.engine.cluster import is_loopback
from saod_ray.errors import SaodError

CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
TOKEN = "SAOD_RAY_SERVE_TOKEN_SHA256"
REQUESTS = "SAOD_RAY_SERVE_MAX_REQUESTS"
MIN_TOKEN = 16  # characters
MAX_HEADER_BYTES = 32 << 10  # request line included
MAX_HEADER_SECONDS = 10.0
MAX_CONNECTIONS = 1000  # or twice the number of requests, if that is more
LINGER = 2.0  # seconds for which a refused client may still send
MAX_REQUESTS = 400  # in flight per replica, which works on 100 and lets 100 wait
LIVENESS = "/-/healthz"  # Serve's own, which tells nothing about the detector

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def token_digest(host: str, token_file: Path | None) -> str | None:
    """The SHA-256 of the token in a file, or None without a file.

    Raises SaodError where other machines can reach the host and there is no token.
    """
    if token_file is None:
        if not is_loopback(host):
            raise SaodError(
                f"--host {host} can be reached from other machines: give --token-file FILE with a secret of at least "
                f"{MIN_TOKEN} characters, which requests then send as `Authorization: Bearer SECRET`."
            )
        return None
    try:
        token = token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII"
        raise SaodError(f"{token_file} cannot be read ({reason}): give --token-file a file with a secret.") from error
    if len(token) < MIN_TOKEN or not token.isprintable() or " " in token:
        raise SaodError(
            f"{token_file} does not hold a token: write at least {MIN_TOKEN} letters and digits into it, for instance "
            "with `openssl rand -hex 32`."
        )
    return hashlib.sha256(token.encode()).hexdigest()


def is_authorised(authorization: bytes, digest: str | None) -> bool:
    """Whether an `Authorization` header has the token with that digest; digests are compared in constant time.

    >>> is_authorised(b"Bearer secret", hashlib.sha256(b"secret").hexdigest())
    True
    """
    if digest is None:
        return True
    scheme, _, token = authorization.partition(b" ")
    sent = hashlib.sha256(token.strip()).hexdigest()
    return hmac.compare_digest(sent, digest) and scheme.lower() == b"bearer"


@contextmanager
def gate_environment(digest: str | None, replicas: int = 1) -> Iterator[None]:
    """Set the environment in which a new cluster's Serve proxy loads the gate; restore it afterwards."""
    settings = {
        CALLBACK: f"{__name__}:middlewares",
        TOKEN: digest or "",
        REQUESTS: str(MAX_REQUESTS * replicas),
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def middlewares() -> list[Any]:
    """The middlewares of Serve's proxy, which calls this in its own process before it listens."""
    import uvicorn.protocols.http.auto as auto
    from starlette.middleware import Middleware

    uvicorn_auto: Any = auto
    requests = int(os.environ.get(REQUESTS, MAX_REQUESTS))
    protocol = uvicorn_auto.AutoHTTPProtocol
    if hasattr(protocol, "on_headers_complete"):  # that of httptools; h11 limits headers by itself
        limits = {"max_connections": max(MAX_CONNECTIONS, 2 * requests)}
        uvicorn_auto.AutoHTTPProtocol = type("LimitedHTTPProtocol", (_LimitedConnection, protocol), limits)
    return [Middleware(Gate, digest=os.environ.get(TOKEN) or None, max_requests=requests)]


class Gate:
    """ASGI middleware: refuses requests without the token or beyond the limit, and makes every answer JSON."""

    def __init__(self, app: App, digest: str | None = None, max_requests: int = MAX_REQUESTS) -> None:
        self._app, self._digest, self._max_requests, self._running = app, digest, max_requests, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        answers = _JsonAnswers(send)
        headers = dict(scope["headers"])
        if scope["path"] != LIVENESS and not is_authorised(headers.get(b"authorization", b""), self._digest):
            sentence = "This needs a token: send it as `Authorization: Bearer SECRET`."
            await answers.refuse(401, sentence, [(b"www-authenticate", b"Bearer")])
            return
        if self._running >= self._max_requests:
            sentence = f"{self._max_requests} requests are being answered already: send this one again in some seconds."
            await answers.refuse(503, sentence, [(b"retry-after", b"5")])
            return
        self._running += 1
        try:
            await self._app(scope, receive, answers)
        except Exception as error:
            if answers.has_started:
                raise
            await answers.refuse(500, f"The request could not be answered ({type(error).__name__}).")
        finally:
            self._running -= 1


class _JsonAnswers:
    """Passes JSON answers on, and sends any other text as {"error": TEXT} or {"status": TEXT}."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None  # the first message of an answer that is not JSON
        self._body = b""
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            if not headers.get(b"content-type", b"").startswith(b"application/json"):
                self._start = message
                return
        elif self._start is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_text(self._start, self._body.decode("utf-8", "replace"))
            return
        self.has_started = True
        await self._send(message)

    async def _send_text(self, start: Message, text: str) -> None:
        headers = [header for header in start["headers"] if header[0] not in (b"content-type", b"content-length")]
        key = "error" if start["status"] >= 400 else "status"
        await self._answer(start["status"], {key: text or "no details"}, headers)

    async def refuse(self, status: int, sentence: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        """Answer with a sentence and close the connection; the rest of the request is not read."""
        await self._answer(status, {"error": sentence}, [*(headers or []), (b"connection", b"close")])

    async def _answer(self, status: int, value: dict[str, str], headers: list[Any]) -> None:
        body = json.dumps(value).encode()
        own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        self.has_started = True
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *own]})
        await self._send({"type": "http.response.body", "body": body})


_Protocol: Any = object


class _LimitedConnection(_Protocol):  # type: ignore[misc]
    """Mixin for uvicorn's httptools protocol: limits connections, and the size and time of headers."""

    max_connections = MAX_CONNECTIONS
    _header_bytes: int | None = 0  # received of headers that are not complete yet; None while a body arrives
    _timer: asyncio.TimerHandle | None = None
    _is_refused = False

    def connection_made(self, transport: Any) -> None:
        """Start the clock for the headers of the first request."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._refuse(503, "There are too many connections: try again in some seconds.")
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of headers; data after a refusal is dropped."""
        if self._is_refused:
            return
        if self._header_bytes is not None:
            self._header_bytes += len(data)
            if self._timer is None:
                self._start_clock()
        super().data_received(data)
        if self._header_bytes is not None and self._header_bytes > MAX_HEADER_BYTES:
            self._refuse_headers()

    def on_headers_complete(self) -> None:
        """Stop counting: a body follows, which replicas limit."""
        sizes = (len(name) + len(value) for name, value in self.headers)
        self._header_bytes = None
        self._stop_clock()
        if sum(sizes) > MAX_HEADER_BYTES:
            self._refuse_headers()
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Count headers again; their clock starts with their first byte."""
        super().on_message_complete()
        self._header_bytes = 0

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP."""
        self._refuse(400, "This is not an HTTP request.")

    def _should_upgrade(self) -> bool:
        return False

    def _start_clock(self) -> None:
        sentence = f"The headers took more than {MAX_HEADER_SECONDS:g} s to arrive."
        self._timer = self.loop.call_later(MAX_HEADER_SECONDS, self._refuse, 408, sentence)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse_headers(self) -> None:
        self._refuse(431, f"The headers have more than {MAX_HEADER_BYTES:,} bytes: send fewer.")

    def _refuse(self, status: int, sentence: str) -> None:
        self._stop_clock()
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        body = json.dumps({"error": sentence})
        lines = [f"HTTP/1.1 {status} Refused", "content-type: application/json", f"content-length: {len(body)}"]
        self.transport.write("\r\n".join([*lines, "connection: close", "", body]).encode())
        self.transport.write_eof()
        # if it were closed at once, data that the client still sends would reset the connection and lose the answer
        self.loop.call_later(LINGER, self.transport.close)
