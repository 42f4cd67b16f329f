"""The connection to the Runtime: ``RuntimeLink`` for an event loop, ``RuntimeClient`` for plain code (the CLI).

This file owns carrying: sending, receiving, waiting, time limits and the end of the connection. What the messages mean
is `host_session`'s and the callers'. The loop's side runs without a task per message: libzmq's descriptor wakes
``_drain``, which takes everything that is there and calls the callbacks.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq

from lineup_hostshell.host_session import HostSession, Role, Welcome, endpoint, new_action_id, refusal
from lineup_hostshell.zmq_peer import ZmqPeer
from lineup_protocol.errors import LineUpError

HANDSHAKE_S_MAX = 10.0
ANSWER_S_MAX = 30.0  # a durable action waits for a commit; a stalled disk may take seconds
DRAIN_MESSAGES_MAX = 256  # per turn of the loop, so that a burst of the Runtime does not starve the web side
FINAL_CALL_STATES = frozenset({"completed", "failed", "cancelled", "expired", "rejected"})

Handler = Callable[[dict[str, Any]], None]

_log = logging.getLogger("lineup.hostshell.runtime_link")


def _gone() -> LineUpError:
    return LineUpError("no_runtime", "the Runtime has ended or does not accept the connection")


def _unanswered(type_: str, limit_s: float) -> LineUpError:
    return LineUpError("no_runtime", f"the Runtime did not answer {type_} within {limit_s:g} s")


class RuntimeLink:
    """The link of one event loop. ``handlers`` maps a message type to what is called with its body.

    A handler runs inside the loop, must not block and must not raise; one that does is a bug and ends the link.
    """

    def __init__(self, run_dir: Path, role: Role, handlers: dict[str, Handler]) -> None:
        self._run_dir = run_dir
        self._session = HostSession(role)
        self._handlers = dict(handlers)
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._writers: deque[asyncio.Future[None]] = deque()
        self._peer: ZmqPeer | None = None
        self._drain_scheduled = False
        self._greeted: asyncio.Future[Welcome] | None = None
        self.lost = asyncio.Event()

    async def connect(self) -> Welcome:
        """Connect and shake hands.

        Raises:
            LineUpError: ``no_runtime``, ``home_unusable``, ``protocol_unsupported`` or the Runtime's own refusal.
        """
        self._loop = asyncio.get_running_loop()
        self._peer = ZmqPeer(endpoint(self._run_dir))
        self._greeted = self._loop.create_future()
        self._loop.add_reader(self._peer.socket.FD, self._drain)
        self._loop.add_reader(self._peer.monitor.FD, self._drain)
        self._peer.try_send(self._session.hello())
        self._drain_soon()
        try:
            async with asyncio.timeout(HANDSHAKE_S_MAX):
                return await self._greeted
        except BaseException as problem:
            self.close()
            if isinstance(problem, TimeoutError):
                raise _unanswered("host.hello", HANDSHAKE_S_MAX) from None
            raise

    async def send(self, type_: str, body: dict[str, Any]) -> None:
        """Hand one message to the Runtime; waits while its queue is full.

        Raises:
            LineUpError: ``message_invalid`` if the body cannot be carried; ``no_runtime`` if the Runtime is gone.
        """
        await self._carry(self._session.note(type_, body))

    async def begin(
        self, type_: str, body: dict[str, Any], *, timeout_s: float = ANSWER_S_MAX
    ) -> asyncio.Future[dict[str, Any]]:
        """Send, in order with what was sent before, and return what will be the body of ``host.result``.

        The future may also end as LineUpError ``no_runtime``, at the latest after ``timeout_s``. Raises as ``send``.
        """
        id_, data = self._session.request(type_, body)
        answer = self._pending[id_] = self._loop.create_future()
        answer.add_done_callback(lambda _: self._pending.pop(id_, None))
        try:
            await self._carry(data)
        except BaseException:
            answer.cancel()
            raise
        timer = self._loop.call_later(timeout_s, self._expire, answer, type_, timeout_s)
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    @staticmethod
    def _expire(answer: asyncio.Future[dict[str, Any]], type_: str, limit_s: float) -> None:
        if not answer.done():
            answer.set_exception(_unanswered(type_, limit_s))

    async def request(self, type_: str, body: dict[str, Any], *, timeout_s: float = ANSWER_S_MAX) -> Any:
        """Send, and return the ``detail`` of the answer. Raises LineUpError with the refusal's code."""
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self.begin(type_, body, timeout_s=timeout_s)
        except TimeoutError:
            raise _unanswered(type_, timeout_s) from None
        result = await answer
        if not result["accepted"]:
            raise refusal(result)
        return result.get("detail")

    async def query(self, name: str, args: dict[str, Any] | None = None) -> Any:
        return await self.request("host.query", {"name": name, "args": args or {}})

    async def action(self, name: str, args: dict[str, Any] | None = None, *, action_id: str | None = None) -> Any:
        """A durable action; the same ``action_id`` again has no second effect."""
        body = {"action_id": action_id or new_action_id(name), "name": name, "args": args or {}}
        return await self.request("host.action", body)

    async def subscribe(self) -> Any:
        """The snapshot for people; ``host.delta`` goes to its handler from now on."""
        return await self.request("host.subscribe", {})

    async def watch(self, call_id: str, agent_id: str) -> Any:
        """``host.watched`` goes to its handler at every change of this call."""
        return await self.request("host.watch", {"call_id": call_id, "agent_id": agent_id})

    def close(self) -> None:
        """Close now; what was already sent may still leave. Safe to call twice."""
        peer, self._peer = self._peer, None
        if peer is not None:
            self._loop.remove_reader(peer.socket.FD)
            self._loop.remove_reader(peer.monitor.FD)
            peer.close()
        self._fail_all()

    async def _carry(self, data: bytes) -> None:
        while True:
            if self._peer is None or self.lost.is_set():
                raise _gone()
            if self._peer.try_send(data):
                self._drain_soon()
                return
            room = self._loop.create_future()
            self._writers.append(room)
            # A full queue may have got room between the attempt and now: only a look at the socket's events,
            # after the waiter is in place, is free of that race.
            self._drain_soon()
            await room

    def _drain_soon(self) -> None:
        """libzmq's descriptor is edge-triggered and a send may swallow the edge, so look again after each one."""
        if not self._drain_scheduled:
            self._drain_scheduled = True
            self._loop.call_soon(self._drain_scheduled_now)

    def _drain_scheduled_now(self) -> None:
        self._drain_scheduled = False
        self._drain()

    def _drain(self) -> None:
        peer = self._peer
        if peer is None:
            return
        ended = peer.is_gone()  # asked first: what the Runtime said before its end is still taken
        taken = 0
        while taken < DRAIN_MESSAGES_MAX and (data := peer.try_receive()) is not None:
            taken += 1
            self._take(data)
            if self._peer is None:
                return
        if self._writers and peer.may_send():
            self._wake_writers()
        if taken == DRAIN_MESSAGES_MAX:
            self._drain_soon()
        elif ended:
            self._lose()

    def _wake_writers(self) -> None:
        writers, self._writers = self._writers, deque()
        for room in writers:
            if not room.done():
                room.set_result(None)

    def _take(self, data: bytes) -> None:
        try:
            type_, body = self._session.read(data)
        except LineUpError as error:
            _log.error("dropped a message of the Runtime: %s", error)
            return
        if self._greeted is not None and not self._greeted.done():
            try:
                self._greeted.set_result(self._session.welcome(type_, body))
            except LineUpError as error:
                self._greeted.set_exception(error)
            return
        if type_ == "host.result":
            answer = self._pending.get(body["re"])
            if answer is not None and not answer.done():
                answer.set_result(body)
            return
        handler = self._handlers.get(type_)
        if handler is None:
            _log.warning("nobody here handles %s", type_)
            return
        try:
            handler(body)
        except Exception:
            _log.exception("the handler of %s failed; giving up the link", type_)
            self._lose()

    def _lose(self) -> None:
        if self.lost.is_set():
            return
        self.lost.set()
        self._fail_all()

    def _fail_all(self) -> None:
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_exception(_gone())
        for answer in list(self._pending.values()):
            if not answer.done():
                answer.set_exception(_gone())
        writers, self._writers = self._writers, deque()
        for room in writers:
            if not room.done():
                room.set_exception(_gone())


class RuntimeClient:
    """The same link without an event loop. Use as a context manager; one thread only.

    Raises LineUpError everywhere: ``no_runtime`` if there is none (any more), else the Runtime's refusal.
    """

    def __init__(self, run_dir: Path, *, role: Role = "cli", answer_s_max: float = ANSWER_S_MAX) -> None:
        self._run_dir = run_dir
        self._session = HostSession(role)
        self._answer_s_max = answer_s_max
        self._inbox: deque[tuple[str, dict[str, Any]]] = deque()
        self._peer: ZmqPeer | None = None
        self.welcome: Welcome

    def __enter__(self) -> RuntimeClient:
        self._peer = ZmqPeer(endpoint(self._run_dir))
        try:
            self._peer.try_send(self._session.hello())
            message = self._receive(HANDSHAKE_S_MAX)
            if message is None:
                raise _unanswered("host.hello", HANDSHAKE_S_MAX)
            self.welcome = self._session.welcome(*message)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    def query(self, name: str, args: dict[str, Any] | None = None) -> Any:
        return self._request("host.query", {"name": name, "args": args or {}})

    def action(
        self,
        name: str,
        args: dict[str, Any] | None = None,
        *,
        action_id: str | None = None,
        takes_its_time: bool = False,
    ) -> Any:
        """A durable action; the same ``action_id`` again has no second effect.

        For one that ``takes_its_time`` the answer is waited for as long as the Runtime is there.
        """
        body = {"action_id": action_id or new_action_id(name), "name": name, "args": args or {}}
        return self._request("host.action", body, takes_its_time=takes_its_time)

    def watch(self, call_id: str, agent_id: str, *, timeout_s: float | None = None) -> Iterator[dict[str, Any]]:
        """The records of one call as it changes, the final one last; ends early, without it, after ``timeout_s``.

        The answer to the request has the record of its moment: a call that was final by then changes no more.
        """
        detail = self._request("host.watch", {"call_id": call_id, "agent_id": agent_id})
        answer = [("host.watched", {"call_id": call_id, "record": detail["record"]})] if detail else []
        before, self._inbox = [*self._inbox, *answer], deque()
        for type_, body in itertools.chain(before, self._messages(timeout_s)):
            if type_ != "host.watched" or body["call_id"] != call_id:
                continue
            yield body["record"]
            if body["record"].get("status") in FINAL_CALL_STATES:
                return

    def follow(self, *, timeout_s: float | None = None) -> Iterator[dict[str, Any]]:
        """The snapshot for people as ``{"snapshot": …}``, then every delta ``{"revision", "changes"}``."""
        yield {"snapshot": self._request("host.subscribe", {})}
        for type_, body in self._messages(timeout_s):
            if type_ == "host.delta" and "changes" in body:
                yield body
            elif type_ == "host.delta":
                yield {"snapshot": self._request("host.subscribe", {})}

    def _messages(self, timeout_s: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self._inbox:
                yield self._inbox.popleft()
                continue
            message = self._receive(None if ends_at is None else ends_at - time.monotonic())
            if message is None:
                return
            yield message

    def _request(self, type_: str, body: dict[str, Any], *, takes_its_time: bool = False) -> Any:
        id_, data = self._session.request(type_, body)
        ends_at = time.monotonic() + self._answer_s_max
        while not self._live_peer().try_send(data):
            if not self._wait(zmq.POLLOUT, ends_at - time.monotonic()):
                raise _unanswered(type_, self._answer_s_max)
        while (message := self._receive(None if takes_its_time else ends_at - time.monotonic())) is not None:
            if message[0] != "host.result":
                self._inbox.append(message)
            elif message[1]["re"] == id_:
                if not message[1]["accepted"]:
                    raise refusal(message[1])
                return message[1].get("detail")
        raise _unanswered(type_, self._answer_s_max)

    def _live_peer(self) -> ZmqPeer:
        if self._peer is None:
            raise _gone()
        return self._peer

    def _receive(self, timeout_s: float | None) -> tuple[str, dict[str, Any]] | None:
        """The next message, or None when the time is over."""
        peer = self._live_peer()
        if (data := peer.try_receive()) is None:
            if not self._wait(zmq.POLLIN, timeout_s):
                return None
            data = peer.socket.recv()
        return self._session.read(data)

    def _wait(self, event: int, timeout_s: float | None) -> bool:
        """True when the socket is ready, False when the time is over; a lost Runtime raises."""
        peer = self._live_peer()
        poller = zmq.Poller()
        poller.register(peer.socket, event)
        poller.register(peer.monitor, zmq.POLLIN)
        ends_at = None if timeout_s is None else time.monotonic() + max(0.0, timeout_s)
        while True:
            left_ms = None if ends_at is None else max(0, int((ends_at - time.monotonic()) * 1000))
            ready = dict(poller.poll(left_ms))
            if not ready:
                return False
            if ready.get(peer.socket, 0) & event:
                return True
            if peer.is_gone() and not peer.socket.poll(0, event):
                raise _gone()
