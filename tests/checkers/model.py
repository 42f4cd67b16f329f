"""A small second Runtime: what must be true of calls, questions, operations, focus and instances at every moment.

It goes through the audit in order and knows, from its own tables, what may follow what. Whenever the run was looked at,
what the Runtime answered to its public queries has to be what this model came to, and what agents and the person were
told until then. It shares no line with the core: it keeps names and states, and decides nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from checkers.audit import whole

Row = dict[str, Any]
CHAT = "chat"
CALL_MOVES = {
    "received": ("rejected", "waiting_for_app", "held", "completed"),
    "waiting_for_app": ("running", "completed", "failed", "cancelled", "expired"),
    "running": ("waiting_for_app", "completed", "failed", "cancelled", "expired"),
    "held": ("completed",),
}
QUESTION_MOVES = {
    "pending": ("presented", "submitted", "cancelled", "expired"),
    "presented": ("submitted", "cancelled", "expired"),
    "submitted": ("completed", "failed"),
}
INSTANCE_MOVES = {
    "starting": ("foreground", "background", "closed"),
    "foreground": ("background", "closed"),
    "background": ("foreground", "suspended", "closed"),
    "suspended": ("foreground", "background", "closed"),
}
# What the records call the states that the model names by what was done.
SHOWN_AS = {"held": "running"}


class Broken(Exception):
    """The audit itself tells of something that cannot be."""


def digest(value: object) -> str:
    """As the audit shortens what it does not repeat: 16 hex digits of sha256 over canonical JSON."""
    text = json.dumps(whole(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Thing:
    """One call, question, operation or instance: its state and what else is known of it."""

    state: str
    known: Row = field(default_factory=dict)

    def move(self, table: dict[str, tuple[str, ...]], state: str, name: str) -> None:
        if state not in table.get(self.state, ()):
            raise Broken(f"{name} was {self.state} and became {state}")
        self.state = state


class Model:
    """Everything that the audit tells, row after row."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], Thing] = {}
        self.agent_of: dict[str, str] = {}  # call_id → the agent whose call of that id is the newest
        self.questions: dict[str, Thing] = {}
        self.operations: dict[str, Thing] = {}
        self.instances: dict[str, Thing] = {}
        self.focus: dict[str, list[str]] = {}
        self.surfaces: dict[str, int] = {}  # open ones, with their revision
        self.states: dict[str, tuple[int, str]] = {}  # instance_id → revision and digest of what it saved last
        self.swept: Counter[str] = Counter()
        self.inventory = ""

    def take(self, row: Row) -> None:
        """Raises Broken if this row cannot follow those before it."""
        kind, _, what = row["kind"].partition(".")
        rule = getattr(self, f"_{kind}", None)
        if rule is not None:
            rule(what, row["subjects"], row["detail"], row["at_ms"])

    def call(self, call_id: str) -> Thing:
        key = (self.agent_of.get(call_id, ""), call_id)
        if key not in self.calls:
            raise Broken(f"call {call_id} was never received")
        return self.calls[key]

    # one rule for each kind of thing: the second part of the row's kind, its subjects, its detail, its time

    def _call(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        if what == "received":
            self._call_received(ids, detail)
            return
        call = self.call(ids[0])
        if what in ("routed", "held"):
            call.move(CALL_MOVES, "waiting_for_app" if what == "routed" else "held", ids[0])
            call.known["instance_id"] = ids[1]
        elif what == "running":
            call.move(CALL_MOVES, "running", ids[0])
        elif what == "redelivered":
            call.move(CALL_MOVES, "waiting_for_app", ids[0])
            call.known["attempt"] += 1
            if detail["attempt"] != call.known["attempt"]:
                raise Broken(f"{ids[0]} was redelivered as attempt {detail['attempt']}")
        elif what == "cancel_requested":
            call.known["cancel_requested"] = True
        elif what in ("completed", "failed", "cancelled", "expired", "rejected"):
            call.move(CALL_MOVES, what, ids[0])
            call.known |= {"code": detail.get("code"), "result": detail.get("result"), "seq": detail.get("seq")}

    def _call_received(self, ids: list[str], detail: Row) -> None:
        call_id, agent_id = ids[0], ids[1]
        before = self.calls.get((agent_id, call_id))
        if before is not None:
            if before.state in CALL_MOVES or not self.swept["calls"]:
                raise Broken(f"{call_id} was received twice")
            self.swept["calls"] -= 1
        known = {"conversation_id": ids[-1], "tool_id": detail["tool"], "attempt": 1, "cancel_requested": False}
        self.calls[agent_id, call_id] = Thing("received", known)
        self.agent_of[call_id] = agent_id

    def _interaction(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        if what == "asked":
            known = {"instance_id": ids[1], "kind": detail["primitive"], "request": detail["request"], "result": None}
            self.questions[ids[0]] = Thing("pending", known)
        elif ids[0] not in self.questions:
            raise Broken(f"{ids[0]} was never asked")
        else:
            self.questions[ids[0]].move(QUESTION_MOVES, what, ids[0])
            if what == "submitted":
                self.questions[ids[0]].known["result"] = detail["result"]

    def _operation(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        if what == "started":
            known = {"source_tool_call_id": ids[1], "instance_id": ids[2], "ends_at": detail["ends_at"]}
            self.operations[ids[0]] = Thing("focusing", known)
            return
        operation = self.operations[ids[0]]
        operation.move({"focusing": ("completed", "interrupted")}, what, ids[0])
        operation.known |= {"ended_ms": at_ms, "interruption_reason": detail.get("reason")}

    def _instance(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        if what == "created":
            known = {"conversation_id": ids[1], "app_scope": detail["app"], "digest": detail["digest"]}
            self.instances[ids[0]] = Thing("starting", known | {"incarnation": 0})
            if detail["app"] == CHAT:
                self.focus[ids[1]].insert(0, ids[0])
            return
        instance = self.instances[ids[0]]
        if what == "state":
            if detail["before"] != instance.state:
                raise Broken(f"{ids[0]} was {instance.state}, not {detail['before']}")
            instance.move(INSTANCE_MOVES, detail["state"], ids[0])
        elif what == "closed":
            instance.move(INSTANCE_MOVES, "closed", ids[0])
            instance.known["close_code"] = detail["code"]
            self.states.pop(ids[0], None)
            if ids[0] in self.focus[ids[1]]:
                self.focus[ids[1]].remove(ids[0])

    def _worker(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        if what == "starting":
            instance = self.instances[ids[0]]
            if instance.state == "closed" or detail["incarnation"] != instance.known["incarnation"] + 1:
                raise Broken(f"{ids[0]} ({instance.state}) was started as incarnation {detail['incarnation']}")
            instance.known["incarnation"] = detail["incarnation"]

    def _conversation(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        if what == "opened":
            self.focus[ids[0]] = []

    def _focus(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        """``changed`` puts one on top, ``left`` takes one from below the top, ``restored`` says what is on top then."""
        stack = self.focus[ids[1]]
        if what == "restored":
            while stack and stack[-1] != ids[0]:
                stack.pop()
            if not stack:
                stack.append(ids[0])
        else:
            if ids[0] in stack:
                stack.remove(ids[0])
            if what == "changed":
                stack.append(ids[0])
        if len(stack) != detail["depth"]:
            raise Broken(f"the focus of {ids[1]} is {stack}, not {detail['depth']} deep")

    def _surface(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        if what == "opened":
            self.surfaces[ids[0]] = 0
        elif what == "patched":
            self.surfaces[ids[0]] = detail["revision"]
        elif what == "closed":
            self.surfaces.pop(ids[0])

    def _state(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        if what == "saved":
            if detail["revision"] != self.states.get(ids[0], (0, ""))[0] + 1:
                raise Broken(f"the state of {ids[0]} was saved as revision {detail['revision']}")
            self.states[ids[0]] = (detail["revision"], detail["state"])

    def _inventory(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        self.inventory = ids[0]

    def _retention(self, what: str, ids: list[str], detail: Row, at_ms: int) -> None:
        if what == "swept":
            self.swept.update(detail["gone"])
