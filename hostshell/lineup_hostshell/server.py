"""The loopback web server: its listening socket, its layers and its routes.

Order of the layers, outermost first: ``AccessLog``, ``SecureAnswers``, ``FrontDoor``, routes. Nothing that a handler
does can leave a header out, and no request of a foreign Host or Origin reaches a handler. Owns no authority: each
endpoint that needs a token checks it itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lineup_hostshell.edge_protocols import HttpConnection, WebSocketConnection
from lineup_hostshell.headers import SecureAnswers
from lineup_hostshell.security import NOT_FOUND, FrontDoor, own_hosts, own_origins, refuse
from lineup_protocol.limits import AGENT_FRAME_BYTES_MAX

LOOPBACK = "127.0.0.1"
BACKLOG_CONNECTIONS = 128
PING_INTERVAL_S = 20.0
PING_ANSWER_S_MAX = 20.0
STOP_S_MAX = 3  # seconds for open answers when the server stops; uvicorn wants an int
LOGGED_PATH_LENGTH_MAX = 200

_log = logging.getLogger("lineup.hostshell.server")


def bind_loopback(wanted_port: int) -> socket.socket:
    """A listening socket on 127.0.0.1, at ``wanted_port`` or, if that is 0 or somebody else's, at any free port.

    Without SO_REUSEPORT, so that nobody can share the port with us.

    Raises:
        OSError: there is no loopback, or no port at all.
    """
    for port in dict.fromkeys((wanted_port, 0)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((LOOPBACK, port))
            listener.listen(BACKLOG_CONNECTIONS)
        except OSError as error:
            listener.close()
            if port == 0 or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            _log.warning("port %d is taken (%s); using another one", port, error.strerror)
        else:
            listener.setblocking(False)
            return listener
    raise AssertionError("the last attempt returns or raises")


def build_app(port: int, agent_link: ASGIApp, routes: Sequence[BaseRoute] = ()) -> ASGIApp:
    """The ASGI application of the main port. ``routes`` are what a workspace adds; the first match wins."""
    app = Starlette(
        routes=[
            Route("/health", _health, methods=["GET"]),
            WebSocketRoute("/agent", agent_link),
            Route("/agent", _agent_is_a_websocket, methods=["GET"]),
            *routes,
        ],
        exception_handlers={HTTPException: _http_error, Exception: _server_error},
    )
    app.router.redirect_slashes = False
    app.router.default = _not_found
    return AccessLog(SecureAnswers(FrontDoor(app, own_hosts(port), own_origins(port))))


def _health(request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


def _agent_is_a_websocket(request: Request) -> JSONResponse:
    headers = {"upgrade": "websocket", "connection": "upgrade"}
    return _error(426, "message_invalid", "the agent link is a WebSocket", headers)


def _http_error(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, HTTPException)
    code = "not_found" if problem.status_code == 404 else "message_invalid"
    return _error(problem.status_code, code, problem.detail, dict(problem.headers or {}))


def _server_error(request: Request, problem: Exception) -> JSONResponse:
    return _error(500, "internal_error", "a fault of this server; its log has the story")


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await refuse(NOT_FOUND, scope, send)


class AccessLog:
    """One line per answer: method, path, status, time. Never a query, a header or a body: secrets live there.

    ``path`` makes what is written of a path in which there may be one, too.
    """

    def __init__(self, app: ASGIApp, path: Callable[[str], str] = str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.monotonic()

        async def send_logged(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start", "websocket.accept"):
                path = ascii(self._path(scope["path"])[:LOGGED_PATH_LENGTH_MAX])
                elapsed_ms = (time.monotonic() - started) * 1000
                _log.info("%s %s %d %.1f ms", scope.get("method", "WS"), path, message.get("status", 101), elapsed_ms)
            await send(message)

        await self._app(scope, receive, send_logged)


class _Server(uvicorn.Server):
    """uvicorn without its hold on the process's signals, and with a ready moment that can be awaited."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class LoopbackServer:
    """One ASGI application on one listening socket, within the running loop."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        for name in ("uvicorn", "uvicorn.error", "websockets"):
            logging.getLogger(name).setLevel(logging.ERROR)  # their INFO lines hold whole URLs, queries included
        settings: dict[str, Any] = {
            "http": HttpConnection,
            "ws": WebSocketConnection,
            "ws_max_size": AGENT_FRAME_BYTES_MAX,
            "ws_per_message_deflate": False,  # a compressed bomb costs nothing to send; loopback gains nothing
            "ws_ping_interval": PING_INTERVAL_S,
            "ws_ping_timeout": PING_ANSWER_S_MAX,
            "lifespan": "off",
            "log_config": None,
            "access_log": False,
            "server_header": False,
            "proxy_headers": False,
            "timeout_keep_alive": 30,
            "timeout_graceful_shutdown": STOP_S_MAX,
        }
        self._listener = listener
        self._server = _Server(uvicorn.Config(app, **settings))
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    async def start(self) -> asyncio.Task[None]:
        """Serve; returns the task that ends when the server does, once it takes connections."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]), name="loopback-server")
        ready = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self._task
            raise AssertionError("the server ended before it was ready")
        return self._task

    async def stop(self) -> None:
        """Take no more connections, end those that are there, and wait for it."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
