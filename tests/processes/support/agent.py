"""An agent of our own making: raw JSON frames over ``websockets``, with a log of all that it sent and received.

It behaves as the contract asks of an agent: it remembers what it has not been answered and what it has not
acknowledged, resends under the same ``message_id`` after a reconnect, and takes each ``seq`` over once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import time
from collections.abc import Callable
from typing import Any

import websockets

from checkers.history import AgentLog, Entry
from processes.support.runtime import Runtime
from processes.support.waiting import until

Frame = dict[str, Any]
SENT_AT = "2026-11-30T08:00:00Z"
WELCOME_S = 10.0


class Cut(Exception):
    """The link is gone."""


class Agent:
    """See the module. ``acks`` off: nothing is acknowledged until ``ack`` is called."""

    def __init__(self, runtime: Runtime, agent_id: str, *, acks: bool = True) -> None:
        self.runtime = runtime
        self.agent_id = agent_id
        self.acks = acks
        self.conversation = f"c-{agent_id}"[:120]
        self.log = AgentLog(agent_id)
        self.results: dict[str, Frame] = {}  # call_id → payload
        self.progress: dict[str, list[Frame]] = {}
        self.receipts: dict[str, Frame] = {}  # message_id → payload
        self.errors: list[Frame] = []
        self.texts: list[Frame] = []
        self.states: list[Frame] = []
        self.frames: list[Frame] = []  # all that came, in order
        self.welcome: Frame = {}
        self.revision = ""
        self.taken_seq = 0
        self.closed: tuple[int | None, str] | None = None
        self._unanswered: dict[str, Frame] = {}  # message_id → frame, to be sent again
        self._socket: websockets.ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._name = secrets.token_hex(4)  # two of the same agent_id do not speak with each other's message_ids
        self._numbers = itertools.count(1)
        self._links = itertools.count(1)
        self._link = ""

    # -- the link

    async def connect(self, *, hello: bool = True, acked_seq: int | None = None, resend: bool = True) -> None:
        """Open a link and say hello; what was not answered is sent again. Raises ``Cut`` if it cannot be."""
        facts = self.runtime.facts()
        if not facts.get("agent_url"):
            raise Cut("there is no Runtime")
        token = (self.runtime.home / "run" / "agent.token").read_text().strip()
        try:
            self._socket = await websockets.connect(
                facts["agent_url"],
                additional_headers={"Authorization": f"Bearer {token}"},
                proxy=None,
                max_size=None,
                open_timeout=WELCOME_S,
                ping_interval=None,
            )
        except (OSError, websockets.WebSocketException, TimeoutError) as error:
            raise Cut(str(error)) from error
        self._link = f"{self.agent_id}-{next(self._links)}"
        self.closed = None
        self.welcome, self.revision = {}, ""
        self._note("opened", None)
        self._reader = asyncio.create_task(self._read(self._socket, self._link))
        if hello:
            payload: Frame = {"agent_id": self.agent_id, "protocol": 1}
            if acked_seq is not None:
                payload["acked_seq"] = acked_seq
            await self.send_frame(self.frame("hello", payload))
            await self.until(lambda: self.welcome and self.revision, WELCOME_S, "welcome and inventory")
            if resend:
                for frame in list(self._unanswered.values()):
                    await self.send_frame(frame)

    async def cut(self) -> None:
        """Tear the connection without a word."""
        if self._socket is not None:
            self._socket.transport.abort()
            await self._over()

    async def leave(self) -> None:
        """Close in an orderly way."""
        if self._socket is not None:
            with contextlib.suppress(websockets.WebSocketException, OSError):
                await self._socket.close()
            await self._over()

    async def _over(self) -> None:
        reader, self._reader, self._socket = self._reader, None, None  # first: another may end the same link meanwhile
        if reader is not None:
            await asyncio.wait((reader,), timeout=5)
            reader.cancel()

    @property
    def is_connected(self) -> bool:
        return self._socket is not None and self.closed is None

    async def _read(self, socket: websockets.ClientConnection, link: str) -> None:
        try:
            async for text in socket:
                frame = json.loads(text)
                self._note("received", frame, link)
                self._take(frame)
                if "seq" in frame and self.acks:
                    await self.ack()
        except (websockets.WebSocketException, OSError, Cut):
            pass
        finally:
            self.closed = (socket.close_code, socket.close_reason or "")
            self._note("closed", socket.close_code, link)

    def _take(self, frame: Frame) -> None:
        kind, payload = frame["type"].removeprefix("lineup.v1."), frame["payload"]
        self.frames.append(frame)
        if "seq" in frame:
            if frame["seq"] <= self.taken_seq:
                return  # sent again; taken over already
            self.taken_seq = frame["seq"]
        match kind:
            case "welcome":
                self.welcome = payload
            case "client.inventory":
                self.revision = payload["revision"]
            case "receipt":
                self.receipts[payload["reply_to"]] = payload
                if payload.get("code") != "runtime_stopping":  # then the same message is for the next run
                    self._unanswered.pop(payload["reply_to"], None)
            case "tool.result":
                assert payload["call_id"] not in self.results, f"a second result of {payload['call_id']}"
                self.results[payload["call_id"]] = payload
            case "tool.progress":
                self.progress.setdefault(payload["call_id"], []).append(payload)
            case "message.text":
                self.texts.append(payload)
            case "tool.state":
                self.states.append(payload)
            case "error":
                self.errors.append(payload)
                self._unanswered.pop(payload.get("reply_to", ""), None)

    def _note(self, what: str, data: Any, link: str = "") -> None:
        # One clock for all logs of this machine; equal stamps cannot be, a frame takes microseconds.
        self.log.entries.append(Entry(time.monotonic_ns(), time.time_ns() // 1_000_000, what, data, link or self._link))

    async def until(self, what: Callable[[], Any], within_s: float, words: str) -> Any:
        """As ``waiting.until``; raises ``Cut`` as soon as the link is gone and the condition is not met."""
        value = await until(lambda: what() or self.closed is not None or self._socket is None, within_s, words)
        if not what():
            raise Cut(f"{self.agent_id} lost its link ({self.closed}) while it waited for: {words}")
        return value

    # -- what it says

    def frame(self, kind: str, payload: Frame, conversation: str | None = None, message_id: str = "") -> Frame:
        message_id = message_id or f"m-{self._name}-{next(self._numbers)}"
        frame: Frame = {"type": f"lineup.v1.{kind}", "message_id": message_id, "sent_at": SENT_AT, "payload": payload}
        return frame | ({} if conversation is None else {"conversation_id": conversation})

    async def send_frame(self, frame: Frame) -> None:
        self._note("sent", frame)
        await self.send_raw(json.dumps(frame))

    async def send_raw(self, data: str | bytes) -> None:
        if self._socket is None:
            raise Cut("there is no link")
        try:
            await self._socket.send(data)
        except (websockets.WebSocketException, OSError) as error:
            raise Cut(str(error)) from error

    async def say(self, kind: str, payload: Frame, conversation: str | None = None) -> str:
        """Send a message that wants a receipt and remember it until it has one; its ``message_id``."""
        frame = self.frame(kind, payload, conversation)
        self._unanswered[frame["message_id"]] = frame
        with contextlib.suppress(Cut):  # it is sent again on the next link
            await self.send_frame(frame)
        return str(frame["message_id"])

    async def call(self, tool_id: str, input_: Any, *, call_id: str, conversation: str = "", revision: str = "") -> str:
        """Its ``message_id``. Without a ``conversation`` it is this agent's own one."""
        payload = {"call_id": call_id, "tool_id": tool_id, "input": input_}
        return await self.say(
            "tool.call",
            payload | {"inventory_revision": revision or self.revision or "r-unknown"},
            conversation or self.conversation,
        )

    async def receipt(self, message_id: str, within_s: float = 10.0) -> Frame:
        await self.until(lambda: message_id in self.receipts, within_s, f"the receipt of {message_id}")
        return self.receipts[message_id]

    async def result(self, call_id: str, within_s: float = 20.0) -> Frame:
        await self.until(lambda: call_id in self.results, within_s, f"the result of {call_id}")
        return self.results[call_id]

    async def ack(self, seq: int | None = None) -> None:
        await self.send_frame(self.frame("ack", {"seq": self.taken_seq if seq is None else seq}))

    async def record(self, call_id: str, within_s: float = 10.0) -> Frame:
        """``tool.get``."""
        known = len(self.states)
        await self.send_frame(self.frame("tool.get", {"call_id": call_id}))
        await self.until(lambda: len(self.states) > known, within_s, f"the state of {call_id}")
        record: Frame = self.states[-1]["record"]
        return record

    @property
    def has_unanswered(self) -> bool:
        return bool(self._unanswered)
