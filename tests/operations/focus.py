"""The real Pomodoro bundle on the core's own test harness: start, look, and compare what an event may not touch."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.harness import Body, Core
from lineup_protocol.manifest import parse_manifest
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import CONVERSATIONS, INSTANCES, OPERATIONS, SESSION_ENTRIES, SESSIONS, TIMELINE
from lineup_supervisor.core.step import step

POMODORO = Path(__file__).parents[2] / "workers" / "lineup_workers" / "pomodoro"
MINUTE_MS = 60_000
HOUR_S = 3600

# What the answer to a resend may add to: the receipts of the link.
OF_A_RECEIPT = ("agents", "receipts", "receipt_ring")
# What a refused start may add to, by the contract: its own record and rejection, and the receipts of the link.
OF_A_REFUSAL = ("calls", "calls_by_id", "calls_by_time", "outbox", "agents", "receipts", "receipt_ring")


def manifest() -> Body:
    return parse_manifest(json.loads((POMODORO / "miniapp.json").read_text()), trusted=True).as_dict()


class PowerCut(Exception):
    """Ends a transaction that was not committed."""


class Focus(Core):
    """A core with the Pomodoro bundle and one connected agent."""

    def __init__(self, *, policy: Policy | None = None) -> None:
        self.events: list[ev.AnyEvent] = []
        super().__init__(policy=policy, manifests=(manifest(),))
        self.connect("a1")

    def do(self, event: ev.AnyEvent, *, lose_effects: bool = False) -> list[fx.AnyEffect]:
        self.events.append(event)
        return super().do(event, lose_effects=lose_effects)

    def do_without_commit(self, event: ev.AnyEvent) -> None:
        """The supervisor dies before the commit."""
        with suppress(PowerCut), self.store.write() as txn:
            step(txn, event, self.now)
            raise PowerCut

    def begin(self, seconds: int = 1500, *, call_id: str = "k1", conversation: str = "c1", **more: Any) -> Any:
        """Start a session that must be accepted; its operation row."""
        self.call_accepted(
            "pomodoro.start", {"duration_seconds": seconds} | more, call_id=call_id, conversation=conversation
        )
        return self.operation(conversation)

    def interrupt(self, call_id: str = "k-stop", *, conversation: str = "c1", link: str = "a1") -> Body:
        """The short tool's result; it must be there at once."""
        self.call_accepted("pomodoro.interrupt", {}, call_id=call_id, conversation=conversation, link=link)
        payload = self.result(call_id)
        assert payload is not None
        assert payload["status"] == "completed", payload
        return dict(payload["result"])

    def operation(self, conversation: str = "c1") -> Any:
        """The newest operation of a conversation."""
        rows = [row for _, row in self.scan(OPERATIONS) if row.conversation_id == conversation]
        return max(rows, key=lambda row: (row.started_ms, row.state == "focusing"))

    def operations(self, conversation: str = "c1") -> list[Any]:
        return [row for _, row in self.scan(OPERATIONS) if row.conversation_id == conversation]

    def row_of(self, operation: Any) -> Any:
        """The row of an operation as it is now."""
        return self.row(OPERATIONS, operation.operation_id)

    def outcome(self, call_id: str = "k1") -> tuple[str, str | None]:
        """``(state, interruption_reason)`` of a start's one result."""
        payload = self.result(call_id)
        assert payload is not None, f"{call_id} has no result"
        assert payload["status"] == "completed", payload
        return payload["result"]["state"], payload["result"].get("interruption_reason")

    def front(self, conversation: str = "c1") -> str:
        """The app_scope on top."""
        return self.stack(conversation)[-1]

    def stack(self, conversation: str = "c1") -> list[str]:
        """The app_scopes of the focus stack, bottom to top."""
        return [self.row(INSTANCES, i).app_scope for i in self.row(CONVERSATIONS, conversation).focus]

    def session(self, conversation: str = "c1") -> Any:
        return self.row(SESSIONS, self.instance("pomodoro", conversation).session_id)

    def entries(self, session_id: str) -> list[Any]:
        """The entries of one app session, in order."""
        conversation = self.row(SESSIONS, session_id).conversation_id
        return [self.row(TIMELINE, conversation, key[1]) for key, _ in self.scan(SESSION_ENTRIES, session_id)]

    def assert_over(self, conversation: str = "c1") -> None:
        """Everything that belongs to the session ended with it."""
        pomodoro = self.instance("pomodoro", conversation)
        assert pomodoro.state == "closed"
        assert self.row(SESSIONS, pomodoro.session_id).state == "read_only"
        assert "pomodoro" not in self.stack(conversation)
        dump = self.dump()
        assert not [key for key, _ in dump["focusing"] if conversation.encode() in key]
        assert not [key for key, _ in dump["timers"] if b"operation" in key and pomodoro.instance_id.encode() in key]

    def restart(self, *, seconds_down: float = 0, link: str = "l2") -> None:
        """The Runtime is killed, stays down for a while and comes back; the agent reconnects."""
        self.wall_ms += round(seconds_down * 1000)
        self.boot()
        self.connect("a1", link)
