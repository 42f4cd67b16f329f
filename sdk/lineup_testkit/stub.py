"""``StubRuntime``: the Runtime's real core over a store in memory, for the tests of MiniApps. No daemon, no sockets.

Owns the wiring between core, engine, one agent, one person and in-process workers. It keeps no rule of its own: every
refusal a test sees here is the one that the daemon would give.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lineup_protocol.codec import CAPS
from lineup_protocol.errors import LineUpError
from lineup_protocol.strict_json import canonical_json, decode_json
from lineup_protocol.times import to_rfc3339
from lineup_sdk.app import MiniApp
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core import timers
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import TABLES
from lineup_supervisor.core.step import step
from lineup_supervisor.edges.store_memory import MemoryStore
from lineup_supervisor.engine import Engine
from lineup_testkit import bundles
from lineup_testkit.calls import StubCall
from lineup_testkit.clock import StubClock
from lineup_testkit.workers import StubWorker

AGENT_ID = "agent"
CONVERSATION_ID = "c-1"
LINK_ID = "link"
QUIET_TURNS = 50  # turns of the event loop without a message, after which nothing more will come of itself
WAIT_S = 10.0  # real seconds that a test waits at most for an app that does something of its own
ADVANCE_TIMERS_MAX = 100_000

Body = dict[str, Any]


class StubRuntime:
    """One Runtime with one agent and one person, in this process.

    ::

        async with StubRuntime.from_bundle("my_app") as rt:
            call = await rt.call("my-app.open", {"title": "Hello"})
            await rt.answer({"approved": True})
            assert await call.wait() == {"status": "completed"}

    Every ``await`` on it returns when nothing more happens by itself. Time stands still but in ``advance``.
    """

    def __init__(
        self,
        installed: Sequence[bundles.StubBundle],
        *,
        clock: StubClock | None = None,
        policy: Policy | None = None,
        isolation: str = "S3",
    ) -> None:
        self.clock = clock or StubClock()
        self.calls: dict[str, StubCall] = {}
        self.texts: list[str] = []  # what the person wrote, as the agent got it
        self.inventory: Body = {"revision": "", "tools": []}
        self.notes: list[Body] = []  # frames that answer nothing: errors
        self.heard: list[Body] = []  # every frame that reached the agent, in order
        self._installed = {each.app_scope: each for each in installed}
        self._by_path = {each.bundle.digest: each for each in installed}
        self._policy = policy or Policy()
        self._isolation = isolation
        self._store = MemoryStore(TABLES, encoded=True)
        self._engine: Engine | None = None
        self._due: tuple[int | None, int | None] = (None, None)
        self._events: deque[ev.AnyEvent] = deque()
        self._draining = False
        self._workers: dict[str, StubWorker] = {}
        self._replies: dict[str, fx.ReplyHost] = {}
        self._ids = 0
        self._moved = 0
        self._link = 0
        self._frames: dict[str, Body] = {}  # receipts by message_id

    @classmethod
    def from_bundle(
        cls,
        path: str | os.PathLike[str],
        *,
        others: Sequence[str | os.PathLike[str]] = (),
        clock: StubClock | None = None,
        policy: Policy | None = None,
    ) -> StubRuntime:
        """The bundle in this folder, ``others`` beside it, and Interact (from beside the folder or the distribution).

        Raises:
            LineUpError: ``manifest_invalid`` with every fault and its path.
        """
        installed = [bundles.from_folder(each) for each in (path, *others)]
        return cls(_with_chat(installed, Path(path).resolve()), clock=clock, policy=policy)

    @classmethod
    def from_app(
        cls,
        app: MiniApp,
        manifest: Mapping[str, Any],
        *,
        clock: StubClock | None = None,
        policy: Policy | None = None,
    ) -> StubRuntime:
        """An app object with its manifest, and Interact of the distribution."""
        return cls(_with_chat([bundles.from_app(app, manifest)], None), clock=clock, policy=policy)

    # -- begin and end ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> StubRuntime:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
        await asyncio.sleep(0)

    async def start(self) -> None:
        """Boot and connect the agent; idempotent, and done by the first call of anything else."""
        if self._engine is None:
            self._boot()
            await self.settle()

    def close(self) -> None:
        """End every worker. What was stored is gone with this object."""
        for worker in list(self._workers.values()):
            worker.kill("stopped", report=False)
        self._workers.clear()
        self._events.clear()
        self._engine = None

    async def restart(self) -> None:
        """The supervisor and with it every worker is killed and started again over the same store."""
        self.close()
        self._boot()
        await self.settle()

    async def crash_worker(self, app_scope: str | None = None) -> None:
        """SIGKILL the worker of a MiniApp (without a name: the only one that runs).

        Raises:
            LookupError: there is none, or several and no name.
        """
        self._only_worker(app_scope).kill("killed", "killed by the test")
        await self.settle()

    # -- the agent ----------------------------------------------------------------------------------------------

    async def call(
        self,
        tool_id: str,
        input_: Any = None,
        *,
        call_id: str = "",
        conversation_id: str = CONVERSATION_ID,
        **payload: Any,
    ) -> StubCall:
        """Call a tool as the agent, under the current inventory; ``payload`` may put something else in its place."""
        await self.start()
        call_id = call_id or self._id("k")
        call = self.calls.setdefault(call_id, StubCall(self, call_id))
        body = {
            "call_id": call_id,
            "tool_id": tool_id,
            "inventory_revision": self.inventory["revision"],
            "input": input_ or {},
        }
        call.receipt = await self.send("tool.call", body | payload, conversation_id=conversation_id)
        return call

    async def cancel(self, call_id: str, reason: str = "cancelled by the test") -> Body:
        """Ask for the end of a call; the receipt."""
        return await self.send("tool.cancel", {"call_id": call_id, "reason": reason})

    async def agent_says(self, text: str, *, conversation_id: str = CONVERSATION_ID) -> Body:
        """A text of the agent; the receipt."""
        return await self.send("message.text", {"text": text}, conversation_id=conversation_id)

    async def send(
        self, type_: str, payload: Body, *, conversation_id: str | None = None, message_id: str = ""
    ) -> Body:
        """Any message of the agent; its receipt's payload, or ``{}`` if it has none."""
        await self.start()
        message_id = message_id or self._id("m")
        frame: Body = {"type": f"lineup.v1.{type_}", "message_id": message_id, "sent_at": self.now, "payload": payload}
        if conversation_id is not None:
            frame["conversation_id"] = conversation_id
        self._agent_sends(frame)
        await self.settle()
        return self._frames.get(message_id, {})

    async def wait(self, condition: Callable[[], Any], what: str = "the condition") -> Any:
        """Until ``condition()`` is true; its value. For apps that wait for something real, such as a thread.

        Raises:
            AssertionError: not within ``WAIT_S`` seconds.
        """
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    await self.settle()
                    if value := condition():
                        return value
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise AssertionError(f"{what} did not come true within {WAIT_S:.0f} s") from None

    # -- the person ---------------------------------------------------------------------------------------------

    def questions(self) -> list[Body]:
        """Interactions that wait for the person, oldest first."""
        return list(self.query("interactions")["interactions"])

    def question(self) -> Body:
        """The one that waits.

        Raises:
            LookupError: there is none, or more than one.
        """
        waiting = self.questions()
        if len(waiting) != 1:
            raise LookupError(f"{len(waiting)} interactions wait for the person")
        return waiting[0]

    async def answer(self, result: Any, interaction_id: str | None = None) -> Body:
        """Answer an interaction (without an id: the one that waits); ``{accepted, code?, message?, detail?}``."""
        id_ = interaction_id or self.question()["interaction_id"]
        return await self.act("interaction.answer", interaction_id=id_, result=result)

    async def dismiss(self, interaction_id: str | None = None, reason: str = "not now") -> Body:
        """Cancel an interaction instead of answering it."""
        id_ = interaction_id or self.question()["interaction_id"]
        return await self.act("interaction.cancel", interaction_id=id_, reason=reason)

    async def say(self, text: str, *, conversation_id: str = CONVERSATION_ID) -> Body:
        """A text of the person to the agent."""
        return await self.act("person.text", conversation_id=conversation_id, text=text)

    async def go_home(self, *, conversation_id: str = CONVERSATION_ID) -> Body:
        """Back to Interact."""
        return await self.act("conversation.home", conversation_id=conversation_id)

    async def close_app(self, app_scope: str, *, force: bool = False) -> Body:
        """Close a MiniApp; one that wants to be asked is asked first, unless ``force``."""
        return await self.act("instance.close", instance_id=self.instance(app_scope)["instance_id"], force=force)

    async def surface_event(self, name: str, payload: Any = None, *, surface_id: str | None = None) -> Body:
        """A page says that something happened (without an id: the one that is open)."""
        return await self.act(
            "surface.event", surface_id=surface_id or self.surface()["surface_id"], name=name, payload=payload
        )

    async def surface_submit(self, payload: Any, *, surface_id: str | None = None) -> Body:
        """A page hands in its result."""
        return await self.act("surface.submit", surface_id=surface_id or self.surface()["surface_id"], payload=payload)

    async def surface_patch(
        self, patch: Body, *, surface_id: str | None = None, base_revision: int | None = None
    ) -> Body:
        """A page patches its state."""
        id_ = surface_id or self.surface()["surface_id"]
        return await self.act("surface.patch", surface_id=id_, patch=patch, base_revision=base_revision)

    async def act(self, name: str, /, *, actor: str = "person", action_id: str = "", **args: Any) -> Body:
        """Any action of a Host (or of the ``operator``); its answer."""
        await self.start()
        reply_to = self._id("h")
        action = ev.HostAction(
            event_id=self._id("e"),
            reply_to=reply_to,
            action_id=action_id or self._id("x"),
            actor=actor,
            name=name,
            args=args,
        )
        self._submit(action)
        await self.settle()
        return _answer(self._replies.pop(reply_to))

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def now(self) -> str:
        """The wall clock, RFC 3339."""
        return to_rfc3339(self.clock.wall_ms)

    async def advance(self, seconds: float) -> None:
        """Time passes; everything that falls due on the way happens at its time."""
        await self.start()
        left = round(seconds * 1000)
        for _ in range(ADVANCE_TIMERS_MAX):
            await self._settle_due()
            wait = min([left, *self._waits()])
            self.clock.pass_ms(wait)
            left -= wait
            if left == 0:
                await self._settle_due()
                return
        raise AssertionError("the timers do not come to rest")

    async def settle(self) -> None:
        """Until nothing more happens by itself."""
        quiet = 0
        while quiet < QUIET_TURNS:
            before = self._moved
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._moved == before else 0

    # -- looking ------------------------------------------------------------------------------------------------

    def query(self, name: str, /, **args: Any) -> Any:
        """Any query of a Host; its detail.

        Raises:
            LineUpError: if it is refused.
        """
        reply_to = self._id("h")
        self._submit(ev.HostQuery(event_id=self._id("e"), reply_to=reply_to, name=name, args=args))
        reply = self._replies.pop(reply_to)
        if not reply.accepted:
            raise LineUpError(reply.code or "internal_error", reply.message or "", detail=reply.detail)
        return reply.detail

    def instance(self, app_scope: str, *, conversation_id: str = CONVERSATION_ID) -> Body:
        """The live instance of a MiniApp as a Host sees it.

        Raises:
            LookupError: there is none.
        """
        for row in self.query("snapshot")["instances"]:
            if (row["app_scope"], row["conversation_id"]) == (app_scope, conversation_id):
                return dict(row)
        raise LookupError(f"{app_scope} is not open in {conversation_id}")

    def is_open(self, app_scope: str, *, conversation_id: str = CONVERSATION_ID) -> bool:
        """True if the MiniApp has a live instance there."""
        rows = self.query("snapshot")["instances"]
        return any((row["app_scope"], row["conversation_id"]) == (app_scope, conversation_id) for row in rows)

    def focus(self, *, conversation_id: str = CONVERSATION_ID) -> list[str]:
        """The MiniApps in the focus stack, bottom to top."""
        snapshot = self.query("snapshot")
        scopes = {row["instance_id"]: row["app_scope"] for row in snapshot["instances"]}
        row = next(each for each in snapshot["conversations"] if each["conversation_id"] == conversation_id)
        return [scopes[instance_id] for instance_id in row["focus"]]

    def saved_state(self, app_scope: str) -> Body | None:
        """What the MiniApp's instance has saved, None if nothing."""
        instance_id = self.instance(app_scope)["instance_id"]
        rows = {row["instance_id"]: row["state"] for row in self.query("snapshot")["snapshots"]}
        return rows.get(instance_id)

    def surface(self) -> Body:
        """The one open page with its state.

        Raises:
            LookupError: there is none, or more than one.
        """
        rows = [row for row in self.query("snapshot")["surfaces"] if row["status"] == "open"]
        if len(rows) != 1:
            raise LookupError(f"{len(rows)} surfaces are open")
        return dict(self.query("surface", surface_id=rows[0]["surface_id"]))

    def workers(self) -> list[str]:
        """The MiniApps that have a worker just now."""
        return [worker.app_scope for worker in self._workers.values()]

    def story(self, id_: str) -> list[Body]:
        """Everything that the audit knows of a call, an interaction, an operation or an instance."""
        return list(self.query("story", id=id_)["entries"])

    # -- inside -------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        self._engine = Engine(self._store, step, timers.next_due, on_fault=_raise)
        self._submit(
            ev.Boot(
                event_id=self._id("e"),
                boot_id=self._id("boot"),
                isolation=self._isolation,
                bundles=tuple(each.bundle for each in self._installed.values()),
                policy=self._policy,
            )
        )
        self._link += 1
        hello = {"agent_id": AGENT_ID, "protocol": 1}
        frame = {"type": "lineup.v1.hello", "message_id": self._id("m"), "sent_at": self.now, "payload": hello}
        self._agent_sends(frame)

    def _id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def _agent_sends(self, frame: Body) -> None:
        data = canonical_json(frame)  # as it would be on the wire, so that nobody shares a value
        heard = decode_json(data, **CAPS["agent", False]._asdict())
        self._submit(ev.AgentFrame(event_id=self._id("e"), link_id=f"{LINK_ID}-{self._link}", frame=heard))

    def _submit(self, event: ev.AnyEvent) -> None:
        self._events.append(event)
        if self._draining:
            return
        self._draining = True
        try:
            while self._events:
                assert self._engine is not None, "the Runtime was not started, or is closed"
                self._moved += 1
                outcome = self._engine.run([self._events.popleft()], self._now())
                self._due = outcome.next_due
                for effect in outcome.effects:
                    self._carry_out(effect)
        finally:
            self._draining = False

    def _now(self) -> ev.Now:
        return ev.Now(wall_ms=self.clock.wall_ms, steady_ms=self.clock.steady_ms)

    def _carry_out(self, effect: fx.AnyEffect) -> None:
        match effect:
            case fx.SendAgent(frames=frames):
                for frame in frames:
                    self._agent_hears(frame)
            case fx.SendWorker(instance_id=instance_id, incarnation=incarnation, messages=messages):
                if (worker := self._worker(instance_id, incarnation)) is not None:
                    worker.send(messages)
            case fx.StartWorker():
                self._start_worker(effect)
            case fx.StopWorker(instance_id=instance_id, incarnation=incarnation, reason=reason, grace_ms=grace_ms):
                if (worker := self._worker(instance_id, incarnation)) is not None:
                    worker.stop(reason, grace_ms)
            case fx.ReplyHost(reply_to=reply_to):
                self._replies[reply_to] = effect
            case _:
                pass  # deltas, watches and files are for Hosts; a test asks with ``query``

    def _agent_hears(self, frame: Body) -> None:
        self.heard.append(frame)
        type_, payload = frame["type"], frame["payload"]
        if type_ == "lineup.v1.client.inventory":
            self.inventory = payload
        elif type_ == "lineup.v1.receipt":
            self._frames[payload["reply_to"]] = payload
        elif type_ == "lineup.v1.message.text":
            self.texts.append(payload["text"])
        elif type_ in ("lineup.v1.tool.progress", "lineup.v1.tool.result"):
            self.calls.setdefault(payload["call_id"], StubCall(self, payload["call_id"])).hear(type_, payload)
        elif type_ == "lineup.v1.error":
            self.notes.append(payload)
        if "seq" in frame:
            ack = {
                "type": "lineup.v1.ack",
                "message_id": self._id("m"),
                "sent_at": self.now,
                "payload": {"seq": frame["seq"]},
            }
            self._agent_sends(ack)

    def _start_worker(self, effect: fx.StartWorker) -> None:
        bundle = next(each for each in self._installed.values() if each.app_scope == effect.app_scope)
        worker = StubWorker(
            effect.instance_id,
            effect.incarnation,
            effect.app_scope,
            bundle.load,
            on_frame=self._worker_says,
            on_exit=self._worker_exited,
        )
        self._workers[worker.instance_id] = worker
        started = ev.WorkerStarted(
            event_id=self._id("e"),
            instance_id=worker.instance_id,
            incarnation=worker.incarnation,
            pid=os.getpid(),
            isolation=self._isolation,
        )
        self._submit(started)

    def _worker(self, instance_id: str, incarnation: int) -> StubWorker | None:
        worker = self._workers.get(instance_id)
        return worker if worker is not None and worker.incarnation == incarnation else None

    def _only_worker(self, app_scope: str | None) -> StubWorker:
        found = [worker for worker in self._workers.values() if app_scope in (None, worker.app_scope)]
        if len(found) != 1:
            raise LookupError(f"{len(found)} workers of {app_scope or 'any MiniApp'} run: {self.workers()}")
        return found[0]

    def _worker_says(self, worker: StubWorker, frame: Any) -> None:
        if self._engine is not None:
            event = ev.WorkerFrame(
                event_id=self._id("e"), instance_id=worker.instance_id, incarnation=worker.incarnation, frame=frame
            )
            self._submit(event)

    def _worker_exited(self, worker: StubWorker, reason: str, detail: str) -> None:
        if self._workers.get(worker.instance_id) is worker:
            del self._workers[worker.instance_id]
        if self._engine is not None:
            event = ev.WorkerExited(
                event_id=self._id("e"),
                instance_id=worker.instance_id,
                incarnation=worker.incarnation,
                reason=reason,
                detail=detail,
            )
            self._submit(event)

    def _waits(self) -> list[int]:
        wall, steady = self._due
        waits = [] if wall is None else [wall - self.clock.wall_ms]
        waits += [] if steady is None else [steady - self.clock.steady_ms]
        return [max(0, wait) for wait in waits]

    async def _settle_due(self) -> None:
        await self.settle()
        for _ in range(ADVANCE_TIMERS_MAX):
            if not any(wait == 0 for wait in self._waits()):
                return
            self._submit(ev.Wake(event_id=self._id("e")))
            await self.settle()


def _with_chat(installed: list[bundles.StubBundle], beside: Path | None) -> list[bundles.StubBundle]:
    if any(each.app_scope == bundles.CHAT_SCOPE for each in installed):
        return installed
    return [bundles.find_chat(beside), *installed]


def _raise(event: ev.Event, error: Exception) -> None:
    raise AssertionError(f"a fault of the Runtime in {type(event).__name__}") from error


def _answer(reply: fx.ReplyHost) -> Body:
    optional = {"code": reply.code, "message": reply.message, "detail": reply.detail}
    return {"accepted": reply.accepted} | {name: value for name, value in optional.items() if value is not None}
