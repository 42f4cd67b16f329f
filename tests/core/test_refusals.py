"""What is refused changes nothing but the audit, wherever in a rule the refusal comes; and how long it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.harness import CONFIRM, Core, status_of
from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import capabilities, intake
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.capabilities import CATALOGUE
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.events import Now, Wake
from lineup_supervisor.core.schema import (
    AUDIT,
    CONVERSATIONS,
    LAST_OPERATION,
    LIVE_INSTANCES,
    NOTIFICATIONS,
    TABLES,
    Conversation,
    Mark,
    Ref,
)
from lineup_supervisor.edges.store_memory import MemoryStore
from simulation import bundles

OWN = ("calls", "calls_by_id", "calls_by_time", "outbox", "agents", "receipts", "receipt_ring")
ANSWERED = ("action_results", "timers", "timer_due")


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def conversation(title: str) -> Conversation:
    return Conversation(conversation_id="c", agent_id="a", title=title, opened_by="agent", created_ms=0, updated_ms=0)


class Scene:
    """A context over a store in memory, with a row of each kind of change to come."""

    def __init__(self) -> None:
        self.store = MemoryStore(TABLES, encoded=True)
        with self.store.write() as txn:
            txn.put(CONVERSATIONS, ("c",), conversation("before"))
            txn.put(LAST_OPERATION, ("c", "gone"), Ref(ref="x"))

    def run(self, rule: Any) -> tuple[Ctx, list[fx.Effect]]:
        with self.store.write() as txn:
            ctx = Ctx(txn, Wake(event_id="e"), Now(wall_ms=1, steady_ms=1))
            rule(ctx)
            return ctx, ctx.effects()


def everything(ctx: Ctx) -> None:
    """One of each thing that a rule can do, twice."""
    for n in range(2):
        ctx.put(CONVERSATIONS, ("c",), conversation(f"after {n}"))
        ctx.put(LAST_OPERATION, ("c", "new"), Ref(ref=str(n)))
        ctx.delete(LAST_OPERATION, ("c", "gone"))
        ctx.add(LIVE_INSTANCES, ("c", "new", str(ctx.meta.audit_seq)), Mark())
        audit(ctx, "something.done", "c")
        ctx.put_unseen(CONVERSATIONS, ("c",), conversation(f"unseen {n}"))
        ctx.emit(fx.Halt(reason="never"))
        ctx.send_agent("old", {"n": n})
        ctx.send_agent("new", {"n": n})
        ctx.extra_changes.append({"kind": "x", "id": "x", "row": None})
        ctx.touch("i")
        ctx.retired = True
        ctx.set_meta(conversations=5 + n)
        ctx.cause, ctx.actor = "other", "somebody"


def refused(ctx: Ctx) -> None:
    everything(ctx)
    raise LineUpError("conflict", "after all")


def test_after_a_refusal_it_is_as_if_the_rule_had_never_begun() -> None:
    scene = Scene()
    before = scene.store.dump()

    def rule(ctx: Ctx) -> None:
        ctx.send_agent("old", {"first": True})
        with pytest.raises(LineUpError, match="after all"):
            ctx.attempt(refused, ctx)
        ctx.send_agent("new", {"last": True})

    ctx, effects = scene.run(rule)
    assert scene.store.dump() == before
    assert [(e.link_id, e.frames) for e in effects if isinstance(e, fx.SendAgent)] == [
        ("old", ({"first": True},)),
        ("new", ({"last": True},)),
    ]
    assert len(effects) == 2
    assert (ctx.changed, ctx.extra_changes, ctx.touched, ctx.retired) == ({}, [], {}, False)
    assert (ctx.cause, ctx.actor, ctx.meta.audit_seq, ctx.meta.conversations) == ("e", "runtime", 0, 0)


def test_an_attempt_within_an_attempt_takes_back_its_own_part() -> None:
    def outer(ctx: Ctx) -> None:
        everything(ctx)
        with pytest.raises(LineUpError):
            ctx.attempt(refused, ctx)

    once, twice = Scene(), Scene()
    once.run(lambda ctx: ctx.attempt(everything, ctx))
    ctx, effects = twice.run(lambda ctx: ctx.attempt(outer, ctx))
    assert twice.store.dump() == once.store.dump()
    assert len([e for e in effects if isinstance(e, fx.Halt)]) == 2
    assert ctx.meta.audit_seq == 2

    def outer_refused(ctx: Ctx) -> None:
        ctx.attempt(everything, ctx)
        raise LineUpError("conflict", "later")

    again = Scene()
    before = again.store.dump()

    def rule(ctx: Ctx) -> None:
        with pytest.raises(LineUpError, match="later"):
            ctx.attempt(outer_refused, ctx)

    again.run(rule)
    assert again.store.dump() == before


def test_what_trying_has_cost_stays() -> None:
    scene = Scene()

    def costly(ctx: Ctx) -> None:
        ctx.put_kept(CONVERSATIONS, ("c",), conversation("paid"))
        refused(ctx)

    def rule(ctx: Ctx) -> None:
        with pytest.raises(LineUpError):
            ctx.attempt(costly, ctx)

    ctx, _ = scene.run(rule)
    with scene.store.read() as txn:
        row = txn.get(CONVERSATIONS, ("c",))
    assert row is not None
    assert row.title == "paid"
    assert ctx.changed == {}


# what agents, workers and people try


def test_a_start_that_finds_no_instance_is_a_rejected_call() -> None:
    timer = bundles.timer()
    timer["tools"][0]["target"]["requires_foreground"] = False
    core = Core(manifests=(timer,))
    core.connect("a1")
    before = core.dump(*OWN)
    receipt = core.call("timer.start", {"duration_seconds": 60}, conversation="new")
    assert receipt["code"] == "app_instance_not_found"
    assert core.result()["status"] == "rejected"  # type: ignore[index]
    assert status_of(core) == "rejected"
    assert core.dump(*OWN) == before, "no conversation was opened for it"


def test_a_refusal_on_the_way_is_the_result_of_the_call(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is known; should a check ever be missing, the call still has its one result and nothing else is left."""
    monkeypatch.setattr(intake, "_check_depth", lambda *known: None)
    monkeypatch.setattr(limits, "FOCUS_DEPTH_MAX", 1)
    core.send("message.text", {"text": "hi"}, conversation="c1")
    before = core.dump(*OWN)
    assert core.call("lab.launch")["code"] == "lifecycle_denied"
    assert core.result()["error"]["code"] == "lifecycle_denied"  # type: ignore[index]
    assert core.dump(*OWN) == before
    assert [row.kind for _, row in core.scan(AUDIT)][-2:] == ["call.received", "call.rejected"]
    assert core.audited("call.rejected")[0].cause == core.audited("call.received")[0].cause


def test_a_call_that_may_come_again_is_refused_without_a_record(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPERATIONS_PENDING_MAX", 0)
    before = core.dump()
    assert core.call("timer.start", {"duration_seconds": 60}, message_id="m")["code"] == "rate_limited"
    assert core.dump() == before
    monkeypatch.undo()
    assert core.call("timer.start", {"duration_seconds": 60}, message_id="m")["accepted"]


def test_a_text_that_finds_no_room_opens_no_conversation(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INBOX_MESSAGES_PER_INSTANCE_MAX", 0)
    before = core.dump()
    (frame,) = core.send("message.text", {"text": "hi"}, conversation="c1")
    assert frame["payload"]["code"] == "rate_limited"
    assert core.dump() == before


def test_a_session_that_cannot_come_to_the_front_is_not_continued(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    core.call_accepted("lab.launch")
    worker = core.start("lab")
    session_id = core.instance("lab").session_id
    core.did("instance.close", instance_id=worker.instance_id, force=True)
    worker.exit("stopped")
    core.call_accepted("lab2.launch", call_id="k2")
    monkeypatch.setattr(limits, "FOCUS_DEPTH_MAX", 2)
    before = core.dump(*ANSWERED)
    deltas, starts = len(core.deltas), len(core.unstarted)
    for _ in range(2):
        assert core.action("session.continue", session_id=session_id).code == "lifecycle_denied"
    assert core.dump(*ANSWERED) == before
    assert (len(core.deltas), len(core.unstarted)) == (deltas, starts), "nobody hears of it"
    monkeypatch.undo()
    core.did("session.continue", session_id=session_id)


def test_a_capability_that_fails_half_way_leaves_nothing_of_it(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    show = CATALOGUE["notification.show"]

    def run(ctx: Any, instance: Any, arguments: Any) -> Any:
        assert show.run is not None
        show.run(ctx, instance, arguments)
        raise LineUpError("conflict", "after all")

    monkeypatch.setitem(capabilities.CATALOGUE, "notification.show", replace(show, run=run))
    core.call_accepted("lab.front")
    worker = core.start("lab")
    worker.accept("capability.request", capability="notification.show", reason="why", arguments={"title": "T"})
    core.did(
        "interaction.answer", interaction_id=core.questions()[0]["interaction_id"], result={"action_ids": ["once"]}
    )
    (outcome,) = worker.deliveries("capability.result")
    assert outcome["body"]["code"] == "conflict"
    assert list(core.scan(NOTIFICATIONS)) == []


def test_a_refused_action_that_may_come_again_is_no_answer_to_its_resend(core: Core) -> None:
    """As with agents' messages: the next run takes what the last one refused because it went down."""
    core.call_accepted("lab.launch", call_id="k0")
    worker = core.start("lab")
    asked: dict[str, Any] = {
        "actor": "operator",
        "action_id": "X",
        "call_id": "k2",
        "tool_id": "lab.direct",
        "input": {"n": 1},
        "conversation_id": "c9",
    }
    core.stop()
    assert core.action("call.start", **asked).code == "runtime_stopping"
    worker.exit("stopped")
    core.boot()
    assert core.action("call.start", **asked).accepted
    assert core.action("call.start", **asked).accepted, "which is its answer from then on"
    assert core.action("instance.front", action_id="Y", instance_id="i-none").code == "app_instance_not_found"
    assert core.action("conversation.home", action_id="Y", conversation_id="c1").code == "app_instance_not_found"


def test_what_a_close_writes_is_caused_by_the_close(core: Core) -> None:
    core.call_accepted("lab.launch")
    worker = core.start("lab")
    worker.take("k1")
    worker.accept("ui.request", request={"kind": "confirm", **CONFIRM})
    core.did("instance.close", instance_id=worker.instance_id, force=True)
    cause = core.audited("person.closed")[0].cause
    for kind in ("session.ended", "instance.closed"):
        assert core.audited(kind)[0].cause == cause, kind
    assert core.audited("interaction.cancelled")[0].cause == core.audited("interaction.asked")[0].cause
