"""What must have been refused: calls under a revision that nobody announced, and calls in other agents' conversations;
and what must not have been: results that break their schema, a second link beside a newer one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checkers.agents import CALL, RESULT
from checkers.history import AgentLog, Fault, History

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
