"""Who has a process: how many of one MiniApp, who is let go of for others, who waits for a place in vain; and that
what waits for a MiniApp is bounded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from checkers.history import Fault, History

CHAT = "chat"  # Interact: everybody needs it
ENDED = ("completed", "failed", "cancelled", "expired", "redelivered")
INPUTS = ("surface.event", "surface.submit")
Row = dict[str, Any]


def check_places(history: History) -> Iterator[Fault]:
    """No more processes than there are places; of one MiniApp half of them, of all but Interact 7 in 8."""
    app_of: dict[str, str] = {}
    alive: dict[str, str] = {}  # instance → its MiniApp, while it has a process
    half, others = max(1, history.workers_max // 2), history.workers_max - history.workers_max // 8
    for row in history.audit:
        subject = row["subjects"][0] if row["subjects"] else ""
        if row["kind"] == "instance.created":
            app_of[subject] = row["detail"]["app"]
        elif row["kind"] == "worker.exited":
            alive.pop(subject, None)
        elif row["kind"] == "worker.starting":
            app = alive[subject] = app_of.get(subject, "")
            count = Counter(alive.values())
            if len(alive) > history.workers_max or count.total() - count[CHAT] > others:
                yield Fault("places", f"there are {dict(count)} processes with {subject}")
            if app not in ("", CHAT) and count[app] > half:
                yield Fault("places", f"{app} has {count[app]} places with {subject}, {half} it may have")


def check_who_goes(history: History) -> Iterator[Fault]:
    """Nobody is let go of while a call of it runs."""
    runs: dict[str, set[str]] = defaultdict(set)  # instance → its running calls
    for row in history.audit:
        kind, ids = row["kind"], row["subjects"]
        what = kind.removeprefix("call.")
        if kind == "call.running":
            runs[ids[1]].add(ids[0])
        elif kind.startswith("call.") and what in ENDED:
            for calls in runs.values():
                calls.discard(ids[0])
        elif kind == "worker.stopping" and row["detail"]["reason"] == "reclaimed" and runs[ids[0]]:
            yield Fault("places", f"{ids[0]} was let go of while it ran {sorted(runs[ids[0]])}")


def check_who_waits(history: History) -> Iterator[Fault]:
    """While somebody waits for a place for long, nobody has one who could do without it."""
    waits = history.waits
    places = Counter(app for _, app in waits.places)
    for instance_id, app in waits.waiting:
        has_share = app != CHAT and places[app] >= max(1, history.workers_max // 2)
        kept = app != CHAT and places[CHAT] <= history.workers_max // 8  # nobody else gets the place of an Interact
        could = [other for other, its in waits.could_go if its == app or not (has_share or (kept and its == CHAT))]
        if could:
            yield Fault("places", f"{instance_id} waits for a place, and {could} have one without need")


def check_room(history: History) -> Iterator[Fault]:
    """What pages say is refused when as much waits for their MiniApp already; judged by what surely waits."""
    owner = {
        change["id"]: (change["row"]["instance_id"], change["row"]["app_scope"])
        for entry in history.host.of("delta")
        for change in entry.data["changes"]
        if change["kind"] == "surface" and change["row"] is not None
    }
    said = {e.data["action_id"]: e.data for e in history.host.of("action") if e.data["name"] in INPUTS}
    events = [(at, instance_id, app, -1, -size) for at, instance_id, app, size in _taken(history)]
    told: set[str] = set()
    for entry in history.host.of("reply"):
        action = said.get(entry.data["action_id"])
        if action is None or not entry.data["accepted"] or entry.data["action_id"] in told:
            continue
        told.add(entry.data["action_id"])
        instance_id, app = owner.get(action["args"]["surface_id"], ("", ""))
        events.append((entry.at, instance_id, app, 1, len(str(action["args"]["payload"]))))
    items: Counter[str] = Counter()
    size: Counter[str] = Counter()
    ended = {row["subjects"][0] for row in history.audit if row["kind"] == "inbox.closed"}
    for _, instance_id, app, one, more in sorted(events):
        if instance_id in ended:
            continue  # dropped at a moment that the participants do not know
        items[instance_id] += one
        size[app] += more
        if history.inbox_max and items[instance_id] > history.inbox_max:
            yield Fault("room", f"{items[instance_id]} inputs wait for {instance_id}, {history.inbox_max} may")
        if history.inbox_bytes_max and size[app] > history.inbox_bytes_max:
            yield Fault("room", f"{size[app]} bytes of input wait for {app}, {history.inbox_bytes_max} may")


def _taken(history: History) -> Iterator[tuple[int, str, str, int]]:
    """The first acknowledgement of each input: when it was sent, which is before it counted."""
    seen: set[tuple[str, int]] = set()
    for log in sorted(history.workers.values(), key=lambda log: log.incarnation):
        inputs = {
            message["body"]["seq"]: len(str(message["body"]["body"]["payload"]))
            for _, message in log.messages("received", "inbox.deliver")
            if message["body"]["kind"] in INPUTS
        }
        for entry, message in log.messages("sent", "inbox.ack"):
            seq = message["body"].get("seq")
            if seq in inputs and (log.instance_id, seq) not in seen:
                seen.add((log.instance_id, seq))
                yield entry.at, log.instance_id, log.app_scope, inputs[seq]
