"""What each instance is promised: its deliveries in order, none lost, none after its acknowledgement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from checkers.history import Fault, History, WorkerLog

Body = dict[str, Any]


def check_inbox(history: History) -> Iterator[Fault]:
    by_instance: dict[str, list[WorkerLog]] = defaultdict(list)
    for log in sorted(history.workers.values(), key=lambda log: log.incarnation):
        by_instance[log.instance_id].append(log)
    withdrawn, closed = _taken_back(history)
    for instance_id, logs in by_instance.items():
        yield from _inbox_of(instance_id, logs, withdrawn[instance_id], instance_id in closed)


def _taken_back(history: History) -> tuple[dict[str, set[int]], set[str]]:
    withdrawn: dict[str, set[int]] = defaultdict(set)
    closed: set[str] = set()
    for row in history.audit:
        if row["kind"] == "inbox.withdrawn":
            withdrawn[row["subjects"][0]].add(row["detail"]["seq"])
        elif row["kind"] == "instance.closed":
            closed.add(row["subjects"][0])
    return withdrawn, closed


def _inbox_of(instance_id: str, logs: list[WorkerLog], withdrawn: set[int], closed: bool) -> Iterator[Fault]:
    content: dict[int, Body] = {}
    acked: set[int] = set()  # an acknowledgement was sent
    taken: set[int] = set()  # and certainly processed
    delivered: set[int] = set()
    for log in logs:
        here = [m["body"] for _, m in log.messages("received", "inbox.deliver")]
        seqs = [body["seq"] for body in here]
        where = f"{instance_id}/{log.incarnation}"
        if seqs != sorted(set(seqs)):
            yield Fault("inbox", f"{where}: out of order or twice: {seqs}")
        for body in here:
            if content.setdefault(body["seq"], body) != body:
                yield Fault("inbox", f"{where}: delivery {body['seq']} came again with other content")
        if again := taken & set(seqs):
            yield Fault("inbox", f"{where}: {sorted(again)} came again after the acknowledgement")
        most = max(seqs, default=0)
        lost = {seq for seq in delivered - acked - withdrawn if seq < most} - set(seqs)
        if lost:
            yield Fault("inbox", f"{where}: {sorted(lost)} were not delivered again")
        delivered |= set(seqs)
        acked |= {
            m["body"]["seq"] for _, m in log.messages("sent", "inbox.ack") if isinstance(m["body"].get("seq"), int)
        }
        taken |= _processed(log, set(seqs))
    unknown = set(range(1, max(delivered, default=0) + 1)) - delivered - withdrawn - acked
    if unknown and not closed:
        yield Fault("inbox", f"{instance_id}: {sorted(unknown)} were never delivered")


def _processed(log: WorkerLog, seqs: set[int]) -> set[int]:
    """Deliveries whose acknowledgement has certainly had its effect: a later message of this worker was answered."""
    answered = {m["body"]["re"] for _, m in log.messages("received", "receipt")}
    pending: list[int] = []
    done: set[int] = set()
    for _, message in log.messages("sent"):
        if message.get("type") == "inbox.ack" and message["body"].get("seq") in seqs:
            pending.append(message["body"]["seq"])
        if message.get("id") in answered:
            done.update(pending)
            pending.clear()
    return done


def check_claims(history: History) -> Iterator[Fault]:
    """A call that must not run twice is handed out for running once: one accepted claim over all incarnations."""
    claims: dict[str, list[str]] = defaultdict(list)
    for log in history.workers.values():
        calls = {
            m["body"]["seq"]: m["body"]["body"]
            for _, m in log.messages("received", "inbox.deliver")
            if m["body"]["kind"] == "tool.call"
        }
        accepted = {m["body"]["re"] for _, m in log.messages("received", "receipt") if m["body"]["accepted"]}
        for _, message in log.messages("sent", "inbox.ack"):
            call = calls.get(message["body"].get("seq"))
            if call is not None and not call["retry_safe"] and message.get("id") in accepted:
                claims[call["call_id"]].append(f"{log.instance_id}/{log.incarnation}")
    for call_id, where in claims.items():
        if len(where) > 1:
            yield Fault("claims", f"{call_id} must not run twice and was claimed by {where}")


def check_scope(history: History) -> Iterator[Fault]:
    """No worker gets anything of another instance; the SDK never finds the Runtime breaking the protocol."""
    owner: dict[str, str] = {}
    for log in history.workers.values():
        where = f"{log.instance_id}/{log.incarnation}"
        for entry in log.entries:
            if entry.what == "violation":
                yield Fault("scope", f"{where}: the SDK refused the Runtime's message: {entry.data}")
        for _, message in log.messages("received"):
            yield from _foreign(log, where, message, owner)


def _foreign(log: WorkerLog, where: str, message: Body, owner: dict[str, str]) -> Iterator[Fault]:
    body = message["body"]
    if message["type"] == "worker.welcome":
        context = body["context"]
        if (context["instance_id"], context["app_scope"]) != (log.instance_id, log.app_scope):
            yield Fault("scope", f"{where}: welcomed as {context}")
        records = [*body["interactions"]]
        names = [row["call_id"] for row in body["calls"]]
    elif message["type"] == "inbox.deliver":
        records = [body["body"]["interaction"]] if "interaction" in body["body"] else []
        names = [body["body"]["call_id"]] if "call_id" in body["body"] else []
    else:
        records, names = [body["interaction"]] if "interaction" in body else [], []
    for record in records:
        if record["owner"]["instance_id"] != log.instance_id:
            yield Fault("scope", f"{where}: got {record['interaction_id']} of {record['owner']['instance_id']}")
    for call_id in names:
        if owner.setdefault(call_id, log.instance_id) != log.instance_id:
            yield Fault("scope", f"{where}: got {call_id}, which {owner[call_id]} has")
