"""uvicorn's two connection classes, hardened: what a peer may do to a connection before, beside and after the handlers.

Owns limits that a handler cannot keep: how long and how large a request's head may be, how many fragments a message may
have, pongs to a peer that floods pings and does not read, bytes waiting for a slow reader, and a closing that ends. It
must not know what travels on a connection. These classes lean on uvicorn's own; tests drive each override over a real
socket, so that an upgrade of uvicorn that moves the ground is seen.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import ProtocolError
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.server import ServerProtocol
from websockets.typing import StatusLike

from lineup_hostshell.headers import secured

CONNECTIONS_MAX = 1024  # TCP connections of one port; more than browsers and agents of one machine need
REQUEST_HEAD_BYTES_MAX = 64 * 1024  # request line and headers; twice what the strictest common server allows
REQUEST_HEAD_S_MAX = 10.0  # a silent or trickling peer gives its descriptor back after this
FRAGMENTS_MAX = 4096  # of one message; empty fragments cost the peer 6 bytes each and us an object each
CLOSE_S_MAX = 2.0  # for the closing handshake and the last bytes; then the connection is cut
CLOSE_REASON_BYTES_MAX = 123


def _refusal(code: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()


class HttpConnection(HttpToolsProtocol):
    """One HTTP connection whose request heads are bounded in time and size."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > REQUEST_HEAD_BYTES_MAX:
            self._head_arrived()
            self._answer(431, "message_too_large", f"the request's head is over {REQUEST_HEAD_BYTES_MAX} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._head_arrived()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._head_arrived()
        self._answer(400, "message_invalid", "not an HTTP request")

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(REQUEST_HEAD_S_MAX, self._head_is_late)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        self._answer(408, "message_invalid", f"the request's head took longer than {REQUEST_HEAD_S_MAX:g} s")

    def _answer(self, status: int, code: str, message: str) -> None:
        """Answer without a handler, then close."""
        if self.transport.is_closing():
            return
        body = _refusal(code, message)
        lines = [STATUS_LINE[status]]
        for name, value in secured([(b"content-type", b"application/json"), (b"connection", b"close")]):
            lines += [name, b": ", value, b"\r\n"]
        lines += [b"content-length: %d\r\n\r\n" % len(body), body]
        self.transport.write(b"".join(lines))
        self.transport.close()


class _BoundedServerProtocol(ServerProtocol):
    """websockets' own protocol, with a cap on fragments and refusals in this server's form."""

    _fragments = 0

    def recv_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CONT:
            self._fragments += 1
            if self._fragments > FRAGMENTS_MAX:
                raise ProtocolError(f"more than {FRAGMENTS_MAX} fragments")
        elif frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
            self._fragments = 1
        super().recv_frame(frame)

    def reject(self, status: StatusLike, text: str) -> Response:
        """websockets' text may repeat what the peer sent, so it is replaced, and the security headers are added."""
        body = _refusal("message_invalid", "the WebSocket handshake was refused")
        response = super().reject(status, body.decode())
        del response.headers["Content-Type"]
        for name, value in secured([(b"content-type", b"application/json")]):
            response.headers[name.decode()] = value.decode()
        return response


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket that a handler can write to at once and close for sure; in ``scope["lineup.socket"]``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _BoundedServerProtocol(max_size=self.config.ws_max_size, logger=self.logger)

    async def run_asgi(self) -> None:
        self.scope["lineup.socket"] = self  # type: ignore[typeddict-unknown-key]
        try:
            await super().run_asgi()
        finally:
            self._cut_later()

    def handle_ping(self) -> None:
        output = self.conn.data_to_send()
        if self.writable.is_set():  # a peer that sends pings and does not read gets no further pongs
            self.transport.write(b"".join(output))

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._cut_later()

    def shutdown(self) -> None:
        super().shutdown()
        self._cut_later()

    def send_receive_event_to_app(self) -> None:
        """As uvicorn's, but bad UTF-8 is the peer's fault and no traceback in our log."""
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(self.frames):
            self.frames = []
            self.conn.send_close(1007, "text must be UTF-8")
            self.handle_parser_exception()
            self._cut_later()
            return
        super().send_receive_event_to_app()

    @property
    def buffered_bytes(self) -> int:
        """Bytes written and not yet taken by the kernel."""
        return self.transport.get_write_buffer_size()

    def limit_message(self, bytes_max: int) -> None:
        """From now on, a longer message (all its fragments together) closes the connection with 1009."""
        self.conn.max_message_size = bytes_max

    def write_texts(self, texts: Iterable[bytes]) -> None:
        """Send text messages, in order, in one write. A connection that is closing swallows them."""
        if self.close_sent or self.disconnected or self.transport.is_closing() or not self.handshake_complete:
            return
        for text in texts:
            self.conn.send_text(text)
        self.transport.write(b"".join(self.conn.data_to_send()))

    def close_with(self, code: int, reason: str) -> None:
        """Send a close frame behind what was written; the connection is cut if the peer does not follow in time."""
        if self.close_sent or self.disconnected or self.transport.is_closing() or not self.handshake_complete:
            return
        reason = clip_utf8(reason, CLOSE_REASON_BYTES_MAX)
        self.conn.send_close(code if _may_be_sent(code) else 1011, reason)
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(CLOSE_S_MAX, self.transport.abort)

    def _cut_later(self) -> None:
        """Closing a transport waits for its buffer, and a peer that does not read would keep it for ever."""
        self.loop.call_later(CLOSE_S_MAX, self.transport.abort)


def clip_utf8(text: str, bytes_max: int) -> str:
    """The longest prefix of ``text`` within ``bytes_max`` bytes of UTF-8 that ends at a character."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def _may_be_sent(code: int) -> bool:
    return code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014) or 3000 <= code < 5000


def _is_utf8(parts: Sequence[bytes]) -> bool:
    try:
        (parts[0] if len(parts) == 1 else b"".join(parts)).decode()
    except UnicodeDecodeError:
        return False
    return True
