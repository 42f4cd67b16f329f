"""Deadlines: each operation is decided once, never early, and its call says the same as the audit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from checkers.agents import RESULT
from checkers.history import Fault, History


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def check_operations(history: History) -> Iterator[Fault]:
    started: dict[str, dict[str, Any]] = {}
    ended: dict[str, list[dict[str, Any]]] = defaultdict(list)
    focusing: dict[str, str] = {}
    for row in history.audit:
        id_ = row["subjects"][0] if row["subjects"] else ""
        if row["kind"] == "operation.started":
            started[id_] = row
        elif row["kind"] in ("operation.completed", "operation.interrupted"):
            ended[id_].append(row)
            focusing.pop(id_, None)
    for id_, row in started.items():
        ends = ended[id_]
        if len(ends) > 1:
            yield Fault("operations", f"{id_} was decided {len(ends)} times")
        if not ends and history.settled:
            yield Fault("operations", f"{id_} was never decided")
        for end in ends:
            if end["kind"] == "operation.completed" and end["at_ms"] < _ms(row["detail"]["ends_at"]):
                yield Fault("operations", f"{id_} completed before {row['detail']['ends_at']}")
    if unknown := set(ended) - set(started):
        yield Fault("operations", f"{sorted(unknown)} were decided and never started")
    yield from _told(history, {id_: ends[0] for id_, ends in ended.items() if ends})


def _told(history: History, ended: dict[str, dict[str, Any]]) -> Iterator[Fault]:
    """What the agent was told is what the audit says."""
    told: dict[str, set[str]] = defaultdict(set)
    for agent in history.agents.values():
        for _, frame in agent.frames("received", RESULT):
            result = frame["payload"].get("result") or {}
            if "state" in result and "operation_id" in result:
                told[result["operation_id"]].add(frame["payload"]["call_id"])
                row = ended.get(result["operation_id"])
                if row is None or row["kind"] != f"operation.{result['state']}":
                    yield Fault(
                        "operations", f"{result['operation_id']}: told {result['state']}, audited {row and row['kind']}"
                    )
    for id_, calls in told.items():
        if len(calls) > 1:
            yield Fault("operations", f"{id_} ended several calls: {sorted(calls)}")
