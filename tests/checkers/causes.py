"""Where results come from: each is what a worker of that call sent, what the person answered, what the Runtime's own
deadline decided, or an explicit word that there is none, for a reason that really happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from checkers.agents import CALL, RESULT
from checkers.history import Fault, History, WorkerLog

QUESTIONS = ("notice", "choice", "confirm", "input")
Payload = dict[str, Any]


class Evidence:
    """What was said about each call by workers, the person and the agents."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.said: dict[str, list[tuple[int, str, Payload, WorkerLog]]] = defaultdict(list)  # call_id → worker's words
        self.took: dict[str, list[WorkerLog]] = defaultdict(list)  # call_id → workers that had it delivered
        self.exits: dict[str, list[int]] = defaultdict(list)  # instance_id → when its workers ended
        for log in history.workers.values():
            self._read(log)
        self.tools: dict[tuple[str, str], str] = {}
        self.cancelled: dict[tuple[str, str], int] = {}
        for agent in history.agents.values():
            for entry, frame in agent.frames("sent", CALL, "lineup.v1.tool.cancel"):
                payload = frame["payload"]
                if frame["type"] == CALL:
                    self.tools.setdefault(
                        (agent.agent_id, payload["call_id"]), payload.get("tool_id") or payload.get("tool")
                    )
                else:
                    self.cancelled.setdefault((agent.agent_id, payload["call_id"]), entry.at)
        self.answers = [
            e.data["args"].get("result") for e in history.host.of("action") if e.data["name"] == "interaction.answer"
        ]
        self.actions = {e.data["name"] for e in history.host.of("action")}

    def _read(self, log: WorkerLog) -> None:
        for entry in log.entries:
            message = entry.data
            if entry.what == "exited":
                self.exits[log.instance_id].append(entry.at)
            elif (
                isinstance(message, dict)
                and entry.what == "sent"
                and message.get("type") in ("tool.complete", "tool.fail", "tool.cancel")
            ):
                self.said[message["body"].get("call_id", "")].append((entry.at, message["type"], message["body"], log))
            elif (
                isinstance(message, dict)
                and message.get("type") == "inbox.deliver"
                and message["body"]["kind"] == "tool.call"
            ):
                self.took[message["body"]["body"]["call_id"]].append(log)


def check_causes(history: History) -> Iterator[Fault]:
    evidence = Evidence(history)
    for agent in history.agents.values():
        seen: set[str] = set()
        for entry, frame in agent.frames("received", RESULT):
            payload = frame["payload"]
            if payload["call_id"] in seen:
                continue
            seen.add(payload["call_id"])
            tool_id = evidence.tools.get((agent.agent_id, payload["call_id"]), "")
            words = _judge(evidence, agent.agent_id, tool_id, payload, entry.at)
            if words:
                yield Fault(
                    "causes", f"{agent.agent_id}: {payload['call_id']} ({tool_id}) is {payload['status']}: {words}"
                )


def _judge(evidence: Evidence, agent_id: str, tool_id: str, payload: Payload, at: int) -> str:
    match payload["status"]:
        case "completed":
            return _completed(evidence, tool_id, payload, at)
        case "failed":
            return _failed(evidence, payload, at)
        case "cancelled":
            return _cancelled(evidence, agent_id, tool_id, payload, at)
        case "expired":
            return _expired(evidence, tool_id, payload)
        case _:
            return "" if payload["error"]["code"] else "without a code"


def _words_before(evidence: Evidence, call_id: str, type_: str, at: int) -> list[tuple[Payload, WorkerLog]]:
    return [(body, log) for said_at, said, body, log in evidence.said[call_id] if said == type_ and said_at < at]


def _completed(evidence: Evidence, tool_id: str, payload: Payload, at: int) -> str:
    result, call_id = payload["result"], payload["call_id"]
    if tool_id in QUESTIONS:
        return "" if any(_same_answer(answer, result) for answer in evidence.answers) else f"nobody answered {result}"
    if tool_id.endswith(".interrupt"):
        fits = result.get("status") in ("interrupted", "no_active_focusing_operation", "operation_already_final")
        return "" if fits else f"is no receipt of an interrupt: {result}"
    deadline = evidence.history.tools.get(tool_id, {}).get("deadline") or {}
    if deadline.get("role") == "start":
        return _decided(result)
    scope = tool_id.rpartition(".")[0]
    for body, log in _words_before(evidence, call_id, "tool.complete", at):
        if body.get("result") == result:
            return "" if log.app_scope == scope else f"the result is from {log.app_scope}"
    return f"no worker sent {result}"


def _decided(result: Payload) -> str:
    if result.get("state") == "completed":
        return "" if result["ended_at"] >= result["ends_at"] else "it completed before its deadline"
    if result.get("state") == "interrupted":
        return "" if result.get("interruption_reason") else "interrupted without a reason"
    return f"is no outcome of an operation: {result}"


def _same_answer(answer: Any, result: Payload) -> bool:
    if not isinstance(answer, dict):
        return False
    if "values" in result and isinstance(answer.get("values"), dict):
        return {name: value for name, value in answer["values"].items() if value is not None} == result["values"]
    return answer == result


def _failed(evidence: Evidence, payload: Payload, at: int) -> str:
    error, call_id = payload["error"], payload["call_id"]
    for body, _ in _words_before(evidence, call_id, "tool.fail", at):
        if (body.get("code"), body.get("message")) == (error["code"], error["message"]):
            return ""
    workers = evidence.took[call_id]
    if error["code"] == "outcome_unknown":
        if any(entry.what == "exited" for log in workers for entry in log.entries):
            return ""
        return "no worker that had it has ended"
    if error["code"] in ("app_crashed", "app_start_failed", "isolation_insufficient"):
        return "" if any(evidence.exits.values()) else f"{error['code']}, and no process has ended"
    return f"nobody sent {error}"


def _cancelled(evidence: Evidence, agent_id: str, tool_id: str, payload: Payload, at: int) -> str:
    error, call_id = payload["error"], payload["call_id"]
    if error["code"] == "app_closed":
        closers = {"instance.close", "session.continue", "apps.remove"} & evidence.actions
        asked = any(True for log in evidence.history.workers.values() for _ in log.messages("sent", "lifecycle.close"))
        timer = any(tool.get("deadline") for tool in evidence.history.tools.values())
        return "" if closers or asked or timer else "nobody closed anything"
    if error["code"] != "cancelled":
        return f"cancelled with {error['code']}"
    if evidence.cancelled.get((agent_id, call_id), at) < at or "call.cancel" in evidence.actions:
        return ""
    if _words_before(evidence, call_id, "tool.cancel", at):
        return ""
    return "nobody asked for it"


def _expired(evidence: Evidence, tool_id: str, payload: Payload) -> str:
    tool = evidence.history.tools.get(tool_id, {})
    has_timeout = tool.get("timeout_ms") or tool.get("handling") == "direct"
    return "" if payload["error"]["code"] == "tool_timeout" and has_timeout else f"has no timeout: {payload['error']}"
