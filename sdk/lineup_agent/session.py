"""The agent's half of the link, without I/O: message ids, what waits for a receipt, sequence numbers, acknowledgement.

Laws:
    1. A message is sent again on every new connection, with the same ``message_id``, until its receipt is here.
    2. A durable message is passed on once, whatever number of times it arrives.
    3. ``acked`` never passes a text that its consumer has not taken over.
    4. At most ``UNDER_WAY_MAX`` messages are sent and without a receipt; the others wait, in their order, for receipts.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from lineup_agent.errors import MessageRefused
from lineup_protocol.codec import canonical_json, decode_json
from lineup_protocol.envelope import make_envelope
from lineup_protocol.errors import LineUpError
from lineup_protocol.limits import AGENT_FRAME_BYTES_MAX, NODES_MAX
from lineup_protocol.messages import PROTOCOL_VERSION

# A quarter of the message_ids that a Runtime remembers of an agent (SPEC 4): none that is sent again after a lost
# connection can have been forgotten and be taken for new. Receipts come after some 10 ms: it slows no agent down.
UNDER_WAY_MAX = 1_024

OnReceipt = Callable[[dict[str, Any]], None]


def encode(frame: dict[str, Any]) -> bytes:
    """A frame as JSON text. Raises MessageRefused, before anything is sent, for what the Runtime could not read: its
    refusal would not say of which message, which would wait for a receipt for ever.
    """
    try:
        data = canonical_json(frame)
        decode_json(data, bytes_max=AGENT_FRAME_BYTES_MAX, nodes_max=NODES_MAX)
    except LineUpError as error:
        raise MessageRefused(error.code, error.message, error.detail) from None
    return data


class Waiting:
    """A message without a receipt."""

    def __init__(self, frame: dict[str, Any], on_receipt: OnReceipt) -> None:
        self.message_id: str = frame["message_id"]
        self.data = encode(frame)
        self.on_receipt = on_receipt
        self.was_resent = False
        self.let_go = asyncio.Event()  # it has been sent, or there is no connection: no reason to hold its sender up
        self._was_sent = False

    def sending(self) -> None:
        """It leaves now."""
        self.was_resent, self._was_sent = self._was_sent, True
        self.let_go.set()


class GapInSequence(Exception):
    """The Runtime skipped a number: this connection cannot be trusted to be complete."""


class AgentSession:
    """State of one agent over all its connections within this process."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.waiting: dict[str, Waiting] = {}
        self._unsent: deque[Waiting] = deque()  # on this connection, oldest first
        self._under_way: set[str] = set()  # on this connection
        self._prefix = f"m-{secrets.token_hex(6)}"
        self._next = 0
        self._seen: int | None = None  # everything up to here has arrived
        self._untaken: set[int] = set()  # texts that arrived and are not taken over
        self._ack_sent = 0

    def make(self, type_: str, payload: dict[str, Any], conversation_id: str | None = None) -> dict[str, Any]:
        """A frame with a new ``message_id``."""
        self._next += 1
        return make_envelope(
            f"lineup.v1.{type_}",
            payload,
            message_id=f"{self._prefix}-{self._next}",
            wall_ms=time.time_ns() // 1_000_000,
            conversation_id=conversation_id,
        )

    def expect_receipt(self, frame: dict[str, Any], on_receipt: OnReceipt) -> Waiting:
        waiting = Waiting(frame, on_receipt)
        self.waiting[waiting.message_id] = waiting
        self._unsent.append(waiting)
        return waiting

    def hello(self) -> dict[str, Any]:
        payload: dict[str, Any] = {"agent_id": self.agent_id, "protocol": PROTOCOL_VERSION}
        if self._seen is not None:
            payload["acked_seq"] = self.acked
            self._ack_sent = self.acked
        return self.make("hello", payload)

    def welcomed(self, acked_seq: int) -> None:
        """A new connection. The Runtime goes on behind ``acked_seq``: the newer of what it and we know."""
        self._unsent = deque(self.waiting.values())
        self._under_way.clear()
        self._seen = max(acked_seq, self._seen or 0)
        self._untaken = {seq for seq in self._untaken if seq > acked_seq}
        self._ack_sent = max(acked_seq, self._ack_sent)

    def forget_sequence(self) -> None:
        """The Runtime's history is shorter than ours (it was restored from a backup): follow it from where it is."""
        self._seen = None
        self._untaken.clear()
        self._ack_sent = 0

    def arrived(self, seq: int, *, taken: bool) -> bool:
        """Note a durable message. False if it has been here before. ``taken`` False: acknowledged by ``take`` later.

        Raises:
            GapInSequence: a number is missing before it.
        """
        seen = self._seen or 0
        if seq <= seen:
            return False
        if seq != seen + 1:
            raise GapInSequence(f"expected seq {seen + 1}, got {seq}")
        self._seen = seq
        if not taken:
            self._untaken.add(seq)
        return True

    def take(self, seq: int) -> None:
        """The consumer has taken over the text with this number."""
        self._untaken.discard(seq)

    def is_untaken(self, seq: int) -> bool:
        return seq in self._untaken

    @property
    def acked(self) -> int:
        """Everything up to here is taken over."""
        return min(self._untaken) - 1 if self._untaken else self._seen or 0

    def next_ack(self) -> dict[str, Any] | None:
        """The acknowledgement that is due, if one is."""
        if self.acked <= self._ack_sent:
            return None
        self._ack_sent = self.acked
        return self.make("ack", {"seq": self.acked})

    def receipt(self, payload: dict[str, Any]) -> None:
        """A receipt, or an error that names one of our messages. One that nobody waits for is a repetition."""
        waiting = self.waiting.get(payload.get("reply_to", ""))
        if waiting is None:
            return
        if payload.get("code") == "runtime_stopping":
            return  # the next Runtime takes it: it stays here, under way, and is sent again after the reconnect
        del self.waiting[waiting.message_id]
        self._under_way.discard(waiting.message_id)
        waiting.on_receipt(payload)

    @property
    def has_due(self) -> bool:
        return bool(self._unsent) and len(self._under_way) < UNDER_WAY_MAX

    def next_due(self) -> Waiting | None:
        """The oldest message that has not been sent on this connection and may be; it is marked as sent."""
        while self.has_due:
            waiting = self._unsent.popleft()
            if waiting.message_id in self.waiting:
                self._under_way.add(waiting.message_id)
                waiting.sending()
                return waiting
        return None

    def disconnected(self) -> None:
        """The next connection sends what waits: nobody need wait for this one."""
        for waiting in self.waiting.values():
            waiting.let_go.set()
