"""What stands between the network and a served detector: a token, limits on headers and connections, answers in JSON.

Ray Serve's proxy loads `middlewares` in its own process (RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH), on clusters that
`saod-ray serve` starts itself. Replicas check the token too, on every cluster.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import os
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saod_ray.errors import SaodError

CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
TOKEN = "SAOD_RAY_SERVE_TOKEN_SHA256"
REQUESTS = "SAOD_RAY_SERVE_MAX_REQUESTS"
LEAST_TOKEN = 16  # characters
MAX_HEADER_BYTES = 32 << 10  # of a request's line and headers
MAX_HEADER_SECONDS = 10.0
MAX_CONNECTIONS = 1000  # or twice the requests, where those are more
LINGER = 2.0  # seconds in which a refused client may still send
MAX_REQUESTS = 400  # that are being answered, for each replica, which takes on 100 and lets 100 wait
LIVENESS = "/-/healthz"  # Serve's own, which says nothing of the detector

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    inner = getattr(address, "ipv4_mapped", None)  # ::ffff:127.0.0.1
    return (inner or address).is_loopback


def token_digest(host: str, token_file: Path | None) -> str | None:
    """The SHA-256 of the token in a file; without a file None, which is refused where others reach the host."""
    if token_file is None:
        if not is_loopback(host):
            raise SaodError(
                f"--host {host} can be reached from other machines: give --token-file FILE with a secret of at least "
                f"{LEAST_TOKEN} characters, which requests then send as `Authorization: Bearer SECRET`."
            )
        return None
    try:
        token = token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII"
        raise SaodError(f"{token_file} cannot be read ({reason}): give --token-file a file with a secret.") from None
    if len(token) < LEAST_TOKEN or not token.isprintable() or " " in token:
        raise SaodError(
            f"{token_file} does not hold a token: write at least {LEAST_TOKEN} letters and digits into it, for instance "
            "with `openssl rand -hex 32`."
        )
    return hashlib.sha256(token.encode()).hexdigest()


def is_authorised(authorization: bytes, digest: str | None) -> bool:
    """Whether a request's header has the token; digests are compared in constant time.

    >>> is_authorised(b"Bearer secret", hashlib.sha256(b"secret").hexdigest())
    True
    """
    if digest is None:
        return True
    scheme, _, token = authorization.partition(b" ")
    sent = hashlib.sha256(token.strip()).hexdigest()
    return hmac.compare_digest(sent, digest) and scheme.lower() == b"bearer"


@contextmanager
def guarded(digest: str | None, replicas: int = 1) -> Iterator[None]:
    """Let a cluster that is started meanwhile have the gate in its Serve proxy."""
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
    """For Serve's proxy, in whose process this is called before it listens."""
    import uvicorn.protocols.http.auto as auto
    from starlette.middleware import Middleware

    chosen: Any = auto
    requests = int(os.environ.get(REQUESTS, MAX_REQUESTS))
    if hasattr(chosen.AutoHTTPProtocol, "on_headers_complete"):  # that of httptools; h11 bounds headers by itself
        chosen.AutoHTTPProtocol = _limited(chosen.AutoHTTPProtocol, max(MAX_CONNECTIONS, 2 * requests))
    return [Middleware(Gate, digest=os.environ.get(TOKEN) or None, max_requests=requests)]


class Gate:
    """ASGI: refuses requests without the token or beyond the limit, and turns every answer into JSON."""

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
            if answers.has_begun:
                raise
            await answers.refuse(500, f"The request could not be answered ({type(error).__name__}).")
        finally:
            self._running -= 1


class _JsonAnswers:
    """Sends what is JSON as it is, and anything else as {"error": TEXT} or {"status": TEXT}."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None  # of an answer that is not JSON
        self._body = b""
        self.has_begun = False

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
        self.has_begun = True
        await self._send(message)

    async def _send_text(self, start: Message, text: str) -> None:
        headers = [header for header in start["headers"] if header[0] not in (b"content-type", b"content-length")]
        key = "error" if start["status"] >= 400 else "status"
        await self._answer(start["status"], {key: text or "no more is known"}, headers)

    async def refuse(self, status: int, sentence: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        """Answer with a sentence, and let the connection end: what is left of the request is not read."""
        await self._answer(status, {"error": sentence}, [*(headers or []), (b"connection", b"close")])

    async def _answer(self, status: int, value: dict[str, str], headers: list[Any]) -> None:
        body = json.dumps(value).encode()
        own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *own]})
        await self._send({"type": "http.response.body", "body": body})


def _limited(base: Any, max_connections: int) -> Any:
    """Uvicorn's protocol with limits on connections, and on the size and time of headers."""

    class Limited(base):  # type: ignore[misc]
        """A connection; `_pending` counts the bytes of headers that are not complete."""

        _pending: int | None = 0
        _timer: asyncio.TimerHandle | None = None
        _is_refused = False

        def connection_made(self, transport: Any) -> None:
            """Start the clock of the first request's headers."""
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                self._refuse(503, "There are too many connections: come again in some seconds.")
            self._start_clock()

        def connection_lost(self, exc: Exception | None) -> None:
            """Stop the clock."""
            self._stop_clock()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            """Count what belongs to headers; what comes after a refusal is dropped."""
            if self._is_refused:
                return
            if self._pending is not None:
                self._pending += len(data)
                if self._timer is None:
                    self._start_clock()
            super().data_received(data)
            if self._pending is not None and self._pending > MAX_HEADER_BYTES:
                self._refuse(431, f"The headers have more than {MAX_HEADER_BYTES:,} bytes: send fewer.")

        def on_headers_complete(self) -> None:
            """The rest is a body, which replicas limit."""
            sizes = (len(name) + len(value) for name, value in self.headers)
            self._pending = None
            self._stop_clock()
            if sum(sizes) > MAX_HEADER_BYTES:
                self._refuse(431, f"The headers have more than {MAX_HEADER_BYTES:,} bytes: send fewer.")
                return
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            """What comes next are headers again, whose clock starts with their first byte."""
            super().on_message_complete()
            self._pending = 0

        def send_400_response(self, msg: str) -> None:
            """What is not HTTP."""
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

        def _refuse(self, status: int, sentence: str) -> None:
            self._stop_clock()
            if self._is_refused or self.transport.is_closing():
                return
            self._is_refused = True
            body = json.dumps({"error": sentence})
            lines = [f"HTTP/1.1 {status} Refused", "content-type: application/json", f"content-length: {len(body)}"]
            self.transport.write("\r\n".join([*lines, "connection: close", "", body]).encode())
            self.transport.write_eof()
            self.loop.call_later(
                LINGER, self.transport.close
            )  # closed at once, what is still sent would undo the answer

    return Limited
