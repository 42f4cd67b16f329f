"""The audit: every row hangs on the one before it, and every refusal that anybody got stands in it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from checkers.history import Fault, History

# Refusals that come before there is anything to audit with: the store is full.
UNAUDITED = ("storage_full",)


def row_hash(row: dict[str, Any]) -> str:
    """sha256 over the previous hash's bytes and the row without ``prev`` and ``hash``, as canonical JSON."""
    body = whole({name: value for name, value in row.items() if name not in ("prev", "hash")})
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(bytes.fromhex(row["prev"]) + text.encode()).hexdigest()


def whole(value: Any) -> Any:
    """Canonical JSON writes whole floats as integers: 1.0 and 1 are the same number."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list | tuple) else value


def check_chain(history: History) -> Iterator[Fault]:
    prev = "0" * 64
    for number, row in enumerate(history.audit, start=1):
        if row["seq"] != number:
            yield Fault("audit", f"row {number} has the seq {row['seq']}")
        if row["prev"] != prev or row["hash"] != row_hash(row):
            yield Fault("audit", f"row {number} does not hang on the one before it")
        prev = row["hash"]
    if history.audit and history.audit_head != {"seq": len(history.audit), "hash": prev}:
        yield Fault("audit", f"the head {history.audit_head} is not the last row")


def check_refusals(history: History) -> Iterator[Fault]:
    """Each refusal (counted once per message) has its row, by code."""
    audited: Counter[tuple[str, str]] = Counter()
    for row in history.audit:
        code = row["detail"].get("code")
        if code is not None:
            audited[_kind(row["kind"]), code] += 1
    for (kind, code), count in _refused(history).items():
        if audited[kind, code] < count:
            yield Fault(
                "audit",
                f"{count} refusals of a {kind} with {code} were given, {audited[kind, code]} stand in the audit",
            )


def _kind(name: str) -> str:
    return {
        "message.refused": "message",
        "call.rejected": "message",
        "command.refused": "command",
        "action.refused": "action",
    }.get(name, name)


def _refused(history: History) -> Counter[tuple[str, str]]:
    found: set[tuple[str, str, str]] = set()
    for agent in history.agents.values():
        for _, frame in agent.frames("received", "lineup.v1.receipt"):
            payload = frame["payload"]
            if not payload["accepted"] and payload["code"] != "call_not_found":
                found.add(("message", payload["code"], f"{agent.agent_id}/{payload['reply_to']}"))
    for log in history.workers.values():
        for _, message in log.messages("received", "receipt"):
            if not message["body"]["accepted"]:
                where = f"{log.instance_id}/{log.incarnation}/{message['body']['re']}"
                found.add(("command", message["body"]["code"], where))
    for entry in history.host.of("reply"):
        if not entry.data["accepted"]:
            found.add(("action", entry.data["code"], entry.data["action_id"]))
    return Counter((kind, code) for kind, code, _ in found if code not in UNAUDITED)
