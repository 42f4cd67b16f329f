"""Simulated worker processes. Each drives the SDK's real ``WorkerSession``; the app in it is a list of things to do.

Faults: a spawn that fails, an app that does not load, a crash at any message, a process that hangs, results given
twice, results that break the schema, and messages that no honest worker sends.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from checkers.history import Entry, WorkerLog
from lineup_protocol.errors import LineUpError
from lineup_sdk import events as sdk
from lineup_sdk.records import InboxMessage, ToolCall
from lineup_sdk.session import ProtocolViolation, WorkerSession
from lineup_supervisor.core import events as ev

if TYPE_CHECKING:
    from simulation.world import World

_DEEDS = ("save", "foreground", "background", "close", "surface", "capability", "artifact", "question")
_BUSY = ("lab", "guest")  # those that do things of their own accord
HUNG_AFTER_MS = 15_000  # what a real supervisor's heartbeat would allow
QUESTION = {
    "kind": "confirm",
    "title": "May I?",
    "prompt": "The app would like to know.",
}
_OVER = ("completed", "cancelled", "expired", "failed")  # of an interaction: no delivery of its outcome will come


class Process:
    """One incarnation of one instance, from the moment its start was asked for."""

    def __init__(self, world: World, instance_id: str, incarnation: int, app_scope: str) -> None:
        self.world = world
        self.instance_id = instance_id
        self.incarnation = incarnation
        self.app_scope = app_scope
        self.state = "spawning"  # → running | hung → gone
        self.log = WorkerLog(instance_id, incarnation, app_scope)
        world.history.workers[instance_id, incarnation] = self.log
        self.session = WorkerSession()
        self.to_worker: deque[dict[str, Any]] = deque()
        self.to_runtime: deque[Any] = deque()
        self.todo: deque[tuple[Any, ...]] = deque()
        self.kill_at_ms: int | None = None
        self.open: dict[str, ToolCall] = {}  # calls that this app has begun and not ended
        self.asked: dict[str, str] = {}  # interaction_id → call_id that waits for its answer
        self.surfaces: list[str] = []
        self._asks: dict[str, str] = {}  # command id → call_id
        self._opens: set[str] = set()
        self._made = 0

    @property
    def key(self) -> tuple[str, int]:
        return (self.instance_id, self.incarnation)

    def note(self, what: str, data: Any) -> None:
        self.log.entries.append(Entry(self.world.tick(), self.world.wall_ms, what, data, "", self.world.steady_ms))

    # life and death

    def spawn(self) -> None:
        """The asked-for process comes to be, or does not."""
        world = self.world
        if world.rng.random() < world.mix.spawn_failure:
            self.die(world.rng.choice(("start_failed", "start_failed", "unconfined", "isolation_insufficient")))
            return
        self.state = "running"
        self.note("started", None)
        started = ev.WorkerStarted(
            event_id=world.new_id("e"),
            instance_id=self.instance_id,
            incarnation=self.incarnation,
            pid=7,
            isolation="S3",
        )
        world.submit(started)
        self.session.hello()
        self._flush()

    def stop(self, reason: str, grace_ms: int) -> None:
        """What the edge does with ``StopWorker``."""
        if self.state == "spawning" or grace_ms == 0:
            self.die("stopped")
            return
        self.to_worker.append({"type": "worker.stop", "body": {"reason": reason, "grace_ms": grace_ms}})
        self.kill_at_ms = self.world.steady_ms + grace_ms

    def die(self, reason: str, *, report: bool = True) -> None:
        """The process is gone. Some of what it had sent still arrives."""
        if self.state == "gone":
            return
        self.state = "gone"
        self.note("exited", reason)
        self.world.processes.pop(self.key, None)
        if not report:
            return
        for _ in range(self.world.rng.randint(0, len(self.to_runtime))):
            self._carry_one()
        exited = ev.WorkerExited(
            event_id=self.world.new_id("e"), instance_id=self.instance_id, incarnation=self.incarnation, reason=reason
        )
        self.world.submit(exited)

    # what it does in one step

    @property
    def has_work(self) -> bool:
        return self.state == "running" and bool(self.to_worker or self.todo or self.world.resting)

    def act(self) -> None:
        """Read a message, or do the next thing on the list, or (rarely) something that nobody asked for."""
        rng, mix = self.world.rng, self.world.mix
        if rng.random() < mix.hang:
            self.state = "hung"
            self.kill_at_ms = self.world.steady_ms + HUNG_AFTER_MS
        elif self.to_worker and (not self.todo or rng.random() < 0.5):
            self._read(self.to_worker.popleft())
        elif self.todo:
            if rng.random() < mix.slow:
                self.todo.rotate(-1)
                return
            self._do(self.todo.popleft())
        else:
            self._idle()
        if self.state == "running":
            self._flush()
            self._maybe_crash()

    def carry(self) -> None:
        """Some of what it sent arrives."""
        for _ in range(self.world.rng.randint(1, len(self.to_runtime))):
            self._carry_one()

    def _carry_one(self) -> None:
        frame = self.to_runtime.popleft()
        event = ev.WorkerFrame(
            event_id=self.world.new_id("e"), instance_id=self.instance_id, incarnation=self.incarnation, frame=frame
        )
        self.world.submit(event)

    def _maybe_crash(self) -> None:
        if self.world.rng.random() < self.world.mix.crash:
            self.die(self.world.rng.choice(("exited", "killed", "limit", "gate")))

    def _flush(self) -> None:
        for message in self.session.outgoing():
            self.note("sent", message)
            self.to_runtime.append(message)

    def _send_raw(self, message: Any) -> None:
        self.note("sent", message)
        self.to_runtime.append(message)

    # messages of the Runtime

    def _read(self, message: dict[str, Any]) -> None:
        self.note("received", message)
        self._maybe_crash()
        if self.state != "running" or str(message["body"].get("re", "")).startswith("x"):
            return  # the answer to a hostile message, of which the session knows nothing
        try:
            happened = self.session.receive(message["type"], message.get("id"), message["body"])
        except ProtocolViolation as fault:
            self.note("violation", str(fault))
            self.die("exited")
            return
        for event in happened:
            self._on(event)

    def _on(self, event: sdk.SessionEvent) -> None:
        rng, mix = self.world.rng, self.world.mix
        match event:
            case sdk.Welcomed():
                self.open = {c.call_id: c for c in self.session.projection.calls.values() if c.operation_id is None}
                self.surfaces = list(self.session.projection.surfaces)
                if rng.random() < mix.load_failure:
                    self.todo.append(("load_failed",))
                else:
                    self.todo.append(("ready",))
            case sdk.CallStarted(call):
                self._plan(call)
            case sdk.CancelAsked():
                self._plan_cancel(event)
            case sdk.MessageDelivered(message):
                self._plan_message(message)
            case sdk.Answered(command_id, receipt):
                self._answered(command_id, receipt)
            case sdk.StopAsked():
                self.todo.appendleft(("exit",))
            case sdk.Refused():
                self.die("exited")
            case _:
                pass

    def _answered(self, command_id: str, receipt: Any) -> None:
        detail = receipt.detail if isinstance(receipt.detail, dict) else {}
        call_id = self._asks.pop(command_id, None)
        if call_id is not None:
            if receipt.accepted and detail["interaction"]["status"] not in _OVER:
                self.asked[detail["interaction_id"]] = call_id
            elif call_id not in self.open:
                pass
            elif receipt.accepted:  # asked again after a crash; the outcome was delivered before the call was
                self._plan_end(self.open[call_id])
            else:
                self.todo.append(("complete", call_id))
        if command_id in self._opens:
            self._opens.discard(command_id)
            if receipt.accepted and detail["surface_id"] not in self.surfaces:
                self.surfaces.append(detail["surface_id"])

    # plans

    def _plan(self, call: ToolCall) -> None:
        rng, mix = self.world.rng, self.world.mix
        self.todo.append(("finished", call.call_id))
        if call.operation_id is not None:
            if rng.random() < mix.hostile:
                self.todo.append(("complete_operation", call.call_id))
            return
        self.open[call.call_id] = call
        for n in range(rng.choice((0, 0, 1, 3))):
            self.todo.append(("progress", call.call_id, round((n + 1) / 4, 2)))
        if self.app_scope.startswith(_BUSY) and rng.random() < 0.3:
            self.todo.append((rng.choice(("save", "surface", "question")),))
        if rng.random() < mix.ask:
            self.todo.append(("ask", call.call_id))
            return
        if rng.random() < mix.leave_open:
            return
        self._plan_end(call)

    def _plan_end(self, call: ToolCall) -> None:
        rng, mix = self.world.rng, self.world.mix
        if rng.random() < mix.bad_output:
            self.todo.append(("bad_output", call.call_id))
        end = rng.choice(("complete", "complete", "complete", "fail", "give_up"))
        self.todo.append((end, call.call_id))
        if rng.random() < mix.double:
            self.todo.append((rng.choice(("complete", "fail", "progress_late")), call.call_id))

    def _plan_cancel(self, asked: sdk.CancelAsked) -> None:
        if self.world.rng.random() < self.world.mix.slow:
            self.todo.append(("complete", asked.call.call_id))
        else:
            self.todo.append(("give_up", asked.call.call_id))
        self.todo.append(("ack", asked.seq))

    def _plan_message(self, message: InboxMessage) -> None:
        if message.kind == "interaction.result":
            self._plan_outcome(message)
        elif message.kind == "close.request":
            self.todo.extend(("give_up", call_id) for call_id in self.open if self.world.rng.random() < 0.5)
        self.todo.append(("ack", message.seq))

    def _plan_outcome(self, message: InboxMessage) -> None:
        """Interact ends the agent's call with what came of its question; an app ends the call that asked."""
        body = message.body["interaction"]
        call_id = body["owner"].get("parent_call_id")
        if call_id is None:
            return
        if body["owner"]["source"] != "agent_tool":
            if call_id in self.open:
                self._plan_end(self.open[call_id])
            return
        if body["status"] in ("submitted", "completed"):
            self.todo.append(("relay", call_id, body["result"]))
        elif body["status"] == "cancelled":
            self.todo.append(("give_up", call_id))
        else:
            self.todo.append(("fail", call_id))

    def _idle(self) -> None:
        """Nothing to do: while the world comes to rest, what is open is ended; else now and then something odd."""
        rng, mix = self.world.rng, self.world.mix
        if self.session.phase != "open":
            return
        if self.world.resting:
            for call_id in [c for c in self.open if c not in self.asked.values()]:
                self.todo.append(("complete", call_id))
            for surface_id in self.surfaces:
                self.todo.append(("surface.close", surface_id))
            self.surfaces = []
            return
        if self.open and rng.random() < 0.3:
            self._plan_end(rng.choice(list(self.open.values())))
        elif rng.random() < mix.hostile:
            self.todo.append(("hostile",))
        elif self.app_scope.startswith(_BUSY):
            self.todo.append((rng.choice((*_DEEDS, "surface")),))

    # deeds

    def _do(self, deed: tuple[Any, ...]) -> None:
        try:
            getattr(self, f"_do_{deed[0].replace('.', '_')}")(*deed[1:])
        except LineUpError as fault:
            if fault.code != "rate_limited":
                raise

    def _do_ready(self) -> None:
        self.session.ready()

    def _do_load_failed(self) -> None:
        self.session.load_failed("app_start_failed", "ImportError: no module named lab")
        self._flush()
        self.world.last_words(self)
        self.die("exited")

    def _do_exit(self) -> None:
        self._flush()
        self.world.last_words(self)
        self.die("stopped" if self.kill_at_ms is not None else "exited")

    def _do_finished(self, call_id: str) -> None:
        for event in self.session.finished(call_id):
            self._on(event)

    def _do_ack(self, seq: int) -> None:
        self.session.acknowledge(seq)

    def _result(self, call_id: str) -> dict[str, Any]:
        self._made += 1
        call = self.open.get(call_id) or self.session.projection.calls.get(call_id)
        n = call.input.get("n", 0) if call is not None and isinstance(call.input, dict) else 0
        return {"n": n, "by": f"{self.instance_id}/{self.incarnation}/{self._made}"}

    def _do_complete(self, call_id: str) -> None:
        self.session.command("tool.complete", {"call_id": call_id, "result": self._result(call_id)})
        self.open.pop(call_id, None)

    def _do_complete_operation(self, call_id: str) -> None:
        self.session.command("tool.complete", {"call_id": call_id, "result": {"state": "completed"}})

    def _do_relay(self, call_id: str, result: dict[str, Any]) -> None:
        self.session.command("tool.complete", {"call_id": call_id, "result": result})

    def _do_bad_output(self, call_id: str) -> None:
        self.session.command("tool.complete", {"call_id": call_id, "result": {"n": "many"}})

    def _do_fail(self, call_id: str) -> None:
        self._made += 1
        message = f"no luck {self.instance_id}/{self.incarnation}/{self._made}"
        self.session.command("tool.fail", {"call_id": call_id, "code": "no_luck", "message": message})
        self.open.pop(call_id, None)

    def _do_give_up(self, call_id: str) -> None:
        self.session.command("tool.cancel", {"call_id": call_id, "reason": f"given up by {self.instance_id}"})
        self.open.pop(call_id, None)

    def _do_progress(self, call_id: str, value: float) -> None:
        self.session.command("tool.progress", {"call_id": call_id, "progress": value})

    def _do_progress_late(self, call_id: str) -> None:
        self._do_progress(call_id, 0.5)

    def _do_ask(self, call_id: str) -> None:
        body = {"request": QUESTION, "parent_call_id": call_id}
        if self.world.rng.random() < 0.7:
            body["key"] = f"ask-{call_id}"
        if self.world.rng.random() < 0.3:
            body["expires_at"] = self.world.wall_time(self.world.rng.choice((500, 20_000, 300_000)))
        self._asks[self.session.command("ui.request", body)] = call_id

    def _do_question(self) -> None:
        """One that no call waits for; once in each incarnation."""
        if len(self.session.projection.interactions) == 0:
            self.session.command("ui.request", {"request": QUESTION})

    def _do_save(self) -> None:
        self._made += 1
        self.session.command("state.save", {"state": {"calls": len(self.open), "turn": self._made}})

    def _do_foreground(self) -> None:
        self.session.command("lifecycle.foreground", {})

    def _do_background(self) -> None:
        self.session.command("lifecycle.background", {})

    def _do_close(self) -> None:
        self.session.command("lifecycle.close", {"reason": "done"})

    def _do_surface(self) -> None:
        if self.surfaces:
            rng = self.world.rng
            k = rng.randint(0, 9)
            few, many = {f"n{k}": rng.choice((None, k))}, {f"n{n:02}": {"k": k} for n in range(rng.choice((0, 5, 40)))}
            patch = {"k": k, "in": rng.choice((few, many, dict.fromkeys(many), None))}
            self.session.command("surface.update", {"surface_id": self.surfaces[0], "patch": patch})
        else:
            body = {"entry": "surface/index.html", "state": {"k": 0}}
            self._opens.add(self.session.command("surface.open", body))

    def _do_surface_close(self, surface_id: str) -> None:
        self.session.command("surface.close", {"surface_id": surface_id})

    def _do_capability(self) -> None:
        name = self.world.rng.choice(("notification.show", "microphone", "artifact.export"))
        body = {"capability": name, "reason": "to show", "arguments": {"title": "Hello"}}
        self.session.command("capability.request", body)

    def _do_artifact(self) -> None:
        self.session.command("artifact.submit", {"title": "notes", "media_type": "text/plain", "content": b"notes"})

    def _do_hostile(self) -> None:
        """What no honest worker sends; sent beside the session, which would refuse it."""
        rng, world = self.world.rng, self.world
        other = rng.choice(world.calls_to_forge())
        question = rng.choice(world.person.all_interactions() or ["q-none"])
        self._made += 1
        id_ = f"x{self._made}"
        self._send_raw(
            rng.choice(
                (
                    {
                        "type": "tool.complete",
                        "id": id_,
                        "body": {"call_id": other, "result": {"n": 1, "by": "forged"}},
                    },
                    {"type": "tool.complete", "id": id_, "body": {"call_id": other, "result": {"approved": True}}},
                    {"type": "tool.fail", "id": id_, "body": {"call_id": other, "code": "forged", "message": "forged"}},
                    {"type": "tool.cancel", "id": id_, "body": {"call_id": other}},
                    {"type": "tool.progress", "id": id_, "body": {"call_id": other, "progress": 2}},
                    {"type": "ui.cancel", "id": id_, "body": {"interaction_id": question}},
                    {"type": "ui.request", "id": id_, "body": {"request": QUESTION, "parent_call_id": other}},
                    {"type": "ui.request", "id": id_, "body": {"request": QUESTION | {"owner": {"app_scope": "chat"}}}},
                    {"type": "inbox.ack", "id": id_, "body": {"seq": rng.randint(0, 9999)}},
                    {"type": "conversation.send_text", "id": id_, "body": {"text": "I am the person"}},
                    {"type": "surface.update", "id": id_, "body": {"surface_id": "f-none", "patch": {}}},
                    {"type": "worker.ready", "body": {}},
                    {"type": "worker.hello", "body": {"protocols": [1], "sdk_version": "1.0"}},
                    {"type": "tool.complete", "id": id_, "body": {"call_id": other, "result": 7}},
                    {"type": "no.such.thing", "body": {}},
                    ["not", "a", "map"],
                )
            )
        )
