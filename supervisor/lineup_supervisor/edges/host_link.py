"""The host link: messages of hostshell and the command line to events, effects to messages for them.

This file owns the handshake, the addresses of answers, who carries which agent link, who subscribes and who watches. It
must not know what a query or an action means; names under ``host.`` and ``runtime.`` go to the daemon's own handler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from lineup_protocol.codec import CAPS, decode, decode_message, encode_message
from lineup_protocol.errors import LineUpError
from lineup_protocol.handshake import choose_version
from lineup_protocol.ids import is_id
from lineup_protocol.limits import MIB
from lineup_protocol.messages import check_lengths, find
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.edges.transport import HostSocket

FINAL_CALL_STATES = frozenset({"completed", "failed", "cancelled", "expired", "rejected"})
SNAPSHOT_QUERY = "snapshot"  # what host.subscribe asks the core
AGENT_SEND_BYTES_MAX = 4 * MIB  # of frames in one message, if there are several: far below what a message may have

_encode_json = msgspec.json.Encoder().encode


@dataclass
class Request:
    """One message that waits for its ``host.result``."""

    peer: bytes
    message_id: str
    kind: str  # query | action | subscribe | watch
    name: str
    watched: tuple[str, str] | None = None


@dataclass
class Session:
    """One peer that said hello."""

    peer: bytes
    role: str
    pid: int
    protocol: int
    links: set[str] = field(default_factory=set)
    subscribed: bool = False
    watched: set[tuple[str, str]] = field(default_factory=set)


class HostLink:
    """See the module. Use from the loop's thread only. ``socket`` is set by whoever makes both.

    Args:
        submit: takes the events for the core, or answers them itself.
        own: answers names under ``host.`` and ``runtime.`` and what else it knows; returns False if the core must.
        welcome: the body of ``host.welcome`` but for ``protocol``.
        new_event_id: a fresh id at every call.
        on_lost: a session is over, and why.
    """

    def __init__(
        self,
        *,
        submit: Callable[[ev.AnyEvent], None],
        own: Callable[[Request, Session, dict[str, Any], str], bool],
        welcome: Callable[[Session], dict[str, Any]],
        new_event_id: Callable[[], str],
        on_lost: Callable[[Session, str], None],
        log: Any,
    ) -> None:
        self.socket: HostSocket
        self._submit = submit
        self._own = own
        self._welcome = welcome
        self._new_event_id = new_event_id
        self._on_lost = on_lost
        self._log = log
        self._sessions: dict[bytes, Session] = {}
        self._requests: dict[str, Request] = {}
        self._carriers: dict[str, bytes] = {}  # link_id → peer
        self._watchers: dict[tuple[str, str], set[bytes]] = {}  # (agent_id, call_id) → peers

    # what comes in

    def on_message(self, peer: bytes, data: bytes) -> None:
        try:
            type_, message_id, body = decode_message(data, "host", from_runtime=False)
            row = find("host", type_, from_runtime=False)
            assert row is not None, type_
            check_lengths(row, body, path="/body")
        except LineUpError as error:
            self._refuse(peer, data, error)
            return
        session = self._sessions.get(peer)
        if type_ == "host.hello":
            self._greet(peer, body)
        elif session is None:
            self._send(peer, "host.refuse", {"code": "message_invalid", "message": "host.hello comes first"})
        elif type_ == "agent.frame":
            self._agent_frame(session, body)
        elif type_ == "agent.closed":
            self._agent_closed(session, body["link_id"])
        else:
            self._request(session, type_, message_id, body)

    def _refuse(self, peer: bytes, data: bytes, error: LineUpError) -> None:
        """Answer a message that breaks the protocol by its id if it has one."""
        self._log.warning("host link: message refused", error=str(error), size=len(data))
        try:
            frame = decode(data, CAPS["host", False], allow_bytes=True)
        except LineUpError:
            frame = None
        message_id = frame.get("id") if isinstance(frame, dict) else None
        if is_id(message_id):
            self._send(peer, "host.result", {"re": message_id, "accepted": False, **error.as_dict()})
        elif peer not in self._sessions:
            self._send(peer, "host.refuse", {"code": error.code, "message": error.message})

    def on_gone(self, peer: bytes, reason: str) -> None:
        """The peer's process or connection is gone, and all that it carried with it."""
        session = self._sessions.pop(peer, None)
        if session is None:
            return
        self._log.debug("host link: peer gone", role=session.role, pid=session.pid, reason=reason)
        for link_id in sorted(session.links):
            self._agent_closed(session, link_id)
        for watched in list(session.watched):
            self._unwatch(session, watched)
        self._on_lost(session, reason)

    def _unwatch(self, session: Session, watched: tuple[str, str]) -> None:
        session.watched.discard(watched)
        peers = self._watchers.get(watched, set())
        peers.discard(session.peer)
        if not peers:
            self._watchers.pop(watched, None)

    def _greet(self, peer: bytes, body: dict[str, Any]) -> None:
        try:
            protocol = choose_version(body["protocols"])
        except LineUpError as error:
            self._send(peer, "host.refuse", {"code": error.code, "message": error.message})
            return
        known = self._sessions.get(peer)
        session = known or Session(peer, body["role"], body["pid"], protocol)
        self._sessions[peer] = session
        self.socket.watch(peer, session.pid)
        if session.role == "hostshell":
            self.socket.pin(peer)
        self._send(peer, "host.welcome", {"protocol": protocol, **self._welcome(session)})

    def _agent_frame(self, session: Session, body: dict[str, Any]) -> None:
        link_id = body["link_id"]
        carrier = self._carriers.setdefault(link_id, session.peer)
        if carrier != session.peer:
            self._log.warning("host link: frame of a link that another peer carries", link_id=link_id, pid=session.pid)
            return
        session.links.add(link_id)
        self._submit(ev.AgentFrame(event_id=self._new_event_id(), link_id=link_id, frame=body["frame"]))

    def _agent_closed(self, session: Session, link_id: str) -> None:
        if self._carriers.get(link_id) != session.peer:
            return
        del self._carriers[link_id]
        session.links.discard(link_id)
        self._submit(ev.AgentLinkClosed(event_id=self._new_event_id(), link_id=link_id))

    def _request(self, session: Session, type_: str, message_id: str | None, body: dict[str, Any]) -> None:
        if message_id is None:
            self._log.warning("host link: request without an id", type=type_, pid=session.pid)
            return
        kind = type_.removeprefix("host.")
        reply_to = f"{session.peer.hex()}.{message_id}"
        request = Request(session.peer, message_id, kind, body.get("name", SNAPSHOT_QUERY))
        if reply_to in self._requests:
            return  # the same request is in work; its answer serves both
        self._requests[reply_to] = request
        if kind in ("query", "action") and self._own(request, session, body, reply_to):
            return
        event_id = self._new_event_id()
        if kind == "action":
            self._submit(action_event(event_id, reply_to, session, body))
        elif kind == "watch":
            watched = request.watched = (body["agent_id"], body["call_id"])
            session.watched.add(watched)
            self._watchers.setdefault(watched, set()).add(session.peer)
            self._submit(ev.HostWatch(event_id=event_id, reply_to=reply_to, agent_id=watched[0], call_id=watched[1]))
        else:
            self._submit(
                ev.HostQuery(event_id=event_id, reply_to=reply_to, name=request.name, args=body.get("args", {}))
            )

    # what goes out

    def request_of(self, reply_to: str) -> Request | None:
        return self._requests.get(reply_to)

    def reply(self, effect: fx.ReplyHost) -> None:
        """The one answer; from a snapshot's answer on, its asker gets the deltas."""
        request = self._requests.pop(effect.reply_to, None)
        if request is None:
            return
        session = self._sessions.get(request.peer)
        if session is not None and request.kind == "subscribe" and effect.accepted:
            session.subscribed = True
        if session is not None and request.watched is not None and not effect.accepted:
            self._unwatch(session, request.watched)
        body: dict[str, Any] = {"re": request.message_id, "accepted": effect.accepted}
        for name in ("code", "message", "detail"):
            if (value := getattr(effect, name)) is not None:
                body[name] = value
        self._send(request.peer, "host.result", body)

    def send_agent(self, effect: fx.SendAgent) -> None:
        """As the texts that the WebSocket will carry, so that its carrier has nothing to do but to hand them on."""
        peer = self._carriers.get(effect.link_id)
        if peer is None:
            return
        texts: list[bytes] = []
        size = 0
        for text in map(_encode_json, effect.frames):
            if texts and size + len(text) > AGENT_SEND_BYTES_MAX:
                self._send(peer, "agent.send", {"link_id": effect.link_id, "frames": texts})
                texts, size = [], 0
            texts.append(text)
            size += len(text)
        self._send(peer, "agent.send", {"link_id": effect.link_id, "frames": texts})

    def close_agent(self, effect: fx.CloseAgent) -> None:
        peer = self._carriers.get(effect.link_id)
        if peer is not None:
            self._send(peer, "agent.close", {"link_id": effect.link_id, "code": effect.code, "reason": effect.reason})

    def delta(self, effect: fx.HostDelta) -> None:
        """To who subscribed; and the record of a call to who watches it."""
        if self._watchers:
            self._tell_watchers(effect.changes)
        subscribers = [session.peer for session in self._sessions.values() if session.subscribed]
        if not subscribers:
            return
        body = {"revision": effect.revision, "changes": list(effect.changes)}
        data = self._encoded("host.delta", body, checked=True)
        if data is None:  # too much for one message; who hears of the revision alone asks for a snapshot
            data = encode_message("host.delta", {"revision": effect.revision}, link="host", from_runtime=True)
        for peer in subscribers:
            self.socket.send(peer, data)

    def _tell_watchers(self, changes: Sequence[dict[str, Any]]) -> None:
        for change in changes:
            record = change["row"]
            if change["kind"] != "call" or record is None:
                continue
            watched = (record["agent_id"], record["call_id"])
            for peer in sorted(self._watchers.get(watched, ())):
                self._send(peer, "host.watched", {"call_id": record["call_id"], "record": record})
                if record["status"] in FINAL_CALL_STATES and (session := self._sessions.get(peer)) is not None:
                    self._unwatch(session, watched)

    def peers_of(self, pid: int) -> list[Session]:
        return [session for session in self._sessions.values() if session.pid == pid]

    def _send(self, peer: bytes, type_: str, body: dict[str, Any]) -> None:
        data = self._encoded(type_, body)
        if data is not None:
            self.socket.send(peer, data)
        elif type_ == "host.result":
            refusal = {"re": body["re"], "accepted": False, "code": "message_too_large"}
            refusal["message"] = "the answer is over the size of one message; ask for less"
            self.socket.send(peer, encode_message(type_, refusal, link="host", from_runtime=True))

    def _encoded(self, type_: str, body: dict[str, Any], *, checked: bool = False) -> bytes | None:
        try:
            return encode_message(type_, body, link="host", from_runtime=True, checked=checked)
        except LineUpError as error:
            self._log.error("host link: message cannot be sent", type=type_, error=str(error))
            return None


def action_event(event_id: str, reply_to: str, session: Session, body: dict[str, Any]) -> ev.HostAction:
    """What hostshell sends comes from a person, what the command line sends from the operator."""
    return ev.HostAction(
        event_id=event_id,
        reply_to=reply_to,
        action_id=body["action_id"],
        actor="person" if session.role == "hostshell" else "operator",
        name=body["name"],
        args=body["args"],
    )
