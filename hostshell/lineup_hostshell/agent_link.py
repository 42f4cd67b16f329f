"""The agent link's WebSocket side: text frames in, strict JSON, forwarded as they are; frames out, in order.

This file owns the sockets of agents, their time limits and their buffers. It decides nothing: what a frame means, who
an agent is and what it gets is the Runtime's. A link that ends for whatever reason is reported upward exactly once;
what its agent has not acknowledged, the Runtime sends again on the next link.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from lineup_hostshell.edge_protocols import WebSocketConnection
from lineup_hostshell.security import Refusal, check_bearer, refuse
from lineup_protocol.codec import CAPS, decode_json
from lineup_protocol.envelope import make_envelope, message_id_of
from lineup_protocol.errors import LineUpError
from lineup_protocol.limits import AGENT_LINKS_MAX, MIB

# WebSocket close codes (RFC 6455 §7.4.1 and the IANA registry).
GOING_AWAY, UNSUPPORTED_DATA, POLICY_VIOLATION, SERVICE_RESTART, TRY_AGAIN_LATER = 1001, 1003, 1008, 1012, 1013

SendUp = Callable[[str, dict[str, Any]], Awaitable[None]]

_FULL = Refusal(503, "rate_limited", f"{AGENT_LINKS_MAX} agent links are open already", ((b"retry-after", b"5"),))
_FROM_AGENT = CAPS["agent", False]
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("lineup.hostshell.agent_link")


@dataclass(frozen=True)
class LinkLimits:
    """What one link may cost. The defaults are the product's; tests tighten them."""

    hello_s_max: float = 10.0
    """seconds from the upgrade to a hello; an idle socket is worth nothing to anybody"""
    unread_bytes_max: int = 16 * MIB
    """bytes that wait for an agent that does not read; then it is disconnected and resumes by seq"""


class _Link:
    """One open WebSocket of an agent."""

    def __init__(self, link_id: str, socket: WebSocketConnection) -> None:
        self.link_id = link_id
        self.socket = socket
        self.hello_timer: asyncio.TimerHandle | None = None
        self.errors = itertools.count(1)


class AgentLinks:
    """All agent WebSockets of this process: the ASGI endpoint; ``deliver`` and ``close`` for what the Runtime sends.

    ``send_up`` hands a message to the Runtime and waits while the Runtime's queue is full: that wait is the
    backpressure on a flooding agent, because its socket is not read meanwhile.
    """

    def __init__(self, send_up: SendUp, token: str, limits: LinkLimits | None = None) -> None:
        self._send_up = send_up
        self._token = token
        self._limits = limits or LinkLimits()
        self._links: dict[str, _Link] = {}
        # Unique over restarts of this process too: the Runtime may still hold ids of an earlier one.
        self._prefix = f"ws-{secrets.token_hex(6)}"
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._links)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = check_bearer(scope, self._token) or (_FULL if len(self._links) >= AGENT_LINKS_MAX else None)
        if refusal is not None:
            await refuse(refusal, scope, send)
            return
        link = _Link(f"{self._prefix}-{next(self._numbers)}", scope["lineup.socket"])
        self._links[link.link_id] = link
        started = time.monotonic()
        try:
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})
            link.socket.limit_message(_FROM_AGENT.bytes_max)
            _log.info("agent link %s is open", link.link_id)
            await self._forward_all(link, receive)
        finally:
            del self._links[link.link_id]
            self._stop_hello_timer(link)
            _log.info("agent link %s has ended after %.1f s", link.link_id, time.monotonic() - started)
            await self._report_closed(link)

    def deliver(self, body: dict[str, Any]) -> None:
        """``agent.send``: frames for one link, as bytes of JSON. A link that is gone swallows them."""
        link = self._links.get(body["link_id"])
        if link is None:
            return
        if link.socket.buffered_bytes > self._limits.unread_bytes_max:
            _log.warning("agent link %s does not read; disconnected", link.link_id)
            link.socket.close_with(TRY_AGAIN_LATER, "this agent reads too slowly; reconnect and resume by seq")
            return
        link.socket.write_texts(body["frames"])

    def close(self, body: dict[str, Any]) -> None:
        """``agent.close``: behind everything that was delivered before."""
        link = self._links.get(body["link_id"])
        if link is not None:
            link.socket.close_with(body["code"], body["reason"])

    def close_all(self, code: int, reason: str) -> None:
        for link in self._links.values():
            link.socket.close_with(code, reason)

    async def _forward_all(self, link: _Link, receive: Receive) -> None:
        link.hello_timer = asyncio.get_running_loop().call_later(self._limits.hello_s_max, self._hello_is_late, link)
        while (message := await receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                link.socket.close_with(POLICY_VIOLATION, "the agent link takes JSON text frames only")
                continue
            try:
                # One that is too deep is not sent up either, but refused by its name.
                frame = decode_json(text, bytes_max=_FROM_AGENT.bytes_max, nodes_max=_FROM_AGENT.nodes_max)
            except LineUpError as error:
                self._answer_error(link, error, None)
                continue
            if not isinstance(frame, dict):
                self._answer_error(link, LineUpError("message_invalid", "/: must be an object"), None)
                continue
            await self._forward(link, frame)

    async def _forward(self, link: _Link, frame: dict[str, Any]) -> None:
        if link.hello_timer is not None and frame.get("type") == "lineup.v1.hello":
            self._stop_hello_timer(link)
        try:
            await self._send_up("agent.frame", {"link_id": link.link_id, "frame": frame})
        except LineUpError as error:
            if error.code == "no_runtime":
                link.socket.close_with(SERVICE_RESTART, "the Runtime is going away; reconnect")
            else:
                self._answer_error(link, error, message_id_of(frame))

    def _answer_error(self, link: _Link, error: LineUpError, reply_to: str | None) -> None:
        payload: dict[str, Any] = {"code": error.code, "message": error.message}
        if reply_to is not None:
            payload["reply_to"] = reply_to
        message_id = f"{link.link_id}-e{next(link.errors)}"
        frame = make_envelope("lineup.v1.error", payload, message_id=message_id, wall_ms=time.time_ns() // 1_000_000)
        self.deliver({"link_id": link.link_id, "frames": [_encode(frame)]})

    def _hello_is_late(self, link: _Link) -> None:
        link.hello_timer = None
        link.socket.close_with(POLICY_VIOLATION, f"no lineup.v1.hello within {self._limits.hello_s_max:g} s")

    def _stop_hello_timer(self, link: _Link) -> None:
        if link.hello_timer is not None:
            link.hello_timer.cancel()
            link.hello_timer = None

    async def _report_closed(self, link: _Link) -> None:
        try:
            await asyncio.shield(asyncio.ensure_future(self._send_up("agent.closed", {"link_id": link.link_id})))
        except LineUpError:
            _log.debug("the Runtime is gone; it knows that agent link %s is, too", link.link_id)
