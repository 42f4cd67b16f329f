"""Much traffic through the real core and engine, over any store: one agent, one scripted worker for each instance.

Used where the number of calls is the point. It answers effects as the edges would, keeps every archived row of the
audit, and moves both clocks, so that timers come when they are due.
"""

from __future__ import annotations

import itertools
from typing import Any

from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.audit import public
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import AUDIT
from lineup_supervisor.core.step import step
from lineup_supervisor.core.timers import next_due
from lineup_supervisor.engine import AnyStore, Engine
from simulation import bundles

WALL_MS = 1_796_000_000_000
AT = "2026-11-30T08:00:00Z"
RETRIES_MAX = 20
Body = dict[str, Any]


class Traffic:
    """See the module. ``acknowledges`` is false for an agent that never takes anything over."""

    def __init__(self, store: AnyStore, policy: Policy, *, acknowledges: bool = True, **engine: Any) -> None:
        self.store = store
        self.policy = policy
        self.engine = Engine(store, step, next_due, **engine)
        self.acknowledges = acknowledges
        self.can_archive = True
        self.steady_ms = 1_000
        self.wall_ms = WALL_MS
        self.results: dict[str, Body] = {}
        self.receipts: dict[str, Body] = {}
        self.replies: dict[str, fx.ReplyHost] = {}
        self.archive: list[Body] = []
        self.revision = ""
        self._numbers = itertools.count(1)
        self._seq = 0
        self._due: tuple[int | None, int | None] = (None, None)

    @property
    def now(self) -> ev.Now:
        return ev.Now(wall_ms=self.wall_ms, steady_ms=self.steady_ms)

    def event_id(self) -> str:
        return f"t{next(self._numbers)}"

    def boot(self) -> None:
        boot_id = f"boot-{self.event_id()}"
        self.run(
            ev.Boot(
                event_id=self.event_id(), boot_id=boot_id, isolation="S3", bundles=bundles.BUNDLES, policy=self.policy
            )
        )
        self.run(self.frame("hello", {"agent_id": "a", "protocol": 1}))

    def run(self, *events: ev.AnyEvent) -> None:
        """Run events, and then whatever they lead to, until nobody has anything to say and nothing is due."""
        waiting: list[ev.AnyEvent] = list(events)
        while waiting or self._is_due():
            if self._is_due():
                waiting.append(ev.Wake(event_id=self.event_id()))
            batch, waiting = waiting[:256], waiting[256:]
            outcome = self.engine.run(batch, self.now)
            self._due = outcome.next_due
            for effect in outcome.effects:
                waiting += self._react(effect)
            if outcome.retry_in_ms is not None:
                waiting += self._try_again(outcome.retry_in_ms)

    def _try_again(self, wait_ms: int) -> list[ev.AnyEvent]:
        """The store cannot be written: wait as long as the engine says, as the store's thread does."""
        reactions: list[ev.AnyEvent] = []
        for _ in range(RETRIES_MAX):
            self.steady_ms += wait_ms
            self.wall_ms += wait_ms
            outcome = self.engine.run([], self.now)
            self._due = outcome.next_due
            for effect in outcome.effects:
                reactions += self._react(effect)
            if outcome.retry_in_ms is None:
                return reactions
            wait_ms = outcome.retry_in_ms
        raise AssertionError("the store stays full")

    def pass_time(self, ms: int) -> None:
        self.steady_ms += ms
        self.wall_ms += ms
        self.run()

    def calls(self, first: int, count: int, tool: str = "lab.direct", *, batch: int = 128, ms: int = 10) -> None:
        """``count`` calls ``k<n>``, some at once, each batch ``ms`` later."""
        for start in range(first, first + count, batch):
            frames = [self.call(f"k{n}", tool) for n in range(start, min(first + count, start + batch))]
            self.run(*frames)
            self.pass_time(ms)

    def forget(self) -> None:
        """Keep nothing of what was heard, so that a long run needs no memory of its own."""
        self.results.clear()
        self.receipts.clear()
        self.replies.clear()
        self.archive.clear()

    def call(self, call_id: str, tool: str, input_: Body | None = None, conversation: str = "c") -> ev.AgentFrame:
        payload = {
            "call_id": call_id,
            "tool_id": tool,
            "inventory_revision": self.revision,
            "input": input_ or {"n": 1},
        }
        return self.frame("tool.call", payload, conversation)

    def frame(self, type_: str, payload: Body, conversation: str | None = None) -> ev.AgentFrame:
        n = self.event_id()
        body: Body = {"type": f"lineup.v1.{type_}", "message_id": f"m-{n}", "sent_at": AT, "payload": payload}
        if conversation is not None:
            body["conversation_id"] = conversation
        return ev.AgentFrame(event_id=n, link_id="link", frame=body)

    def action(self, name: str, **args: Any) -> fx.ReplyHost:
        reply_to = self.event_id()
        self.run(
            ev.HostAction(
                event_id=self.event_id(), reply_to=reply_to, action_id=reply_to, actor="person", name=name, args=args
            )
        )
        return self.replies[reply_to]

    def query(self, name: str, **args: Any) -> fx.ReplyHost:
        reply_to = self.event_id()
        self.run(ev.HostQuery(event_id=self.event_id(), reply_to=reply_to, name=name, args=args))
        return self.replies[reply_to]

    def _is_due(self) -> bool:
        wall, steady = self._due
        return (wall is not None and wall <= self.wall_ms) or (steady is not None and steady <= self.steady_ms)

    def _react(self, effect: fx.AnyEffect) -> list[ev.AnyEvent]:
        match effect:
            case fx.StartWorker():
                key = {"instance_id": effect.instance_id, "incarnation": effect.incarnation}
                hello = {"protocols": [1], "sdk_version": "1.0"}
                return [
                    ev.WorkerStarted(event_id=self.event_id(), pid=7, isolation="S3", **key),
                    self._said(key, "worker.hello", hello),
                    self._said(key, "worker.ready", {}),
                ]
            case fx.StopWorker():
                key = {"instance_id": effect.instance_id, "incarnation": effect.incarnation}
                return [ev.WorkerExited(event_id=self.event_id(), reason="stopped", **key)]
            case fx.SendWorker():
                key = {"instance_id": effect.instance_id, "incarnation": effect.incarnation}
                return [event for message in effect.messages for event in self._deliver(key, message)]
            case fx.SendAgent():
                return self._hear(effect.frames)
            case fx.ReplyHost():
                self.replies[effect.reply_to] = effect
            case fx.ArchiveAudit():
                return [self._archive(effect)]
        return []

    def _deliver(self, key: Body, message: Body) -> list[ev.AnyEvent]:
        if message["type"] != "inbox.deliver":
            return []
        body = message["body"]
        taken = self._said(key, "inbox.ack", {"seq": body["seq"]})
        if body["kind"] == "interaction.result":
            found = body["body"]["interaction"]
            call_id = found["owner"].get("parent_call_id")
            if found.get("result") is None:
                return [taken, self._said(key, "tool.cancel", {"call_id": call_id, "reason": found["status"]})]
            return [taken, self._said(key, "tool.complete", {"call_id": call_id, "result": found["result"]})]
        if body["kind"] != "tool.call" or "operation" in body["body"]:
            return [taken]
        done = {"call_id": body["body"]["call_id"], "result": body["body"]["input"]}
        return [taken, self._said(key, "tool.complete", done)]

    def _said(self, key: Body, type_: str, body: Body) -> ev.AnyEvent:
        return ev.WorkerFrame(event_id=self.event_id(), frame={"type": type_, "body": body}, **key)

    def _hear(self, frames: tuple[Body, ...]) -> list[ev.AnyEvent]:
        seen = self._seq
        for frame in frames:
            payload = frame["payload"]
            self.revision = payload.get("revision", self.revision)
            seen = max(seen, frame.get("seq", 0))
            if frame["type"] == "lineup.v1.tool.result":
                known = self.results.setdefault(payload["call_id"], payload)
                assert known == payload, f"{known} and {payload}"
            elif frame["type"] == "lineup.v1.receipt":
                self.receipts[payload["reply_to"]] = payload
        if seen == self._seq or not self.acknowledges:
            return []
        self._seq = seen
        return [self.frame("ack", {"seq": seen})]

    def _archive(self, effect: fx.ArchiveAudit) -> ev.AnyEvent:
        done = {"event_id": self.event_id(), "after_seq": effect.after_seq, "up_to_seq": effect.up_to_seq}
        if not self.can_archive:
            return ev.AuditArchived(**done, error="the disk is full")
        with self.store.read() as txn:
            rows = [txn.get(AUDIT, (seq,)) for seq in range(effect.after_seq + 1, effect.up_to_seq + 1)]
        self.archive += [public(row) for row in rows if row is not None]
        return ev.AuditArchived(**done, hash=self.archive[-1]["hash"])
