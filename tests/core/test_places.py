"""Who gives a place back when others wait for one, what brings it back, and how many places one MiniApp has."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import Core, Worker, status_of
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import embodiment
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import APPS, INSTANCES, SPARE, STARTS, WORKERS
from lineup_supervisor.core.tables import WorkerState
from simulation import bundles

QUESTION = {"kind": "confirm", "title": "Sure?", "prompt": "Shall we?"}
RESULT = {"n": 1}


@pytest.fixture
def core() -> Core:
    made = Core()
    made.connect("a1")
    return made


def house(places: int, *apps: str, **policy: Any) -> Core:
    core = Core(policy=Policy(workers_max=places, **policy), manifests=tuple(bundles.lab(app) for app in apps))
    core.connect("a1")
    return core


def busy(core: Core, app: str, n: int, tool: str = "safe") -> Worker:
    """A worker that runs a call, in a conversation of its own."""
    core.call_accepted(f"{app}.{tool}", call_id=f"{app}-{n}", conversation=f"{app}-{n}")
    worker = core.start(app)
    worker.take(f"{app}-{n}")
    core.advance(0.1)  # who is used earlier is used less recently
    return worker


def done(worker: Worker, n: int) -> Worker:
    worker.accept("tool.complete", call_id=f"{worker.app_scope}-{n}", result=RESULT)
    return worker


def asking(core: Core, app: str, n: int) -> Worker:
    """A worker whose MiniApp has only a question open."""
    worker = busy(core, app, n)
    worker.accept("ui.request", request=QUESTION)
    return done(worker, n)


def board(core: Core, app: str, n: int) -> Worker:
    """A worker whose MiniApp shows a page in the foreground of its conversation."""
    worker = busy(core, app, n, "front")
    worker.accept("surface.open", entry="surface/index.html")
    return done(worker, n)


def surface_of(core: Core, worker: Worker) -> str:
    (row,) = [s for s in core.query("snapshot")["surfaces"] if s["instance_id"] == worker.instance_id]
    return str(row["surface_id"])


def question_of(core: Core, worker: Worker) -> str:
    (row,) = [q for q in core.questions() if q["owner"]["instance_id"] == worker.instance_id]
    return str(row["interaction_id"])


def shown(core: Core, *workers: Worker) -> None:
    core.did("pages.shown", surface_ids=[surface_of(core, worker) for worker in workers])


def gone(core: Core, workers: list[Worker]) -> list[Worker]:
    """Those that were let go of; their processes end."""
    let_go = [worker for worker in workers if worker.stopped is not None]
    for worker in let_go:
        worker.exit("stopped")
    return let_go


@pytest.mark.parametrize("waiting", [asking, board])
def test_who_only_waits_for_a_person_gives_its_place_to_others(waiting: Any) -> None:
    core = house(4, "lab", "lab2", "lab3")
    workers = [waiting(core, app, n) for app in ("lab", "lab2") for n in range(2)]
    assert [worker.stopped for worker in workers] == [None] * 4, "nobody waits for a place yet"
    core.call_accepted("lab3.safe", call_id="v", conversation="other")
    assert [worker.stopped for worker in workers] == ["reclaimed", None, None, None], "one, the least recently used"
    gone(core, workers)
    core.start("lab3").take("v")
    row = core.row(INSTANCES, workers[0].instance_id)
    assert row.rests
    assert row.state != "closed"
    core.advance(24 * 3_600)
    assert core.unstarted == [], "and it is not started again for nothing"


def test_one_is_let_go_of_for_one_start_however_much_happens_before_it_has_gone() -> None:
    """Also of a MiniApp that has its whole share of the places."""
    core = house(2, "lab", "lab2", "lab3")
    workers = [done(busy(core, app, 0), 0) for app in ("lab", "lab2")]
    core.call_accepted("lab3.safe", call_id="v", conversation="other")
    for _ in range(3):
        core.send("ping", {})
    assert [worker.stopped for worker in workers] == ["reclaimed", None]


def test_the_answer_starts_it_again() -> None:
    core = house(2, "lab", "lab2", "lab3")
    first = asking(core, "lab", 0)
    asking(core, "lab2", 0)
    core.call_accepted("lab3.safe", call_id="v", conversation="other")
    gone(core, [first])
    done_(core, core.start("lab3"), "v")
    core.did("interaction.answer", interaction_id=question_of(core, first), result={"approved": True})
    gone(core, list(core.workers.values()))
    again = core.start("lab")
    assert again.instance_id == first.instance_id
    (delivery,) = again.deliveries("interaction.result")
    assert delivery["body"]["interaction"]["result"] == {"approved": True}
    assert not core.row(INSTANCES, first.instance_id).rests


def done_(core: Core, worker: Worker, call_id: str) -> None:
    worker.take(call_id)
    worker.accept("tool.complete", call_id=call_id, result=RESULT)


def test_what_a_person_has_before_them_keeps_its_process_and_a_look_brings_it_back() -> None:
    core = house(2, "lab", "lab2", "lab3")
    seen, unseen = board(core, "lab", 0), board(core, "lab2", 0)
    shown(core, seen)
    core.call_accepted("lab3.safe", call_id="v", conversation="other")
    assert (seen.stopped, unseen.stopped) == (None, "reclaimed")
    gone(core, [unseen])
    visitor = core.start("lab3")
    visitor.take("v")
    shown(core, unseen)
    assert seen.stopped == "reclaimed", "the person has left it and looks at the other"
    gone(core, [seen])
    again = core.start("lab2")
    assert again.instance_id == unseen.instance_id
    welcome = next(m["body"] for m in again.messages if m["type"] == "worker.welcome")
    assert [surface["surface_id"] for surface in welcome["surfaces"]] == [surface_of(core, unseen)]
    core.boot()
    core.connect("a1", "l2")
    assert core.row(STARTS, "lab2").under_way == 1, "a wish for a process outlives a run; who was looked at does not"


@pytest.mark.parametrize(
    "deed",
    [
        lambda core, worker: core.did("instance.front", instance_id=worker.instance_id),
        lambda core, worker: core.did("surface.patch", surface_id=surface_of(core, worker), patch={"a": 1}),
        lambda core, worker: core.did("surface.submit", surface_id=surface_of(core, worker), payload=1),
        lambda core, worker: core.call_accepted("lab.poke", call_id="again", conversation="lab-0"),
    ],
)
def test_whatever_a_person_or_an_agent_wants_of_it_starts_it_again(deed: Any) -> None:
    core = house(2, "lab", "lab2", "lab3")
    first = board(core, "lab", 0)
    board(core, "lab2", 0)
    core.call_accepted("lab3.safe", call_id="v", conversation="other")
    gone(core, [first])
    done_(core, core.start("lab3"), "v")
    deed(core, first)
    gone(core, [worker for worker in core.workers.values() if worker is not first])
    assert core.start("lab").instance_id == first.instance_id


def test_memory_is_given_back_the_same_way_and_never_what_is_looked_at() -> None:
    core = house(64, "lab", "lab2")
    seen, unseen, asks = board(core, "lab", 0), board(core, "lab2", 0), asking(core, "lab", 1)
    runs, idle = busy(core, "lab2", 1), done(busy(core, "lab2", 2), 2)
    shown(core, seen)
    workers = [seen, unseen, asks, runs, idle]
    core.do(ev.ReclaimWorkers(event_id=core.new_id(), count=1))
    assert [worker.stopped for worker in workers] == [None, None, None, None, "reclaimed"], "nobody needs it"
    core.do(ev.ReclaimWorkers(event_id=core.new_id(), count=8))
    assert [worker.stopped for worker in workers] == [None, "reclaimed", "reclaimed", None, "reclaimed"]
    gone(core, workers)
    assert core.unstarted == []


def test_a_call_that_runs_is_never_ended_for_a_place_so_no_miniapp_has_more_than_half() -> None:
    core = house(6, "lab", "lab2", "lab3")
    for n in range(5):
        core.call_accepted("lab.launch", call_id=f"lab-{n}", conversation=f"lab-{n}")
    while core.unstarted:
        worker = core.start("lab")
        worker.take(worker.deliveries("tool.call")[0]["body"]["call_id"])
    workers = list(core.workers.values())
    assert core.row(STARTS, "lab").places == 3
    assert core.row(STARTS, "lab").waiting == 2
    core.advance(24 * 3_600)
    assert [worker.stopped for worker in workers] == [None] * 3
    busy(core, "lab2", 0)
    busy(core, "lab3", 0)
    call_id = workers[0].deliveries("tool.call")[0]["body"]["call_id"]
    workers[0].accept("tool.complete", call_id=call_id, result=RESULT)
    assert workers[0].stopped == "reclaimed", "for the next of its own"
    gone(core, workers)
    assert core.start("lab").app_scope == "lab"


def test_interact_has_places_that_nobody_else_gets_and_as_many_as_there_are() -> None:
    core = house(8, *(f"lab{n}" for n in ("", 2, 3, 4)))
    for n in range(8):
        app = ("lab", "lab2", "lab3", "lab4")[n % 4]
        core.call_accepted(f"{app}.launch", call_id=f"k{n}", conversation=f"c{n}")
        if core.unstarted:
            core.start(app).take(f"k{n}")
    assert [len(list(core.scan(WORKERS))), len(core.unstarted)] == [7, 0], "one is kept"
    for n in range(3):
        core.send("message.text", {"text": "hello"}, conversation=f"c{n}")
        chat = core.start("chat")
        chat.take_all()
        if n < 2:
            assert chat.stopped is None, "nobody else could have its place"
            core.send("message.text", {"text": "hello"}, conversation=f"c{n + 1}")
            assert chat.stopped == "reclaimed", "one conversation after the other"
            chat.exit("stopped")
            chat = core.start("chat")
            chat.take_all()
        core.advance(61)
        chat.exit("stopped")
    assert len(core.unstarted) == 0


def test_an_interact_is_not_let_go_of_for_a_place_that_is_kept_for_it() -> None:
    core = house(8, "lab", "lab2", "lab3")
    _ = [busy(core, "lab", n) for n in range(4)] + [busy(core, "lab2", n) for n in range(3)]
    core.send("message.text", {"text": "hi"}, conversation="c1")
    chat = core.start("chat")
    chat.take_all()
    core.call_accepted("lab3.safe", call_id="v", conversation="other")
    core.advance(1)
    assert chat.stopped is None, "nobody else could have its place"
    assert [w.app_scope for w in core.unstarted] == []


def test_of_idle_interacts_only_as_many_make_room_as_others_can_use() -> None:
    core = house(16, "lab", "lab2", "lab3")
    boards = [board(core, app, n) for app in ("lab", "lab2") for n in range(6)]
    chats = []
    for conversation in ("c1", "c2", "c3", "c4"):
        core.send("message.text", {"text": "hi"}, conversation=conversation)
        chats.append(core.start("chat"))
        chats[-1].take_all()
    core.call_accepted("lab3.safe", call_id="v", conversation="other")
    assert [w.stopped for w in chats].count("reclaimed") == 1, "it has two more than are kept for it"
    assert not any(w.stopped for w in boards)
    next(w for w in chats if w.stopped).exit("stopped")
    assert [w.app_scope for w in core.unstarted] == ["lab3"]
    core.call_accepted("lab3.safe", call_id="w", conversation="another")
    core.call_accepted("lab3.safe", call_id="x", conversation="third")
    assert [w.stopped for w in chats].count("reclaimed") == 2
    assert [w.stopped for w in boards].count("reclaimed") == 1, "and then who waits for a person"


def test_interact_alone_may_have_every_place() -> None:
    core = house(8)
    for n in range(8):
        core.send("message.text", {"text": "hello"}, conversation=f"c{n}")
        core.start("chat")
    assert len(list(core.scan(WORKERS))) == 8


def test_a_full_house_looks_at_nobody_while_nobody_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    core = house(4, "lab", "lab2", "lab3")
    for n in range(2):
        busy(core, "lab", n)
        busy(core, "lab2", n)
    core.call_accepted("lab3.safe", call_id="v", conversation="other")
    assert list(core.scan(SPARE)) == []
    looked: list[Any] = []
    for name in ("need_of", "_let_go_of_one"):
        monkeypatch.setattr(embodiment, name, lambda *args, name=name: looked.append(name))
    core.send("ping", {})
    core.do(ev.Wake(event_id=core.new_id()))
    assert looked == []


def test_nobody_who_is_condemned_is_let_go_of_in_its_place() -> None:
    core = house(2, "lab", "lab2", "lab3")
    condemned, other = done(busy(core, "lab", 0), 0), busy(core, "lab2", 0)
    condemned.raw(["not", "a", "map"])
    core.call_accepted("lab3.safe", call_id="v", conversation="other")
    assert (condemned.stopped, other.stopped) == ("violation", None)
    condemned.exit("stopped")
    assert len(core.row(INSTANCES, condemned.instance_id).crashes) == 1
    core.start("lab3").take("v")


def test_what_is_shown_is_a_list_of_ids() -> None:
    core = house(2)
    for args in ({}, {"surface_ids": "f-1"}, {"surface_ids": [7]}, {"surface_ids": ["f-1"] * 1_025}):
        assert core.action("pages.shown", **args).code == "message_invalid"
    core.did("pages.shown", surface_ids=["f-none"])


def test_reclaiming_takes_the_least_recently_used_first(core: Core) -> None:
    core.call_accepted("lab.direct", call_id="k1")
    first = core.start("lab")
    first.accept("tool.complete", call_id="k1", result=RESULT)
    core.advance(1)
    core.call_accepted("lab2.direct", call_id="k2")
    second = core.start("lab2")
    second.accept("tool.complete", call_id="k2", result=RESULT)
    core.do(ev.ReclaimWorkers(event_id=core.new_id(), count=1))
    assert (first.stopped, second.stopped) == ("reclaimed", None)
    first.exit("stopped")
    assert core.row(INSTANCES, first.instance_id).state == "suspended"


def idle(core: Core, scope: str, call_id: str) -> Worker:
    """A worker that has done its call, in the background."""
    core.call_accepted(f"{scope}.direct", call_id=call_id)
    worker = core.start(scope)
    worker.accept("tool.complete", call_id=call_id, result=RESULT)
    core.advance(1)
    return worker


def test_no_more_workers_are_let_go_of_than_starts_wait_and_none_by_a_question() -> None:
    core = Core(policy=Policy(workers_max=2))
    core.connect("a1")
    first, second = idle(core, "lab", "k1"), idle(core, "lab2", "k2")
    core.call_accepted("lab.direct", call_id="k3", conversation="c2")
    assert [first.stopped, second.stopped] == ["reclaimed", None]
    before = core.dump()
    assert [type(e) for e in core.do(ev.HostQuery(event_id=core.new_id(), reply_to="h", name="status", args={}))] == [
        fx.ReplyHost
    ]
    assert core.dump() == before
    core.send("ping", {})
    assert [first.stopped, second.stopped] == ["reclaimed", None], "one place is enough for one start"
    first.exit("stopped")
    assert core.start("lab").instance_id == core.instance("lab", "c2").instance_id


@pytest.mark.parametrize("reason", ["start_failed", "unconfined"])
def test_a_start_that_fails_for_our_own_reasons_is_tried_again_ever_more_slowly(core: Core, reason: str) -> None:
    core.call_accepted("lab.launch")
    for n in range(40):
        assert len(core.unstarted) == 1, n
        core.unstarted.pop().exit(reason)
        assert core.unstarted == [], "not at once"
        core.advance(min(5, 0.05 * 2**n))
    row = core.row(INSTANCES, core.unstarted[0].instance_id)
    assert (row.crashes, row.unstarted) == ((), 40), "nothing of it is said against the MiniApp"
    core.start("lab").take("k1")
    assert core.row(INSTANCES, row.instance_id).unstarted == 0


class TestEndsThatTakeTheirTime:
    """A start is no part of the time in which an instance's ends are counted."""

    def test_one_that_is_ready_late_and_then_ends_is_closed_and_its_miniapp_quarantined(self) -> None:
        core = house(64, "lab", "lab2")
        closed = 0
        for round_ in range(Policy().quarantine_closures_max):
            core.call_accepted("lab.safe", call_id=f"k{round_}", conversation=f"c{round_}")
            for _ in range(Policy().restarts_max + 1):
                worker = core.unstarted[0]
                core.advance(19)
                core.start("lab")
                if not worker.deliveries("tool.call"):
                    assert core.questions(), "its own question waits"
                else:
                    worker.take(f"k{round_}")
                    worker.accept("ui.request", request=QUESTION)
                    worker.accept("tool.complete", call_id=f"k{round_}", result=RESULT)
                worker.exit("killed")
                core.advance(5)
            closed += core.row(INSTANCES, worker.instance_id).state == "closed"
        assert closed == Policy().quarantine_closures_max
        assert core.row(APPS, "lab").quarantined
        assert core.unstarted == []

    def test_one_that_lives_on_is_not(self) -> None:
        core = house(64, "lab")
        core.call_accepted("lab.launch")
        for _ in range(12):
            core.advance(19)
            worker = core.start("lab")
            core.advance(20)
            worker.exit("killed")
            core.advance(5)
        assert core.instance("lab").state != "closed"


class TestLoadFailed:
    def test_it_is_heard_once(self) -> None:
        core = house(4, "lab")
        worker = busy(core, "lab", 0)
        for _ in range(50):
            worker.say("worker.failed", code="x", message="y" * 1_000)
        assert len(core.audited("worker.load_failed")) == 1
        assert worker.stopped == "load_failed"
        assert status_of(core, "lab-0") == "failed"
        assert core.row(WORKERS, worker.instance_id).state == WorkerState.STOPPING

    def test_it_counts_for_quarantine(self) -> None:
        core = house(4, "lab")
        for n in range(Policy().quarantine_closures_max):
            assert not core.row(APPS, "lab").quarantined
            core.call_accepted("lab.safe", call_id=f"k{n}", conversation=f"c{n}")
            worker = core.unstarted.pop()
            worker.started()
            worker.say("worker.hello", protocols=[1], sdk_version="1.0")
            worker.say("worker.failed", code="app_start_failed", message="ImportError: no module named paint")
            worker.exit("exited")
        row = core.row(APPS, "lab")
        assert row.quarantined
        assert "no module named paint" in row.quarantine_reason

    def test_what_this_machine_lacks_does_not(self) -> None:
        core = house(4, "lab")
        for n in range(8):
            core.call_accepted("lab.safe", call_id=f"k{n}", conversation=f"c{n}")
            core.unstarted.pop().exit("isolation_insufficient")
        assert not core.row(APPS, "lab").quarantined
