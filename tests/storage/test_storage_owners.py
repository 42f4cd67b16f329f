"""Whose goes where there is too much: nobody's record is pushed out by what another one brings (``core.retention``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.harness import CONFIRM, Core
from lineup_protocol import limits
from lineup_supervisor.core import invariants
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import (
    CALLS,
    INTERACTIONS,
    META,
    OVER,
    RETIRED,
    SCHEMA_VERSION,
    SESSIONS,
    SURFACES,
    TABLES,
    TIMELINE,
    Meta,
    Retired,
)
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_memory import MemoryStore
from lineup_supervisor.store_migrations import MIGRATIONS
from storage.traffic import Traffic


def fill_with_calls(core: Core) -> None:
    for n in range(120):
        core.call("lab.launch", {"n": "many"}, call_id=f"k{n}", link="a2", conversation="c2")
        core.send("ack", {"seq": n + 1}, link="a2")


def fill_with_questions_of_agents(core: Core) -> None:
    for n in range(120):
        core.call_accepted("confirm", CONFIRM, call_id=f"k{n}", link="a2", conversation="c2")
        core.send("tool.cancel", {"call_id": f"k{n}"}, link="a2", conversation="c2")


def fill_with_questions_of_apps(core: Core) -> None:
    core.call_accepted("lab2.launch", call_id="k", link="a2", conversation="c2")
    worker = core.start("lab2")
    worker.take("k")
    for _ in range(120):
        asked = worker.accept("ui.request", request={"kind": "confirm", **CONFIRM})
        worker.accept("ui.cancel", interaction_id=asked["interaction_id"])
        worker.ask("inbox.ack", seq=worker.deliveries()[-1]["seq"])


def fill_with_sessions(core: Core) -> None:
    for n in range(60):
        core.call_accepted("timer.start", {"duration_seconds": 60}, call_id=f"k{n}", link="a2", conversation="c2")
        core.call_accepted("timer.interrupt", {}, call_id=f"i{n}", link="a2", conversation="c2")


def fill_with_surfaces(core: Core) -> None:
    core.call_accepted("lab2.launch", call_id="k", link="a2", conversation="c2")
    worker = core.start("lab2")
    for _ in range(60):
        surface_id = worker.accept("surface.open", entry="surface/index.html")["surface_id"]
        worker.accept("surface.close", surface_id=surface_id)


@pytest.mark.parametrize(
    ("fill", "table", "most"),
    [
        (fill_with_calls, CALLS, 20),
        (fill_with_questions_of_agents, INTERACTIONS, 20),
        (fill_with_questions_of_apps, INTERACTIONS, 20),
        (fill_with_sessions, SESSIONS, 10),
        (fill_with_surfaces, SURFACES, 10),
    ],
)
def test_who_brings_much_pushes_out_nothing_of_others(
    fill: Callable[[Core], None], table: Table[Any], most: int
) -> None:
    """One agent with its MiniApp has little of everything; another one brings many times what is kept."""
    policy = Policy(calls_kept_max=20, interactions_kept_max=20, sessions_kept_max=10, surfaces_kept_max=10)
    core = Core(policy=policy)
    core.connect("a1")
    core.connect("a2")
    core.call_accepted("lab.launch", call_id="mine")
    worker = core.start("lab")
    worker.take("mine")
    surface_id = worker.accept("surface.open", entry="surface/index.html")["surface_id"]
    worker.accept("surface.close", surface_id=surface_id)
    asked = worker.accept("ui.request", request={"kind": "confirm", **CONFIRM})
    core.did("interaction.answer", interaction_id=asked["interaction_id"], result={"approved": True})
    worker.take_all()
    core.call_accepted("confirm", CONFIRM, call_id="question")
    core.send("tool.cancel", {"call_id": "question"}, conversation="c1")
    worker.accept("tool.complete", call_id="mine", result={"n": 1})
    worker.accept("lifecycle.close")
    worker.exit("stopped")
    core.send("ack", {"seq": 2})
    mine = dict(core.scan(table))
    told = len(list(core.scan(TIMELINE, "c1")))
    core.advance(1)
    fill(core)
    for worker in [*core.workers.values()]:
        if worker.stopped:
            worker.exit("stopped")
    core.advance(120)
    kept = dict(core.scan(table))
    assert mine
    assert {key: kept.get(key) for key in mine} == mine
    assert len(list(core.scan(TIMELINE, "c1"))) == told
    over = [row for row in kept.values() if getattr(row, "state", "") not in ("open", "pending")]
    assert len(over) <= most + 1, "and there is no more than may be, but for what is open"


def test_settled_questions_are_bounded_in_bytes_and_the_largest_owner_gives_way() -> None:
    core = Core(policy=Policy(interactions_kept_bytes_max=200_000))
    core.connect("a1")
    workers = {}
    for scope in ("lab", "lab2"):
        core.call_accepted(f"{scope}.launch", call_id=scope, conversation=scope)
        workers[scope] = core.start(scope)
        workers[scope].take(scope)
    for scope, length in (("lab", 10), ("lab2", 60_000)):
        for _ in range(10):
            notice = {"kind": "notice", "title": "T", "message": "x" * length}
            asked = workers[scope].accept("ui.request", request=notice)
            workers[scope].accept("ui.cancel", interaction_id=asked["interaction_id"])
            workers[scope].take_all()
        core.advance(1)
    core.advance(60)
    of = [row.app_scope for _, row in core.scan(INTERACTIONS)]
    assert of.count("lab") == 10, "more of them, but next to nothing"
    assert of.count("lab2") == 3


def test_what_an_owner_left_unheard_keeps_only_itself() -> None:
    """A MiniApp that leaves as many outcomes untaken as are looked through kept all that it ever asked."""
    core = Core(policy=Policy(interactions_kept_max=10))
    core.connect("a1")
    core.call_accepted("lab.launch", call_id="k")
    worker = core.start("lab")
    worker.take("k")

    def ask() -> str:
        asked = worker.accept("ui.request", request={"kind": "confirm", **CONFIRM})
        worker.accept("ui.cancel", interaction_id=asked["interaction_id"])
        return str(asked["interaction_id"])

    for _ in range(100):
        ask()
        worker.accept("inbox.ack", seq=worker.deliveries()[-1]["seq"])
    unheard = {ask() for _ in range(limits.INBOX_WINDOW_MESSAGES_MAX)}
    core.advance(7_200)
    assert {key[0] for key, _ in core.scan(INTERACTIONS)} == unheard
    worker.take_all()
    core.advance(7_200)
    assert len(list(core.scan(INTERACTIONS))) == 10


def test_questions_take_no_texts_out_of_a_short_timeline() -> None:
    core = Core(policy=Policy(timeline_entries_max=20))
    core.connect("a1")
    core.call_accepted("lab.launch", call_id="k")
    worker = core.start("lab")
    worker.take("k")
    for n in range(10):
        core.did("person.text", conversation_id="c1", text=f"text {n}")
    for _ in range(100):
        asked = worker.accept("ui.request", request={"kind": "confirm", **CONFIRM})
        worker.accept("ui.cancel", interaction_id=asked["interaction_id"])
        worker.accept("inbox.ack", seq=worker.deliveries()[-1]["seq"])
    texts = [row.text for _, row in core.scan(TIMELINE, "c1") if row.kind == "text"]
    assert texts == [f"text {n}" for n in range(10)]
    for n in range(10, 40):
        core.did("person.text", conversation_id="c1", text=f"text {n}")
    counted = [row for _, row in core.scan(TIMELINE, "c1") if row.kind in ("text", "call")]
    assert len(counted) == 20
    assert counted[-1].text == "text 39"


def test_a_queue_of_the_first_version_gets_its_owners(tmp_path: Path) -> None:
    traffic = Traffic(MemoryStore(TABLES, encoded=True), Policy())
    traffic.boot()
    traffic.calls(0, 5)
    traffic.run(traffic.call("op", "timer.start", {"duration_seconds": 60}))
    traffic.pass_time(61_000)
    traffic.run(traffic.call("q", "confirm", CONFIRM))
    (asked,) = traffic.query("interactions").detail["interactions"]
    assert traffic.action("interaction.cancel", interaction_id=asked["interaction_id"]).accepted
    with traffic.store.read() as txn:
        tables: dict[Table[Any], dict[Any, Any]] = {table: dict(txn.scan(table)) for table in TABLES}
    assert {key[0] for key in tables[RETIRED]} == {"call", "instance", "interaction"}
    today = {table.name: dict(tables[table]) for table in (RETIRED, OVER, META)}
    tables[RETIRED] = {(key[0], *key[2:]): Retired() for key in tables[RETIRED]}
    tables[OVER] = {}
    sizes = {name: 0 for name in Meta.__struct_fields__ if name.endswith("_over_bytes")}
    tables[META] = {key: msgspec.structs.replace(row, **sizes) for key, row in tables[META].items()}
    old = Store.open(tmp_path, TABLES, schema_version=1)
    with old.write() as txn:
        for table, kept in tables.items():
            for key, row in kept.items():
                txn.put(table, key, row)
    old.close()
    new = Store.open(tmp_path, TABLES, schema_version=SCHEMA_VERSION, migrations=MIGRATIONS)
    with new.read() as txn:
        assert {table.name: dict(txn.scan(table)) for table in (RETIRED, OVER, META)} == today
        assert invariants.find_faults(txn) == []
    new.close()
