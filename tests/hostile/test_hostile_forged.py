"""Forged context: a worker that speaks of what belongs to another, in every message that there is.

Generated from the table of messages: a message that is added to it is covered here without a change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from core.harness import CONFIRM, Core, Worker
from hostile.support.stage import Stage
from lineup_protocol.errors import CODES
from lineup_protocol.messages import WORKER_LINK, Message
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import ARTIFACTS, AUDIT
from lineup_supervisor.core.step import step
from lineup_supervisor.edges.store_rows import decode_row
from processes.support.waiting import until_async
from simulation import bundles

FROM_WORKERS = [message for message in WORKER_LINK if message.source == "worker"]
# Who it could claim to be, and what it could claim to speak of, where the message has no such field.
CLAIMS = (
    "app_scope",
    "instance_id",
    "conversation_id",
    "session_id",
    "agent_id",
    "call_id",
    "interaction_id",
    "surface_id",
    "artifact_id",
    "operation_id",
    "incarnation",
    "isolation",
    "actor",
    "owner",
)
FOREIGN_CODES = {
    "app_scope_mismatch",
    "call_not_found",
    "interaction_not_found",
    "surface_not_found",
    "not_found",
    "capability_denied",
    "lifecycle_denied",
}
SAMPLES: dict[str, Any] = {
    "id": "x-1",
    "name": "x",
    "reason": "x",
    "text": "x",
    "int": 1,
    "num": 0.5,
    "bool": True,
    "obj": {},
    "list": [1],
    "any": b"x",
    "time": "2036-11-30T08:00:00Z",
    "ids": ["x-1"],
}


def sample(message: Message) -> dict[str, Any]:
    """A body with every field of the message."""
    return {
        name: field.kind[0] if isinstance(field.kind, tuple) else SAMPLES[field.kind]
        for name, field in message.fields.items()
    }


class _Undo(Exception):
    """Ends a transaction that was only to be looked at."""


class Scene:
    """A victim with one of everything, in its own MiniApp, instance and conversation; an attacker beside it."""

    def __init__(self) -> None:
        self.core = Core(manifests=(bundles.lab("evil"),))
        self.core.call("lab.direct", call_id="victims", conversation="c-victim")
        self.victim = self.core.unstarted[-1].run()
        self.victim.take("victims")
        asked = self.victim.accept("ui.request", request={"kind": "confirm", **CONFIRM}, parent_call_id="victims")
        opened = self.victim.accept("surface.open", entry="surface/index.html", state={"a": 1})
        self.victim.accept("state.save", state={"mine": 1})
        self.victim.accept("artifact.submit", title="t", media_type="text/plain", content=b"mine")
        self.core.call("evil.direct", call_id="attackers", conversation="c-evil")
        self.attacker = self._worker("evil").run()
        self.attacker.take("attackers")
        self.ids = {
            "call_id": "victims",
            "parent_call_id": "victims",
            "interaction_id": asked["interaction_id"],
            "surface_id": opened["surface_id"],
            "artifact_id": next(iter(self.core.scan(ARTIFACTS)))[0][0],
            "operation_id": "op-1",
            "instance_id": self.victim.instance_id,
            "app_scope": "lab",
            "conversation_id": "c-victim",
            "session_id": "s-1",
            "agent_id": "a1",
            "incarnation": 1,
            "isolation": "S1",
            "actor": "operator",
            "owner": {"app_scope": "lab", "instance_id": self.victim.instance_id},
        }

    def _worker(self, scope: str) -> Worker:
        return next(worker for worker in self.core.unstarted if worker.app_scope == scope)

    @contextlib.contextmanager
    def undone(self) -> Iterator[None]:
        """What happens in here is taken back, so that the next attempt finds the same scene."""
        with contextlib.suppress(_Undo), self.core.store.write() as self._txn:
            yield
            raise _Undo

    def step(self, frame: Any) -> list[fx.AnyEffect]:
        who = {"instance_id": self.attacker.instance_id, "incarnation": self.attacker.incarnation}
        event = ev.WorkerFrame(event_id=self.core.new_id(), frame=frame, **who)
        return step(self._txn, event, self.core.now)

    def everything(self) -> dict[str, Any]:
        """Every row but the audit and the attacker's own process and counts."""
        return self.core.dump("workers")

    def refusals(self) -> list[Any]:
        kinds = ("command.refused", "worker.violation", "worker.late_message")
        rows = [decode_row(AUDIT, data) for _, data in self.core.store.dump()["audit"]]
        return [row for row in rows if row.kind in kinds]


def codes_of(row: Any) -> str:
    return str(row.detail["code"])


@pytest.mark.parametrize("message", [m for m in FROM_WORKERS if m.references], ids=lambda m: m.type)
def test_every_reference_to_anothers_object_is_refused(message: Message) -> None:
    scene = Scene()
    for name in message.references:
        body = sample(message) | dict.fromkeys(message.references, "x-unknown") | {name: scene.ids[name]}
        if message.type == "ui.request":
            body["request"] = {"kind": "confirm", **CONFIRM}
        before, known = scene.everything(), len(scene.refusals())
        victims = len(scene.victim.messages)
        code = scene.attacker.refused(message.type, **body)
        assert code in FOREIGN_CODES, f"{message.type} of another's {name}: {code}"
        assert scene.everything() == before, "a refused message changes nothing"
        assert len(scene.victim.messages) == victims, "and nobody else hears of it"
        (row,) = scene.refusals()[known:]
        assert (codes_of(row), row.actor) == (code, "app:evil")
        assert scene.attacker.instance_id in row.subjects


@pytest.mark.parametrize("place", ["body", "frame"])
@pytest.mark.parametrize("message", FROM_WORKERS, ids=lambda m: m.type)
def test_no_message_takes_a_claim_of_who_speaks(message: Message, place: str) -> None:
    """A claim is no field of any message: the worker that makes one has broken the protocol and is ended."""
    scene = Scene()
    before = scene.everything()
    for claim in CLAIMS:
        if place == "body" and claim in message.fields:
            continue
        frame: dict[str, Any] = {"type": message.type, "id": "f-1", "body": sample(message)}
        (frame["body"] if place == "body" else frame)[claim] = scene.ids[claim]
        with scene.undone():
            effects = scene.step(frame)
            assert scene.everything() == before
            (row,) = scene.refusals()
            assert (row.kind, codes_of(row)) == ("worker.violation", "message_invalid")
            stops = [effect for effect in effects if isinstance(effect, fx.StopWorker)]
            assert [(stop.instance_id, stop.reason) for stop in stops] == [(scene.attacker.instance_id, "violation")]
            assert not [effect for effect in effects if isinstance(effect, fx.SendWorker | fx.SendAgent)]
            last = {"type": "tool.complete", "id": "f-2", "body": {"call_id": "attackers", "result": {"n": 1}}}
            assert scene.step(last) == [], "what it says between its violation and its death does not count"
            assert scene.everything() == before
        assert scene.refusals() == []


@pytest.mark.parametrize("message", FROM_WORKERS, ids=lambda m: m.type)
def test_a_dead_incarnation_says_nothing_any_more(message: Message) -> None:
    scene = Scene()
    incarnation = scene.attacker.incarnation
    scene.attacker.exit()
    before = scene.everything()
    scene.attacker.raw({"type": message.type, "id": "f-1", "body": sample(message)})
    assert scene.everything() == before
    (row,) = scene.core.audited("worker.late_message")
    assert row.detail == {"incarnation": incarnation}


def test_the_codes_are_registered() -> None:
    assert set(CODES) >= FOREIGN_CODES


async def test_forged_messages_over_a_real_link(on_sandboxed: Stage) -> None:
    """The same over the gate, by a worker that speaks raw ZMTP: each is refused by its code, the victim goes on."""
    stage, victim = on_sandboxed, "forged-victim"
    kept = await stage.completed("bystander.keep", {"text": "mine"}, victim)
    held = await stage.begin("bystander.hold", {"text": "held"}, victim)
    await _running(stage, held)
    before = await _victims_view(stage, victim)
    foreign = {"call_id": held, "parent_call_id": held, "surface_id": kept["surface_id"], "interaction_id": "i-x"}
    messages = []
    for message in FROM_WORKERS:
        for name in message.references:
            body = sample(message) | dict.fromkeys(message.references, "x-unknown") | {name: foreign[name]}
            if message.type == "ui.request":
                body["request"] = {"kind": "confirm", **CONFIRM}
            messages.append({"type": message.type, "body": body})
    messages = [m for m in messages if all(not isinstance(v, bytes) for v in m["body"].values())]
    heard = await stage.completed("wire.forge", {"messages": messages})
    codes = {receipt["re"]: receipt["code"] for receipt in heard["receipts"]}
    assert set(codes) == {f"forged-{number}" for number in range(len(messages))}
    assert set(codes.values()) <= FOREIGN_CODES
    assert await _victims_view(stage, victim) == before
    await stage.completed("bystander.echo", {"text": "now", "tell": True}, victim)
    assert (await stage.agent.result(held))["result"] == {"text": "held", "version": 1}


async def _running(stage: Stage, call_id: str) -> None:
    async def is_running() -> bool:
        return bool((await stage.agent.record(call_id))["status"] == "running")

    await until_async(is_running, 20, f"{call_id} is running")


async def _victims_view(stage: Stage, conversation: str) -> Any:
    """What people see of the victim's conversation, without what moves by itself."""
    snapshot = await asyncio.to_thread(stage.runtime.query, "snapshot")
    kinds = ("calls", "surfaces", "interactions", "snapshots", "artifacts")
    return {
        kind: [row for row in snapshot.get(kind, ()) if row.get("conversation_id") == conversation] for kind in kinds
    }
