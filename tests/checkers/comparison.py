"""What the Runtime answers about itself against what the reference model came to, and what was told until then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from checkers.agents import RESULT
from checkers.history import Fault, History, Look
from checkers.model import CALL_MOVES, QUESTION_MOVES, SHOWN_AS, Broken, Model, Thing, digest

Row = dict[str, Any]
PAGE_ROWS_MAX = 1_000  # a list as long as that may have been cut


def check_model(history: History) -> Iterator[Fault]:
    """The audit is possible, and at every look the Runtime is what the model came to."""
    model, taken = Model(), 0
    for look in history.looks:
        while taken < look.audit_rows:
            row = history.audit[taken]
            taken += 1
            try:
                model.take(row)
            except (Broken, KeyError, IndexError) as error:
                yield Fault("model", f"row {taken} of the audit cannot be: {error!r}")
                return
        for words in differences(model, look, history):
            yield Fault("model", f"after {taken} rows of the audit: {words}")


def differences(model: Model, look: Look, history: History) -> Iterator[str]:
    """One sentence for each."""
    if len(look.calls) < PAGE_ROWS_MAX:
        yield from _calls(model, look, history)
    if len(look.interactions) < PAGE_ROWS_MAX:
        yield from _questions(model, look, history)
    yield from _instances(model, look)
    yield from _operations(model, look)
    yield from _focus(model, look)
    yield from _rest(model, look)


def _unlike(name: str, record: Row, expected: Row) -> Iterator[str]:
    for field, value in expected.items():
        if record.get(field) != value:
            yield f"{name}: {field} is {record.get(field)!r}, not {value!r}"


def _sweep(name: str, known: dict[Any, Thing], shown: Iterable[Any], open_: Iterable[str], swept: int) -> Iterator[str]:
    """Whatever is not there any more was over, and was said to be gone; nothing is there that was not made."""
    here = set(shown)
    for key in here - set(known):
        yield f"{name} {key} is there and was never made"
    gone = [key for key in known if key not in here]
    for key in gone:
        if known[key].state in open_:
            yield f"{name} {key} is gone and was {known[key].state}"
    if len(gone) != swept:
        yield f"{len(gone)} {name}s are gone, {swept} were swept: {gone[:4]}"


def _calls(model: Model, look: Look, history: History) -> Iterator[str]:
    records = {(record["agent_id"], record["call_id"]): record for record in look.calls}
    if len(records) != len(look.calls):
        yield "a call is listed twice"
    yield from _sweep("call", model.calls, records, CALL_MOVES, model.swept["calls"])
    told = _told(history, look.at)
    for key, record in records.items():
        call = model.calls.get(key)
        if call is None:
            continue
        name, known = f"call {key[1]}", call.known
        expected = {
            "status": SHOWN_AS.get(call.state, call.state),
            "conversation_id": known["conversation_id"],
            "tool_id": known["tool_id"],
            "attempt": known["attempt"],
            "instance_id": known.get("instance_id"),
            "error_code": known.get("code"),
            "cancel_requested": known["cancel_requested"] or None,
        }
        yield from _unlike(name, record, expected)
        result = digest(record["result"]) if "result" in record else None
        if result != known.get("result"):
            yield f"{name}: its result {record.get('result')} is not the one in the audit"
        if key in told:
            said = {"result": told[key].get("result"), "error": told[key].get("error"), "status": told[key]["status"]}
            yield from _unlike(f"{name}, as its agent was told", record, said)


def _told(history: History, at: int) -> dict[tuple[str, str], Row]:
    """The results that each agent had received by then; of a call that was made anew, the newest."""
    return {
        (log.agent_id, frame["payload"]["call_id"]): frame["payload"]
        for log in history.agents.values()
        for entry, frame in log.frames("received", RESULT)
        if entry.at < at
    }


def _questions(model: Model, look: Look, history: History) -> Iterator[str]:
    records = {record["interaction_id"]: record for record in look.interactions}
    yield from _sweep("interaction", model.questions, records, QUESTION_MOVES, model.swept["interactions"])
    drafts, answers = _typed(history, look.at)
    for id_, record in records.items():
        question = model.questions.get(id_)
        if question is None:
            continue
        yield from _unlike(id_, record, {"status": question.state, "kind": question.known["kind"]})
        yield from _unlike(id_, record["owner"], {"instance_id": question.known["instance_id"]})
        if digest(record["request"]) != question.known["request"]:
            yield f"{id_}: it asks something else than it did"
        result = digest(record["result"]) if "result" in record else None
        if result != question.known["result"]:
            yield f"{id_}: its result {record.get('result')} is not the one in the audit"
        if id_ in answers and record.get("result") != answers[id_]:
            yield f"{id_}: {answers[id_]} was answered, {record.get('result')} is kept"
        possible = drafts.get(id_, [None]) if question.state in ("pending", "presented") else [None]
        if record.get("draft") not in possible:
            yield f"{id_}: the draft is {record.get('draft')}, not one of {possible}"


def _typed(history: History, at: int) -> tuple[dict[str, list[Row | None]], dict[str, Row]]:
    """For each question the drafts that may stand, and the accepted answer.

    Actions are taken in order, but the reply to one may be lost: the draft that was confirmed last may stand, and every
    later one.
    """
    drafts: dict[str, list[Row | None]] = {}
    taken: set[str] = set()
    answers: dict[str, Row] = {}
    actions: dict[str, Row] = {}
    for entry in history.host.entries:
        if entry.at >= at:
            break
        if entry.what == "action":
            args = entry.data["args"]
            actions[entry.data["action_id"]] = entry.data
            if entry.data["name"] == "interaction.draft" and entry.data["action_id"] not in taken:
                drafts.setdefault(args["interaction_id"], [None]).append(args["draft"])
        elif entry.what == "reply" and entry.data["accepted"]:
            action = actions[entry.data["action_id"]]
            id_ = action["args"].get("interaction_id", "")
            if action["name"] == "interaction.answer":
                answers[id_] = entry.data["detail"]["result"]
            elif action["name"] == "interaction.draft" and entry.data["action_id"] not in taken:
                taken.add(entry.data["action_id"])  # sent again it changes nothing
                typed, draft = drafts[id_], action["args"]["draft"]
                del typed[: typed.index(draft) if draft in typed else 0]
    return drafts, answers


def _instances(model: Model, look: Look) -> Iterator[str]:
    here = {id_: row for id_, row in look.instances.items() if row is not None}
    yield from _sweep("instance", model.instances, here, ("starting", *_LIVE), model.swept["instances"])
    for id_, row in here.items():
        instance = model.instances.get(id_)
        if instance is not None:
            yield from _unlike(id_, row, {"state": instance.state, **instance.known})
    live = {id_ for id_, instance in model.instances.items() if instance.state != "closed"}
    for name, rows in (("snapshot", look.snapshot["instances"]), ("status", look.status["instances"])):
        shown = {row["instance_id"]: row["state"] for row in rows}
        if len(shown) < PAGE_ROWS_MAX and shown != {id_: model.instances[id_].state for id_ in live}:
            yield f"the {name} has the instances {shown}, not {sorted(live)}"


_LIVE = ("foreground", "background", "suspended")


def _operations(model: Model, look: Look) -> Iterator[str]:
    for id_, operation in model.operations.items():
        row, known = look.operations.get(id_), operation.known
        if row is None:
            if look.instances.get(known["instance_id"]) is not None or operation.state == "focusing":
                yield f"{id_} is gone and its instance is not"
            continue
        expected = {"state": operation.state} | {name: value for name, value in known.items() if name != "ended_ms"}
        yield from _unlike(id_, row, {"interruption_reason": None} | expected)
        ended_ms = _ms(row["ended_at"]) if "ended_at" in row else None
        if ended_ms != known.get("ended_ms"):
            yield f"{id_}: it ended at {row.get('ended_at')}, not {known.get('ended_ms')}"


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def _focus(model: Model, look: Look) -> Iterator[str]:
    shown = {row["conversation_id"]: row["focus"] for row in look.snapshot["conversations"]}
    for id_, stack in model.focus.items():
        if shown.get(id_) != stack and len(shown) < PAGE_ROWS_MAX:
            yield f"the focus of {id_} is {shown.get(id_)}, not {stack}"


def _rest(model: Model, look: Look) -> Iterator[str]:
    open_calls: dict[str, int] = {}
    for (agent_id, _), call in model.calls.items():
        open_calls[agent_id] = open_calls.get(agent_id, 0) + (call.state in CALL_MOVES)
    for agent in look.status["agents"]:
        expected = open_calls.get(agent["agent_id"], 0)
        if agent["in_flight"] != expected:
            yield f"{agent['agent_id']} has {agent['in_flight']} calls in flight, not {expected}"
    if look.status["inventory_revision"] != model.inventory:
        yield f"the inventory is at {look.status['inventory_revision']}, not {model.inventory}"
    surfaces = {row["surface_id"]: row["revision"] for row in look.snapshot["surfaces"]}
    if surfaces != model.surfaces:
        yield f"the open surfaces are {surfaces}, not {model.surfaces}"
    saved = {row["instance_id"]: (row["revision"], digest(row["state"])) for row in look.snapshot["snapshots"]}
    if saved != model.states:
        yield f"the saved states are {saved}, not {model.states}"
