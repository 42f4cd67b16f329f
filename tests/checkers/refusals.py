"""What must have been refused: calls under a revision that nobody announced, and calls in other agents' conversations;
what must not have been: results that break their schema, a second link beside a newer one; and that what was refused
has changed nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checkers.agents import CALL, RESULT
from checkers.history import AgentLog, Fault, History

# What each refusal writes: the audit (which makes the next sweep due), its answer kept for a resend, its count.
AUDITED = {"audit", "audit_by_subject", "meta.audit_seq", "meta.audit_hash", "meta.steady_ms"}
AUDITED |= {"meta.sweep_due_ms", "timer.sweep", "meta.audit_anchor_seq", "meta.audit_anchor_hash"}
# A refused call has a record and a result, which people see.
REJECTED = {"calls", "calls_by_id", "calls_by_time", "outbox", "meta.projection_revision"}
REJECTED |= {"agents.next_seq", "agents.sent_seq", "agents.sent_bytes", "agents.max_sent_seq"}
KEPT = {
    "message": AUDITED | REJECTED | {"receipts", "receipt_ring", "receipt_ring.body", "agents.next_receipt"},
    "command": AUDITED | {"budgets", "budgets.refused", "budgets.taken", "budgets.since_ms"},
    "action": AUDITED | {"action_results", "timer.action"},
}
VIOLATION = {"workers.condemned", "workers.stop_reason"}
# By name, what trying costs beside: a patch counts as such, and the operator's result is taken over at once.
PATCHES = {"surfaces.app_budget", "surfaces.app_budget_ms", "surfaces.person_budget", "surfaces.person_budget_ms"}
COSTS = {
    "surface.update": PATCHES,
    "surface.patch": PATCHES,
    "surface.event": PATCHES,
    "surface.submit": PATCHES,
    "call.start": REJECTED | {"agents", "agents.acked_seq", "retired", "over"},
}

KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list}


def check_refused(history: History) -> Iterator[Fault]:
    owners = {
        change["row"]["conversation_id"]: change["row"]["agent_id"]
        for entry in history.host.of("delta")
        for change in entry.data["changes"]
        if change["kind"] == "conversation" and change["row"] is not None
    }
    announced = {
        frame["payload"]["revision"]
        for log in history.agents.values()
        for _, frame in log.frames("received", "lineup.v1.client.inventory")
    }
    for log in history.agents.values():
        calls: dict[str, dict[str, Any]] = {}
        for _, frame in log.frames("sent", CALL):
            calls.setdefault(frame["payload"]["call_id"], frame)
        for _, frame in log.frames("received", RESULT):
            payload = frame["payload"]
            call = calls.get(payload["call_id"])
            if call is None or payload["status"] == "rejected":
                continue
            revision = call["payload"].get("inventory_revision", "")
            if revision and revision not in announced and announced:
                yield Fault("refusals", f"{log.agent_id}: {payload['call_id']} was taken under revision {revision}")
            owner = owners.get(call["conversation_id"], log.agent_id)
            if owner != log.agent_id:
                yield Fault("refusals", f"{log.agent_id}: {payload['call_id']} was taken in a conversation of {owner}")


def check_nothing_changed(history: History) -> Iterator[Fault]:
    """A refusal leaves itself, and nothing of what was asked for."""
    for event_id, refusal in history.refusals.items():
        left = set(refusal.changed) - KEPT[refusal.kind] - VIOLATION - COSTS.get(refusal.name, set())
        if left:
            what = f"{refusal.kind} {refusal.name} was refused with {refusal.code}"
            yield Fault("refusals", f"{event_id}: the {what} and changed {', '.join(sorted(left))}")


def check_schemas(history: History) -> Iterator[Fault]:
    """Completed results have what their tool's output schema requires, of its kinds, and nothing else."""
    for log in history.agents.values():
        tools = {
            f["payload"]["call_id"]: f["payload"].get("tool_id") or f["payload"].get("tool")
            for _, f in log.frames("sent", CALL)
        }
        for _, frame in log.frames("received", RESULT):
            payload = frame["payload"]
            schema = history.tools.get(tools.get(payload["call_id"]), {}).get("output_schema")
            if payload["status"] == "completed" and schema is not None:
                yield from _fits(log, payload, schema)


def _fits(log: AgentLog, payload: dict[str, Any], schema: dict[str, Any]) -> Iterator[Fault]:
    result, properties = payload["result"], schema.get("properties", {})
    for name in (*schema.get("required", ()), *result):
        if name not in properties or not _is_of(result.get(name), properties[name]):
            yield Fault(
                "schemas", f"{log.agent_id}: {payload['call_id']} completed with {result}, against {name} of its schema"
            )


def _is_of(value: object, schema: dict[str, Any]) -> bool:
    if "type" not in schema:
        return value in schema["enum"]
    kind = KINDS[schema["type"]]
    return isinstance(value, kind) and (not isinstance(value, bool) or kind is bool)


def check_links(history: History) -> Iterator[Fault]:
    """A newer link takes over: the older one is closed, and gets nothing durable after the newer one's welcome."""
    for log in history.agents.values():
        welcomed: list[str] = []
        open_: set[str] = set()
        for entry in log.entries:
            if entry.what == "received" and entry.data["type"] == "lineup.v1.welcome":
                welcomed.append(entry.link)
                open_.add(entry.link)
            elif entry.what in ("cut", "closed"):
                open_.discard(entry.link)
        if history.settled and len(open_) > 1:
            yield Fault("links", f"{log.agent_id} is left with the links {sorted(open_)}")


def check_attempts(history: History) -> Iterator[Fault]:
    """When a call is delivered again, its time does not stand still for what an earlier attempt has asked, unless that
    has a key, by which the next one finds it."""
    rows = [
        change["row"]
        for entry in history.host.of("delta")
        for change in entry.data["changes"]
        if change["kind"] == "interaction" and change["row"] is not None
    ]
    rows += [row for entry in history.host.of("snapshot") for row in entry.data["interactions"]]
    lost = {row["interaction_id"] for row in rows if not row.get("key")}
    waiting: dict[tuple[str, str], set[str]] = {}
    asked_by: dict[str, tuple[str, str]] = {}
    for row in history.audit:
        kind, subjects = row["kind"], row["subjects"]
        if kind == "interaction.asked" and len(subjects) > 2 and subjects[0] in lost:
            asked_by[subjects[0]] = (subjects[2], subjects[1])
            waiting.setdefault(asked_by[subjects[0]], set()).add(subjects[0])
        elif kind.startswith("interaction.") and kind != "interaction.presented":
            waiting.get(asked_by.get(subjects[0], ("", "")), set()).discard(subjects[0])
        elif kind == "call.redelivered" and (left := waiting.get((subjects[0], subjects[1]))):
            yield Fault("clock", f"{subjects[0]} was delivered again while {sorted(left)} of a lost attempt waited")


def check_clock_of_questions(history: History) -> Iterator[Fault]:
    """No call runs out of time while a person is asked on its behalf."""
    asked: dict[str, set[str]] = {}
    parents: dict[str, str] = {}
    for row in history.audit:
        kind, subjects = row["kind"], row["subjects"]
        if kind == "interaction.asked" and len(subjects) > 2:
            parents[subjects[0]] = subjects[2]
            asked.setdefault(subjects[2], set()).add(subjects[0])
        elif kind in ("interaction.submitted", "interaction.cancelled", "interaction.expired", "interaction.failed"):
            asked.get(parents.get(subjects[0], ""), set()).discard(subjects[0])
        elif kind == "call.expired" and asked.get(subjects[0]):
            yield Fault(
                "clock", f"{subjects[0]} ran out of time while {sorted(asked[subjects[0]])} waited for the person"
            )
