"""The verdict on a real run: the independent checkers over the agents' own logs and the exported audit.

Checkers that need what workers saw stay out: a sandbox's log dies with the supervisor. What a worker would have said is
proven otherwise: the lab's answers carry a digest that only its code can make.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from checkers import agents as agent_checks
from checkers import audit as audit_checks
from checkers import operations, refusals, restarts
from checkers.history import Fault, History
from processes.support.agent import Agent
from processes.support.operator import Operator
from processes.support.operator import audit as audit_of
from processes.support.runtime import Runtime
from processes.support.waiting import until

SALT = "only the lab knows"
CHECKERS = (
    agent_checks.check_outbox,
    agent_checks.check_results,
    agent_checks.check_receipts,
    operations.check_operations,
    refusals.check_refused,
    refusals.check_schemas,
    refusals.check_links,
    restarts.check_closed,
    audit_checks.check_chain,
    audit_checks.check_refusals,
)
EXPLICIT = (
    "outcome_unknown",
    "app_crashed",
    "app_closed",
    "cancelled",
    "tool_timeout",
    "tool_failed",
    "tool_output_invalid",
)


def proof_of(call_id: str, text: str) -> str:
    return hashlib.sha256(f"{SALT}|{call_id}|{text}".encode()).hexdigest()


async def settled(runtime: Runtime, *agents: Agent, within_s: float = 20.0) -> None:
    """Wait until nothing is open: every message answered, every call ended, every outbox taken over."""
    await until(lambda: not any(agent.has_unanswered for agent in agents), within_s, "every message is answered")

    names = {agent.agent_id for agent in agents}

    def at_rest() -> bool:
        rows = [row for row in runtime.query("status")["agents"] if row["agent_id"] in names]
        return not any(row["in_flight"] or row["outbox"] for row in rows)

    await until(at_rest, within_s, f"every call of {sorted(names)} has ended and its outbox is empty")


def assert_kept(runtime: Runtime, *agents: Agent, is_settled: bool = True) -> list[dict[str, Any]]:
    """Every promise, over the whole history of this home; the audit's rows."""
    with runtime.operator() as operator:
        history = history_of(operator, agents, is_settled)
    faults = [fault for check in CHECKERS for fault in check(history)]
    faults += [*_real(agents), *_deliveries(history), *_one_end(history)]
    assert not faults, "\n".join(map(str, faults))
    return history.audit


def history_of(operator: Operator, agents: Sequence[Agent], is_settled: bool) -> History:
    rows, head = audit_of(operator)
    tools = {tool["id"]: tool for tool in operator.query("tools")["tools"]}
    return History(
        seed=0,
        agents={agent.agent_id: agent.log for agent in agents},
        tools=tools,
        audit=rows,
        audit_head=head,
        settled=is_settled,
    )


def _real(agents: Sequence[Agent]) -> Iterator[Fault]:
    """What is completed was made by the lab's code for this very call; what is not says why in a code."""
    for agent in agents:
        for call_id, payload in agent.results.items():
            if payload["status"] == "completed":
                result = payload["result"]
                if "proof" in result and result["proof"] not in ("", proof_of(call_id, result["text"])):
                    yield Fault("real", f"{agent.agent_id}: {call_id} completed with what no lab made: {result}")
            elif payload["status"] != "rejected" and payload["error"]["code"] not in EXPLICIT:
                yield Fault("real", f"{agent.agent_id}: {call_id} ended with {payload['error']}")


def _deliveries(history: History) -> Iterator[Fault]:
    """A worker is ready before it runs anything, and an incarnation has one beginning and one end."""
    begun: Counter[tuple[str, int]] = Counter()
    ended: Counter[tuple[str, int]] = Counter()
    for row in history.audit:
        if row["kind"] in ("worker.starting", "worker.exited"):
            key = (row["subjects"][0], row["detail"]["incarnation"])
            (begun if row["kind"] == "worker.starting" else ended)[key] += 1
    for key, count in (begun + ended).items():
        if begun[key] != 1 or ended[key] > 1:
            yield Fault("workers", f"{key} began {begun[key]} times and ended {ended[key]} times ({count})")


def _one_end(history: History) -> Iterator[Fault]:
    """The audit settles each call once, and each call that it received."""
    ends: Counter[tuple[str, ...]] = Counter()
    received: Counter[tuple[str, ...]] = Counter()
    for row in history.audit:
        who = tuple(row["subjects"][:2])
        if row["kind"] in ("call.completed", "call.failed", "call.cancelled", "call.expired", "call.rejected"):
            ends[who] += 1
        elif row["kind"] == "call.received":
            received[who] += 1
    for who in received | ends:
        if received[who] != 1 or (ends[who] != 1 and (history.settled or ends[who] > 1)):
            yield Fault("audit", f"{who} was received {received[who]} times and ended {ends[who]} times")


async def in_thread(function: Any, *arguments: Any) -> Any:
    """Run what blocks beside the loop, so that the agents' links go on."""
    return await asyncio.to_thread(function, *arguments)
