"""A server of an attacker's on another port: counts what reaches it, and serves a page to have beside the workspace."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

PAGE = b"<!doctype html><html lang=en><title>Elsewhere</title><p>Elsewhere</p></html>"


class _Handler(BaseHTTPRequestHandler):
    reached: ClassVar[list[str]] = []

    def _answer(self) -> None:
        type(self).reached.append(f"{self.command} {self.path}")
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("access-control-allow-origin", "*")
        self.send_header("content-length", str(len(PAGE)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(PAGE)

    do_GET = do_POST = do_HEAD = do_OPTIONS = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what matters is kept in ``reached``."""


class Elsewhere:
    def __init__(self, origin: str, reached: list[str]) -> None:
        self.origin = origin
        self.url = f"{origin}/"
        self.reached = reached


@contextlib.contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    handler = type("Handler", (_Handler,), {"reached": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield Elsewhere(f"http://127.0.0.1:{server.server_address[1]}", handler.reached)
        finally:
            server.shutdown()
            thread.join()
