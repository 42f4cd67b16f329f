"""The real core over the in-memory store, driven by hand: scripted agents, workers, Host and clock for unit tests.

Each event is a transaction of its own. Rows go through the same bytes as on disk, so that what a disk could not give
back fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core import invariants, timers
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import INSTANCES, META, TABLES
from lineup_supervisor.core.step import step
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges.store_memory import MemoryStore
from simulation import bundles

WALL_MS = 1_796_000_000_000
AT = "2026-11-30T08:00:00Z"
CONFIRM = {"title": "Sure?", "prompt": "Shall we?"}
Body = dict[str, Any]


class Worker:
    """One incarnation as a test plays it."""

    def __init__(self, core: Core, start: fx.StartWorker) -> None:
        self.core = core
        self.instance_id = start.instance_id
        self.incarnation = start.incarnation
        self.app_scope = start.app_scope
        self.messages: list[Body] = []
        self.stopped: str | None = None
        self._next = 1

    def run(self) -> Worker:
        """The process comes up, says hello and is ready."""
        self.started()
        self.say("worker.hello", protocols=[1], sdk_version="1.0")
        self.say("worker.ready")
        return self

    def started(self) -> None:
        self.core.do(
            ev.WorkerStarted(
                event_id=self.core.new_id(),
                instance_id=self.instance_id,
                incarnation=self.incarnation,
                pid=7,
                isolation="S3",
            )
        )

    def say(self, type_: str, /, **body: Any) -> None:
        """A message that wants no answer."""
        self.raw({"type": type_, "body": body})

    def raw(self, frame: Any) -> None:
        event = ev.WorkerFrame(
            event_id=self.core.new_id(), instance_id=self.instance_id, incarnation=self.incarnation, frame=frame
        )
        self.core.do(event)

    def ask(self, type_: str, /, **body: Any) -> Body:
        """A command; its receipt's body."""
        id_ = f"{self._next}"
        self._next += 1
        self.raw({"type": type_, "id": id_, "body": body})
        (receipt,) = [m["body"] for m in self.messages if m["type"] == "receipt" and m["body"]["re"] == id_]
        return receipt

    def accept(self, type_: str, /, **body: Any) -> Any:
        """A command that must be accepted; its receipt's detail."""
        receipt = self.ask(type_, **body)
        assert receipt["accepted"], receipt
        return receipt.get("detail")

    def refused(self, type_: str, /, **body: Any) -> str:
        """A command that must be refused; the code."""
        receipt = self.ask(type_, **body)
        assert not receipt["accepted"], receipt
        return str(receipt["code"])

    def deliveries(self, kind: str | None = None) -> list[Body]:
        """Bodies of every ``inbox.deliver`` that was sent to it, in order."""
        found = [m["body"] for m in self.messages if m["type"] == "inbox.deliver"]
        return [body for body in found if kind in (None, body["kind"])]

    def take(self, call_id: str) -> Body:
        """Acknowledge the newest delivery of this call; the delivery's body."""
        delivery = [d for d in self.deliveries("tool.call") if d["body"]["call_id"] == call_id][-1]
        self.accept("inbox.ack", seq=delivery["seq"])
        return dict(delivery["body"])

    def take_all(self) -> None:
        """Acknowledge everything that was delivered, as far as it still waits."""
        for delivery in self.deliveries():
            self.ask("inbox.ack", seq=delivery["seq"])

    def exit(self, reason: str = "exited") -> None:
        self.core.exited(self.instance_id, self.incarnation, reason)


class Core:
    """See the module."""

    def __init__(self, *, policy: Policy | None = None, manifests: tuple[Body, ...] = ()) -> None:
        self.store = MemoryStore(TABLES, encoded=True)
        self.wall_ms = WALL_MS
        self.steady_ms = 1_000
        self.policy = policy or Policy()
        extra = tuple(bundles.bundle(manifest) for manifest in manifests)
        replaced = {bundle.manifest["app_scope"] for bundle in extra}
        own = tuple(b for b in bundles.BUNDLES if b.manifest["app_scope"] not in replaced)
        self.bundles = (*own, *extra)
        self.frames: dict[str, list[Body]] = {}
        self.closed: dict[str, tuple[int, str]] = {}
        self.workers: dict[tuple[str, int], Worker] = {}
        self.unstarted: list[Worker] = []
        self.replies: dict[str, fx.ReplyHost] = {}
        self.deltas: list[Body] = []
        self.halted = False
        self._ids = 0
        self.boot()

    # events

    def new_id(self) -> str:
        self._ids += 1
        return f"e{self._ids}"

    @property
    def now(self) -> ev.Now:
        return ev.Now(wall_ms=self.wall_ms, steady_ms=self.steady_ms)

    def do(self, event: ev.AnyEvent, *, lose_effects: bool = False) -> list[fx.AnyEffect]:
        """One event, committed; then its effects, unless the supervisor dies between the two."""
        with self.store.write() as txn:
            effects = step(txn, event, self.now)
        self.check()
        if not lose_effects:
            for effect in effects:
                self._carry_out(effect)
        return effects

    def check(self) -> None:
        """The invariants between the tables hold."""
        with self.store.read() as txn:
            faults = invariants.find_faults(txn)
        assert not faults, faults

    def _carry_out(self, effect: fx.AnyEffect) -> None:
        match effect:
            case fx.SendAgent(link_id=link, frames=frames):
                self.frames.setdefault(link, []).extend(frames)
            case fx.CloseAgent(link_id=link):
                self.closed[link] = (effect.code, effect.reason)
            case fx.SendWorker(instance_id=instance_id, incarnation=incarnation, messages=messages):
                self.workers[instance_id, incarnation].messages.extend(messages)
            case fx.StartWorker():
                worker = Worker(self, effect)
                self.workers[worker.instance_id, worker.incarnation] = worker
                self.unstarted.append(worker)
            case fx.StopWorker(instance_id=instance_id, incarnation=incarnation):
                self.workers[instance_id, incarnation].stopped = effect.reason
            case fx.ReplyHost(reply_to=reply_to):
                self.replies[reply_to] = effect
            case fx.HostDelta(changes=changes):
                self.deltas.extend(changes)
            case fx.Halt():
                self.halted = True

    def boot(self, *, lose_effects: bool = False) -> None:
        """A new run: every process and link of the last one is gone."""
        self.unstarted.clear()
        boot = ev.Boot(
            event_id=self.new_id(),
            boot_id=f"boot-{self._ids}",
            isolation="S3",
            bundles=self.bundles,
            policy=self.policy,
        )
        self.do(boot, lose_effects=lose_effects)

    def exited(self, instance_id: str, incarnation: int, reason: str = "exited") -> None:
        self.unstarted = [w for w in self.unstarted if (w.instance_id, w.incarnation) != (instance_id, incarnation)]
        self.do(
            ev.WorkerExited(event_id=self.new_id(), instance_id=instance_id, incarnation=incarnation, reason=reason)
        )

    def stop(self) -> None:
        self.do(ev.Stopping(event_id=self.new_id(), reason="test"))

    # time

    def advance(self, seconds: float, *, wall: float | None = None) -> None:
        """Time passes on both clocks (on the wall's as much as ``wall`` says), timer by timer."""
        end_wall = self.wall_ms + round((seconds if wall is None else wall) * 1000)
        end_steady = self.steady_ms + round(seconds * 1000)
        if wall is not None:
            self.wall_ms = end_wall
        for _ in range(1000):
            due_wall, due_steady = self.due()
            waits = [end_steady - self.steady_ms]
            if due_wall is not None:
                waits.append(max(0, due_wall - self.wall_ms))
            if due_steady is not None:
                waits.append(max(0, due_steady - self.steady_ms))
            wait = min(waits)
            self.steady_ms += wait
            self.wall_ms += wait if wall is None else 0
            self.wake()
            due_wall, due_steady = self.due()
            late = (due_wall is not None and due_wall <= self.wall_ms) or (
                due_steady is not None and due_steady <= self.steady_ms
            )
            if self.steady_ms == end_steady and not late:
                return
        raise AssertionError("timers do not come to rest")

    def wake(self) -> None:
        self.do(ev.Wake(event_id=self.new_id()))

    def due(self) -> tuple[int | None, int | None]:
        with self.store.read() as txn:
            return timers.next_due(txn)

    # agents

    def connect(self, agent_id: str = "a1", link: str | None = None, **hello: Any) -> list[Body]:
        """Open a link and say hello; the frames that came of it."""
        return self.send("hello", {"agent_id": agent_id, "protocol": 1, **hello}, link=link or agent_id)

    def send(
        self, type_: str, payload: Body, *, link: str = "a1", conversation: str | None = None, message_id: str = ""
    ) -> list[Body]:
        """One frame; those that came back on this link."""
        frame: Body = {
            "type": f"lineup.v1.{type_}",
            "message_id": message_id or f"m{self.new_id()}",
            "sent_at": AT,
            "payload": payload,
        }
        if conversation is not None:
            frame["conversation_id"] = conversation
        return self.send_raw(frame, link=link)

    def send_raw(self, frame: Any, *, link: str = "a1") -> list[Body]:
        before = len(self.frames.setdefault(link, []))
        self.do(ev.AgentFrame(event_id=self.new_id(), link_id=link, frame=frame))
        return self.frames[link][before:]

    def hang_up(self, link: str = "a1") -> None:
        self.do(ev.AgentLinkClosed(event_id=self.new_id(), link_id=link))

    @property
    def revision(self) -> str:
        meta = self.row(META, "runtime")
        return str(meta.inventory_revision)

    def call(
        self,
        tool_id: str,
        input_: Any = None,
        *,
        call_id: str = "k1",
        link: str = "a1",
        conversation: str = "c1",
        **more: Any,
    ) -> Body:
        """Call a tool; the receipt's payload."""
        if not self.frames.get(link):
            self.connect(link)
        message_id = more.pop("message_id", "")
        input_ = {"n": 1} if input_ is None else input_
        payload = {"call_id": call_id, "tool_id": tool_id, "inventory_revision": self.revision, "input": input_} | more
        frames = self.send("tool.call", payload, link=link, conversation=conversation, message_id=message_id)
        (receipt,) = [f["payload"] for f in frames if f["type"] == "lineup.v1.receipt"]
        return dict(receipt)

    def call_accepted(self, tool_id: str, input_: Any = None, **more: Any) -> None:
        receipt = self.call(tool_id, input_, **more)
        assert receipt["accepted"], receipt

    def results(self, call_id: str) -> list[Body]:
        """Distinct results of this call, on whatever link they came."""
        found = {}
        for frames in self.frames.values():
            for frame in frames:
                if frame["type"] == "lineup.v1.tool.result" and frame["payload"]["call_id"] == call_id:
                    found[frame["seq"]] = frame["payload"]
        return list(found.values())

    def result(self, call_id: str = "k1") -> Body | None:
        """The one result, None while there is none."""
        found = self.results(call_id)
        assert len(found) <= 1, found
        return found[0] if found else None

    # workers

    def start(self, scope: str | None = None) -> Worker:
        """Bring up the worker that was asked for (the first one of this MiniApp)."""
        for worker in self.unstarted:
            if scope in (None, worker.app_scope):
                self.unstarted.remove(worker)
                return worker.run()
        raise AssertionError(f"no worker of {scope} was asked for; asked for: {[w.app_scope for w in self.unstarted]}")

    def instance(self, scope: str, conversation: str = "c1") -> Any:
        """The newest instance of a MiniApp in a conversation (ids count up)."""
        found = [i for _, i in self.scan(INSTANCES) if (i.app_scope, i.conversation_id) == (scope, conversation)]
        return max(found, key=lambda instance: float(instance.instance_id.removeprefix("i-e")))

    # Host

    def action(
        self, name: str, *, actor: str = "person", action_id: str = "", bundle: Any = None, **args: Any
    ) -> fx.ReplyHost:
        """One action of a person or the operator; its answer."""
        action_id = action_id or f"x{self.new_id()}"
        reply_to = self.new_id()
        self.do(
            ev.HostAction(
                event_id=self.new_id(),
                reply_to=reply_to,
                action_id=action_id,
                actor=actor,
                name=name,
                args=args,
                bundle=bundle,
            )
        )
        return self.replies[reply_to]

    def did(self, name: str, **args: Any) -> Any:
        """An action that must be accepted; its detail."""
        reply = self.action(name, **args)
        assert reply.accepted, reply
        return reply.detail

    def query(self, name: str, **args: Any) -> Any:
        reply_to = self.new_id()
        self.do(ev.HostQuery(event_id=self.new_id(), reply_to=reply_to, name=name, args=args))
        reply = self.replies[reply_to]
        assert reply.accepted, reply
        return reply.detail

    def questions(self) -> list[Body]:
        """Interactions that wait for a person."""
        return list(self.query("interactions")["interactions"])

    # rows

    def row(self, table: Table[Any], *key: str | int) -> Any:
        with self.store.read() as txn:
            found = txn.get(table, key)
        assert found is not None, f"no {key} in {table.name}"
        return found

    def scan(self, table: Table[Any], *prefix: str | int) -> Iterator[tuple[Any, Any]]:
        with self.store.read() as txn:
            return iter(list(txn.scan(table, prefix)))

    def audited(self, kind: str) -> list[Any]:
        from lineup_supervisor.core.schema import AUDIT

        return [row for _, row in self.scan(AUDIT) if row.kind == kind]

    def dump(self, *without: str) -> dict[str, Any]:
        """Every table's rows but those named, the audit and the count of refusals: for before/after comparisons."""
        left_out = {"audit", "audit_by_subject", "meta", "budgets", *without}
        return {name: rows for name, rows in self.store.dump().items() if name not in left_out}


def status_of(core: Core, call_id: str = "k1", agent_id: str = "a1") -> str:
    from lineup_supervisor.core.schema import CALLS

    return str(core.row(CALLS, agent_id, call_id).status)


def rebuild(row: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(row, **changes)
