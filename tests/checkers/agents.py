"""What each agent is promised: one terminal result per call, a gapless outbox, the same answer to the same message."""

from __future__ import annotations

from collections.abc import Iterator

from checkers.history import AgentLog, Fault, History

CALL = "lineup.v1.tool.call"
RESULT = "lineup.v1.tool.result"
PROGRESS = "lineup.v1.tool.progress"
RECEIPT = "lineup.v1.receipt"
DURABLE = (RESULT, PROGRESS, "lineup.v1.message.text")
STATUSES = ("completed", "failed", "cancelled", "expired", "rejected")
# Refusals of a message, not of a call: nothing was recorded, so no result will come.
OF_THE_MESSAGE = ("message_invalid", "call_id_conflict", "storage_full", "rate_limited", "runtime_stopping")


def check_outbox(history: History) -> Iterator[Fault]:
    """On each link ``seq`` goes up by one; what is sent again is what was sent; nothing acknowledged comes again."""
    for log in history.agents.values():
        yield from _outbox_of(log)


def _outbox_of(log: AgentLog) -> Iterator[Fault]:
    content: dict[int, dict[str, object]] = {}
    last: dict[str, int] = {}
    acked: dict[str, int] = {}
    for entry in log.entries:
        frame = entry.data
        if entry.what == "sent" and isinstance(frame, dict) and frame.get("type") == "lineup.v1.ack":
            acked[entry.link] = max(acked.get(entry.link, 0), frame["payload"]["seq"])
        if entry.what != "received":
            continue
        type_, payload = frame["type"], frame["payload"]
        if type_ == "lineup.v1.welcome":
            last[entry.link] = payload["acked_seq"]
        if (type_ in DURABLE) != ("seq" in frame):
            yield Fault("outbox", f"{log.agent_id}: {type_} has seq {frame.get('seq')}")
        if "seq" not in frame:
            continue
        seq = frame["seq"]
        if entry.link not in last:
            yield Fault("outbox", f"{log.agent_id}: seq {seq} before the welcome of {entry.link}")
        elif seq != last[entry.link] + 1:
            yield Fault("outbox", f"{log.agent_id}: seq {seq} follows {last[entry.link]} on {entry.link}")
        last[entry.link] = seq
        known = content.setdefault(seq, frame)
        if known != frame:
            yield Fault("outbox", f"{log.agent_id}: seq {seq} was sent again with other content")


def check_results(history: History) -> Iterator[Fault]:
    """Each recorded call ends once; no result without a call; nothing of a call after its result."""
    for log in history.agents.values():
        yield from _results_of(log, history.settled)


def _results_of(log: AgentLog, settled: bool) -> Iterator[Fault]:
    asked: dict[str, int] = {}
    message_ids: dict[str, set[str]] = {}
    for entry, frame in log.frames("sent", CALL):
        call_id = frame["payload"]["call_id"]
        asked.setdefault(call_id, entry.at)
        message_ids.setdefault(call_id, set()).add(frame["message_id"])
    ends: dict[str, dict[int, dict[str, object]]] = {}
    progress: dict[str, int] = {}
    for entry, frame in log.frames("received", RESULT, PROGRESS):
        call_id, seq = frame["payload"]["call_id"], frame["seq"]
        if asked.get(call_id, entry.at) >= entry.at:
            yield Fault("results", f"{log.agent_id}: {frame['type']} of {call_id}, which it had not called")
        if frame["type"] == PROGRESS:
            progress[call_id] = max(progress.get(call_id, 0), seq)
            continue
        ends.setdefault(call_id, {})[seq] = frame["payload"]
        yield from _well_formed(log.agent_id, frame["payload"])
    for call_id, found in ends.items():
        if len(found) > 1:
            yield Fault("results", f"{log.agent_id}: {call_id} has {len(found)} results: {sorted(found)}")
        if progress.get(call_id, 0) > min(found):
            yield Fault("results", f"{log.agent_id}: progress of {call_id} after its result")
    if settled:
        yield from _all_ended(log, asked, message_ids, ends)


def _well_formed(agent_id: str, payload: dict[str, object]) -> Iterator[Fault]:
    status = payload["status"]
    if (
        status not in STATUSES
        or ("result" in payload) != (status == "completed")
        or ("error" in payload) == ("result" in payload)
    ):
        yield Fault("results", f"{agent_id}: a result that is none: {payload}")


def _all_ended(
    log: AgentLog,
    asked: dict[str, int],
    message_ids: dict[str, set[str]],
    ends: dict[str, dict[int, dict[str, object]]],
) -> Iterator[Fault]:
    receipts: dict[str, dict[str, object]] = {}
    for _, frame in log.frames("received", RECEIPT):
        receipts[frame["payload"]["reply_to"]] = frame["payload"]
    errors = {frame["payload"].get("reply_to") for _, frame in log.frames("received", "lineup.v1.error")}
    for call_id in asked:
        if call_id in ends:
            continue
        answers = [receipts[m] for m in message_ids[call_id] if m in receipts]
        if any(a["accepted"] or a.get("code") not in OF_THE_MESSAGE for a in answers):
            yield Fault("results", f"{log.agent_id}: {call_id} was taken and never ended")
        if not answers and not message_ids[call_id] & errors:
            yield Fault("results", f"{log.agent_id}: {call_id} was sent and never answered")


def check_receipts(history: History) -> Iterator[Fault]:
    """The same message_id gets the same receipt, but for refusals that ask to try again. Of the messages that make one
    call, all but the first get its record, as it is at the time."""
    for log in history.agents.values():
        first: dict[str, tuple[object, ...]] = {}
        for _, frame in log.frames("received", RECEIPT):
            payload = frame["payload"]
            if payload.get("code") in ("storage_full", "rate_limited", "runtime_stopping"):
                continue
            refusal = None if payload["accepted"] else (payload.get("code"), payload["message"], payload.get("detail"))
            answer = (payload["accepted"], "detail" in payload, refusal)
            if first.setdefault(payload["reply_to"], answer) != answer:
                before = first[payload["reply_to"]]
                yield Fault("receipts", f"{log.agent_id}: {payload['reply_to']} was answered {before}, then {answer}")
        yield from _records_of(log)


def _records_of(log: AgentLog) -> Iterator[Fault]:
    """Whoever sends a call again may have no other way to its result: the Runtime may take it for delivered."""
    asked = {frame["message_id"]: frame["payload"]["call_id"] for _, frame in log.frames("sent", CALL)}
    bare: dict[str, str] = {}  # call_id → the message that made it
    ends: dict[tuple[str, str], dict[str, object]] = {}  # (link, call_id) → the result that came on it
    for entry, frame in log.frames("received", RECEIPT, RESULT):
        payload = frame["payload"]
        if frame["type"] == RESULT:
            ends[entry.link, payload["call_id"]] = payload
            continue
        call_id = asked.get(payload["reply_to"])
        if call_id is None or not payload["accepted"]:
            continue
        record = payload.get("detail")
        if record is None:
            if bare.setdefault(call_id, payload["reply_to"]) != payload["reply_to"]:
                yield Fault("receipts", f"{log.agent_id}: a resend of {call_id} was answered without its record")
            continue
        end = ends.get((entry.link, call_id))
        told = ("call_id", "status", "result", "error") if end is not None else ("call_id",)
        expected = end if end is not None else {"call_id": call_id}
        if any(record.get(name) != expected.get(name) for name in told):
            yield Fault("receipts", f"{log.agent_id}: {call_id} was {expected}, its record is {record}")
