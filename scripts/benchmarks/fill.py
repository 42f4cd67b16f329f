"""Fills a home's store with finished and open calls: the real core over the real store with a scripted worker."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
from lineup_supervisor.core.step import step
from lineup_supervisor.core.timers import next_due
from lineup_supervisor.edges.bundles import keep_bundle
from lineup_supervisor.edges.store import Store
from lineup_supervisor.engine import Engine

HERE = Path(__file__).resolve().parent
BATCH = 200
T0_MS = 1_790_000_000_000


class Filler:
    """One agent, one conversation per thousand calls, one worker each that answers what it is told to."""

    def __init__(self, home: Path, store: Store) -> None:
        self._engine = Engine(store, step, next_due)
        self._numbers = itertools.count(1)
        self._home = home
        self._revision = ""
        self._seq = 0
        self._answer = True
        self._ms = 0

    def run(self, *events: ev.Event) -> None:
        """Run events, and then whatever the scripted sides answer, until nobody has anything to say."""
        waiting = list(events)
        while waiting:
            batch, waiting = waiting[:BATCH], waiting[BATCH:]
            for effect in self._engine.run(batch, self.now()).effects:
                waiting += self._react(effect)

    def now(self) -> ev.Now:
        """A millisecond after the last one."""
        self._ms += 1
        return ev.Now(wall_ms=T0_MS + self._ms, steady_ms=T0_MS + self._ms)

    def event_id(self) -> str:
        return f"fill{next(self._numbers)}"

    def frame(self, type_: str, payload: dict[str, Any], conversation: str | None = None) -> ev.Event:
        n = self.event_id()
        frame = {
            "type": f"lineup.v1.{type_}",
            "message_id": f"m-{n}",
            "sent_at": "2026-01-01T00:00:00Z",
            "payload": payload,
        }
        if conversation is not None:
            frame["conversation_id"] = conversation
        return ev.AgentFrame(event_id=n, link_id="fill", frame=frame)

    def _react(self, effect: fx.Effect) -> list[ev.Event]:
        if isinstance(effect, fx.StartWorker):
            key = {"instance_id": effect.instance_id, "incarnation": effect.incarnation}
            started = ev.WorkerStarted(event_id=self.event_id(), pid=1, isolation="S3", **key)
            hello = self._from_worker(key, "worker.hello", {"protocols": [1], "sdk_version": "1.0.0"})
            return [started, hello, self._from_worker(key, "worker.ready", {})]
        if isinstance(effect, fx.SendWorker):
            key = {"instance_id": effect.instance_id, "incarnation": effect.incarnation}
            return [e for message in effect.messages for e in self._deliver(key, message)]
        if isinstance(effect, fx.StopWorker):
            key = {"instance_id": effect.instance_id, "incarnation": effect.incarnation}
            return [ev.WorkerExited(event_id=self.event_id(), reason="stopped", **key)]
        if isinstance(effect, fx.SendAgent):
            for frame in effect.frames:
                self._seq = max(self._seq, frame.get("seq", 0))
                self._revision = frame["payload"].get("revision", self._revision)
            return [self.frame("ack", {"seq": self._seq})] if any("seq" in f for f in effect.frames) else []
        return []

    def _deliver(self, key: dict[str, Any], message: dict[str, Any]) -> list[ev.Event]:
        if message["type"] != "inbox.deliver":
            return []
        body = message["body"]
        acknowledged = self._from_worker(key, "inbox.ack", {"seq": body["seq"]})
        if body["kind"] != "tool.call" or not self._answer:
            return [acknowledged]
        call = body["body"]
        return [
            acknowledged,
            self._from_worker(key, "tool.complete", {"call_id": call["call_id"], "result": call["input"]}),
        ]

    def _from_worker(self, key: dict[str, Any], type_: str, body: dict[str, Any]) -> ev.Event:
        return ev.WorkerFrame(event_id=self.event_id(), frame={"type": type_, "body": body}, **key)

    def calls(self, count: int, prefix: str, *, answer: bool) -> None:
        self._answer = answer
        for first in range(0, count, BATCH):
            calls = []
            for n in range(first, min(count, first + BATCH)):
                payload = {
                    "call_id": f"{prefix}{n}",
                    "tool_id": "bench-echo.echo",
                    "inventory_revision": self._revision,
                }
                calls.append(self.frame("tool.call", payload | {"input": {"text": "x" * 100}}, f"c{prefix}{n // 1000}"))
            self.run(*calls)


def fill(home: Path, *, finished: int, open_: int) -> None:
    """Leave ``finished`` completed calls and ``open_`` running ones in the store of a stopped Runtime."""
    store = Store.open(home / "data", TABLES, schema_version=SCHEMA_VERSION)
    try:
        bundle = keep_bundle(HERE / "echo", home / "apps")
        filler = Filler(home, store)
        filler.run(ev.Boot(event_id=filler.event_id(), boot_id="fill", isolation="S3"))
        add = ev.HostAction(
            event_id=filler.event_id(),
            reply_to="",
            action_id="fill",
            actor="operator",
            name="apps.add",
            args={},
            bundle=bundle,
        )
        filler.run(add, filler.frame("hello", {"agent_id": "filler", "protocol": 1}))
        filler.calls(finished, "f", answer=True)
        filler.calls(open_, "o", answer=False)
    finally:
        store.close()
