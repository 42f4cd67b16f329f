"""Who may speak to this server: Host, Origin and bearer token, decided on raw headers before any handler runs.

Local web attacks are real: a page elsewhere can make a browser connect to a loopback port under its own name (DNS
rebinding), open WebSockets from any origin, and send simple requests without asking. Authority is a token in a header;
never a cookie, never the query.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Refusal:
    """An HTTP answer instead of a handler's. ``message`` is for people and never repeats what the peer sent."""

    status: int
    code: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def body(self) -> bytes:
        return json.dumps({"error": {"code": self.code, "message": self.message}}).encode()


NOT_FOUND = Refusal(404, "not_found", "there is nothing at this address")
_HOST_MISSING = Refusal(400, "message_invalid", "exactly one Host header is required")
_HOST_FOREIGN = Refusal(421, "unauthorized", "this server answers to its own loopback address only")
_ORIGIN_FOREIGN = Refusal(403, "unauthorized", "requests of other origins are refused")
TOKEN_WRONG = Refusal(
    401,
    "unauthorized",
    "a bearer token is required: Authorization: Bearer <token>",
    ((b"www-authenticate", b"Bearer"),),
)


def values(scope: Scope, name: bytes) -> list[bytes]:
    """All values of one header, in order; ``name`` in lower case."""
    return [value for key, value in scope["headers"] if key == name]


def own_hosts(port: int) -> frozenset[bytes]:
    """The Host values that name this server."""
    return frozenset(f"{name}:{port}".encode() for name in LOOPBACK_NAMES)


def own_origins(port: int) -> frozenset[bytes]:
    """The origins of pages that this server itself hands out."""
    return frozenset(f"http://{name}:{port}".encode() for name in LOOPBACK_NAMES)


def check_host(scope: Scope, allowed: frozenset[bytes]) -> Refusal | None:
    hosts = values(scope, b"host")
    if len(hosts) != 1:
        return _HOST_MISSING
    return None if hosts[0].strip().lower() in allowed else _HOST_FOREIGN


def check_origin(scope: Scope, allowed: frozenset[bytes]) -> Refusal | None:
    """Whoever sends an Origin is a browser; then it must be a page of ours. Other programs send none."""
    return None if all(origin in allowed for origin in values(scope, b"origin")) else _ORIGIN_FOREIGN


def check_bearer(scope: Scope, token: str) -> Refusal | None:
    """Exactly one Authorization header with this token; compared in constant time."""
    return None if hmac.compare_digest(bearer(scope), token.encode()) else TOKEN_WRONG


def bearer(scope: Scope) -> bytes:
    """The credential of exactly one Authorization header, else empty, which is nobody's token."""
    given = values(scope, b"authorization")
    scheme, _, credential = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return credential.strip() if scheme.lower() == b"bearer" else b""


async def refuse(refusal: Refusal, scope: Scope, send: Send) -> None:
    """Answer with the refusal, whether the peer asked for a page or for a WebSocket."""
    prefix = "websocket." if scope["type"] == "websocket" else ""
    body = refusal.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *refusal.headers]
    await send({"type": f"{prefix}http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": body})


class FrontDoor:
    """The ASGI layer in front of every handler: no foreign Host passes, and no foreign Origin.

    ``origins`` None leaves origins to the handlers (the surface server's documents have the opaque origin ``null``).
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[bytes], origins: frozenset[bytes] | None) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            refusal = check_host(scope, self._hosts)
            if refusal is None and self._origins is not None:
                refusal = check_origin(scope, self._origins)
            if refusal is not None:
                await refuse(refusal, scope, send)
                return
        await self._app(scope, receive, send)
