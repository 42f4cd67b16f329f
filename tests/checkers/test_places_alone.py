"""The checkers of places and room on histories written by hand."""

from __future__ import annotations

from typing import Any

from checkers.history import Entry, History, Waits, WorkerLog
from checkers.places import check_places, check_room, check_who_goes, check_who_waits


def audited(*rows: tuple[str, str, dict[str, Any]], workers_max: int = 4) -> History:
    made = History(seed=0, workers_max=workers_max)
    for kind, subjects, detail in rows:
        made.audit.append({"kind": kind, "subjects": subjects.split(), "detail": detail, "seq": len(made.audit) + 1})
    return made


def alive(app: str, *ids: str) -> list[tuple[str, str, dict[str, Any]]]:
    rows: list[tuple[str, str, dict[str, Any]]] = []
    for id_ in ids:
        rows += [("instance.created", id_, {"app": app}), ("worker.starting", id_, {"incarnation": 1})]
    return rows


def test_a_miniapp_with_more_than_its_share_is_seen() -> None:
    assert not list(check_places(audited(*alive("lab", "i1", "i2"), *alive("lab2", "i3", "i4"))))
    (fault,) = check_places(audited(*alive("lab", "i1", "i2", "i3")))
    assert "lab has 3 places with i3, 2 it may have" in fault.words
    ended = audited(*alive("lab", "i1", "i2"), ("worker.exited", "i1", {"reason": "stopped"}), *alive("lab", "i3"))
    assert not list(check_places(ended))


def test_more_processes_than_places_and_those_that_are_kept_are_seen() -> None:
    full = (*alive("lab", "i1", "i2"), *alive("lab2", "i3", "i4"))
    assert [f.checker for f in check_places(audited(*full, *alive("chat", "i5")))] == ["places"]
    seven = [("lab", 4), ("lab2", 3)]
    rows = [row for app, count in seven for row in alive(app, *(f"{app}-{n}" for n in range(count)))]
    assert not list(check_places(audited(*rows, *alive("chat", "c1"), workers_max=8)))
    (fault,) = check_places(audited(*rows, *alive("lab2", "i9"), workers_max=8))
    assert "with i9" in fault.words


def test_who_is_let_go_of_while_it_runs_a_call_is_seen() -> None:
    runs = ("call.running", "k1 i1", {})
    goes = ("worker.stopping", "i1", {"reason": "reclaimed"})
    assert [f.words for f in check_who_goes(audited(runs, goes))] == ["i1 was let go of while it ran ['k1']"]
    assert not list(check_who_goes(audited(runs, ("call.completed", "k1 a1 i1", {}), goes)))
    assert not list(check_who_goes(audited(runs, ("worker.stopping", "i1", {"reason": "closed"}))))


def test_who_waits_in_vain_is_seen() -> None:
    made = History(seed=0, workers_max=2)
    made.waits = Waits(waiting=[("i3", "lab3")], places=[("i1", "lab"), ("i2", "lab2")], could_go=[])
    assert not list(check_who_waits(made)), "those have work"
    made.waits.could_go.append(("i1", "lab"))
    assert [f.checker for f in check_who_waits(made)] == ["places"]
    made.waits.waiting = [("i4", "lab2")]
    assert not list(check_who_waits(made)), "its own MiniApp has its share, and none of its own could go"


def said(made: History, count: int, payload: str) -> None:
    row = {"instance_id": "i1", "app_scope": "lab"}
    changes = [{"kind": "surface", "id": "f1", "row": row}]
    made.host.entries.append(Entry(0, 0, "delta", {"revision": 1, "changes": changes}))
    for n in range(count):
        args = {"surface_id": "f1", "payload": payload}
        made.host.entries += [
            Entry(10 * n + 1, 0, "action", {"action_id": f"x{n}", "name": "surface.submit", "args": args}),
            Entry(10 * n + 2, 0, "reply", {"action_id": f"x{n}", "accepted": True}),
        ]


def test_an_inbox_that_takes_too_much_is_seen() -> None:
    made = History(seed=0, inbox_max=3, inbox_bytes_max=100)
    said(made, 3, "x")
    assert not list(check_room(made))
    made = History(seed=0, inbox_max=3)
    said(made, 4, "x")
    assert [f.words for f in check_room(made)] == ["4 inputs wait for i1, 3 may"]
    made = History(seed=0, inbox_bytes_max=100)
    said(made, 2, "x" * 60)
    assert [f.words for f in check_room(made)] == ["120 bytes of input wait for lab, 100 may"]


def test_what_was_taken_over_waits_no_more() -> None:
    made = History(seed=0, inbox_max=3)
    said(made, 4, "x")
    log = made.workers["i1", 1] = WorkerLog("i1", 1, "lab")
    body = {"seq": 1, "kind": "surface.submit", "body": {"surface_id": "f1", "payload": "x"}}
    log.entries += [
        Entry(5, 0, "received", {"type": "inbox.deliver", "body": body}),
        Entry(6, 0, "sent", {"type": "inbox.ack", "body": {"seq": 1}}),
    ]
    assert not list(check_room(made))
