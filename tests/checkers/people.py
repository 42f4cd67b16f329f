"""What people are promised: the first answer stands, an action has one answer, the screen shows what lives."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from checkers.history import Fault, History

Row = dict[str, Any]
ENDED = ("completed", "cancelled", "expired", "failed")
INPUTS = ("surface.event", "surface.submit")
FREQUENT = (*INPUTS, "surface.patch", "interaction.draft")
REPEATABLE = ("interaction.present", "pages.shown")  # safe to do twice


def check_answers(history: History) -> Iterator[Fault]:
    """An interaction is answered once; its owner gets that answer; nothing brings it back."""
    names = {e.data["action_id"]: e.data for e in history.host.of("action") if e.data["name"] == "interaction.answer"}
    accepted: dict[str, dict[str, Any]] = defaultdict(dict)
    for entry in history.host.of("reply"):
        action = names.get(entry.data["action_id"])
        if action is not None and entry.data["accepted"]:
            accepted[action["args"]["interaction_id"]][entry.data["action_id"]] = entry.data["detail"]["result"]
    for interaction_id, answers in accepted.items():
        if len(answers) > 1:
            yield Fault("answers", f"{interaction_id} took {len(answers)} answers: {answers}")
    for log in history.workers.values():
        for _, message in log.messages("received", "inbox.deliver", "interaction.changed"):
            record = message["body"].get("interaction") or message["body"].get("body", {}).get("interaction")
            known = list(accepted.get(record["interaction_id"], {}).values()) if record else []
            if known and record["status"] in ("submitted", "completed") and record.get("result") != known[0]:
                yield Fault(
                    "answers", f"{record['interaction_id']}: {known[0]} was answered, {record.get('result')} delivered"
                )
    yield from _states(history)


def _states(history: History) -> Iterator[Fault]:
    last: dict[str, str] = {}
    for _, row in _rows(history, "interaction"):
        id_, status = row["interaction_id"], row["status"]
        before = last.get(id_)
        if before in ENDED and status != before:
            yield Fault("answers", f"{id_} was {before} and became {status}")
        if before == "submitted" and status in ("pending", "presented", "cancelled", "expired"):
            yield Fault("answers", f"{id_} was answered and became {status}")
        if (row.get("result") is not None) != (status in ("submitted", "completed")) and status != "failed":
            yield Fault("answers", f"{id_} is {status} with the result {row.get('result')}")
        last[id_] = status


def _rows(history: History, kind: str) -> Iterator[tuple[int, Row]]:
    for entry in history.host.of("delta"):
        for change in entry.data["changes"]:
            if change["kind"] == kind and change["row"] is not None:
                yield entry.at, change["row"]


def check_actions(history: History) -> Iterator[Fault]:
    """The same action_id gets the same answer, whatever happens in between, but for refusals that ask to try again. Of
    what pages say very often only that is remembered which was taken, and not for ever."""
    first: dict[str, Row] = {}
    name_of = {e.data["action_id"]: e.data["name"] for e in history.host.of("action")}
    for entry in history.host.of("reply"):
        answer = dict(entry.data)
        name = name_of[answer["action_id"]]
        if answer["code"] in ("storage_full", "rate_limited", "runtime_stopping") or name in REPEATABLE:
            continue
        if name in FREQUENT and not answer["accepted"] and answer["action_id"] not in first:
            continue
        if first.setdefault(answer["action_id"], answer) != answer:
            yield Fault("actions", f"{answer['action_id']} was answered {first[answer['action_id']]}, then {answer}")


def check_said_once(history: History) -> Iterator[Fault]:
    """What a page says is delivered once, however often its action is sent: no more deliveries than there are ids."""
    ids: dict[str, set[str]] = defaultdict(set)
    for entry in history.host.of("action"):
        if entry.data["name"] in INPUTS:
            ids[_input(entry.data["name"], entry.data["args"])].add(entry.data["action_id"])
    deliveries: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for log in history.workers.values():
        for _, message in log.messages("received", "inbox.deliver"):
            body = message["body"]
            if body["kind"] in INPUTS and not str(body["body"].get("name", "")).startswith("lineup."):
                deliveries[_input(body["kind"], body["body"])].add((log.instance_id, body["seq"]))
    for what, seqs in deliveries.items():
        if len(seqs) > len(ids[what]):
            yield Fault("actions", f"{what} was said {len(ids[what])} times and delivered as {sorted(seqs)}")


def _input(kind: str, args: Row) -> str:
    return json.dumps([kind, args["surface_id"], args.get("name"), args.get("payload")], sort_keys=True)


def check_focus(history: History) -> Iterator[Fault]:
    """At every revision: each conversation's focus is not empty, has its Interact in it, and holds only the living."""
    instances: dict[str, Row] = {}
    conversations: dict[str, Row] = {}
    known = False
    for entry in history.host.entries:
        if entry.what in ("boot", "replaced"):
            known = False
        elif entry.what == "snapshot":
            instances = {row["instance_id"]: row for row in entry.data["instances"]}
            conversations = {row["conversation_id"]: row for row in entry.data["conversations"]}
            known = True
            yield from _focus(instances, conversations, list(conversations))
        elif entry.what == "delta" and known:
            touched = []
            for change in entry.data["changes"]:
                if change["row"] is None and change["kind"] == "instance":
                    instances.pop(change["id"], None)  # closed, and not kept
                elif change["row"] is not None and change["kind"] == "instance":
                    instances[change["id"]] = change["row"]
                    touched.append(change["row"]["conversation_id"])
                elif change["row"] is not None and change["kind"] == "conversation":
                    conversations[change["id"]] = change["row"]
                    touched.append(change["id"])
            yield from _focus(instances, conversations, touched)


def _focus(instances: dict[str, Row], conversations: dict[str, Row], touched: list[str]) -> Iterator[Fault]:
    for conversation_id in dict.fromkeys(touched):
        row = conversations.get(conversation_id)
        if row is None:
            continue
        focus = row["focus"]
        if not focus or len(set(focus)) != len(focus):
            yield Fault("focus", f"{conversation_id}: the focus is {focus}")
            continue
        if row["chat_instance_id"] not in focus:
            yield Fault("focus", f"{conversation_id}: Interact {row['chat_instance_id']} is not in {focus}")
        for instance_id in focus:
            state = instances.get(instance_id, {}).get("state", "unknown")
            wanted = ("foreground", "starting") if instance_id == focus[-1] else ("background", "suspended", "starting")
            if state not in wanted:
                yield Fault("focus", f"{conversation_id}: {instance_id} is {state} in {focus}")
        for instance_id, instance in instances.items():
            if (
                instance["conversation_id"] == conversation_id
                and instance["state"] == "foreground"
                and instance_id != focus[-1]
            ):
                yield Fault("focus", f"{conversation_id}: {instance_id} is in the foreground beside {focus}")
