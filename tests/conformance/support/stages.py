"""The three Runtimes that must answer alike: the test kit's, the core in memory without it, and the daemon.

They share the player and nothing else: the stub is used as an author's test would use it, the memory stage does its own
wiring of core, engine and runners, and the daemon is processes, sockets and a disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import deque
from pathlib import Path
from typing import Any

from lineup_protocol.times import to_rfc3339
from lineup_sdk.channel import ChannelClosed, MemoryChannel, memory_pair
from lineup_sdk.runner import Runner
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core import timers
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import TABLES
from lineup_supervisor.core.step import step
from lineup_supervisor.edges.store_memory import MemoryStore
from lineup_supervisor.engine import Engine
from lineup_testkit import StubRuntime
from lineup_testkit.bundles import StubBundle, find_chat, from_folder
from processes.support.agent import Agent
from processes.support.operator import Operator
from processes.support.runtime import Runtime
from processes.support.waiting import until

Body = dict[str, Any]
BUNDLE = Path(__file__).resolve().parents[1] / "bundle"
BACK_AGAIN_S = 5.0  # longer than the first waits before a worker is started again
QUIET_TURNS = 30
TIMERS_MAX = 10_000


class StubStage:
    """``lineup_testkit.StubRuntime``."""

    def __init__(self) -> None:
        self.stub = StubRuntime.from_bundle(BUNDLE)
        self.heard = self.stub.heard

    @property
    def revision(self) -> str:
        return str(self.stub.inventory["revision"])

    @property
    def now(self) -> str:
        return self.stub.now

    async def open(self, agent_id: str) -> None:
        await self.stub.start()

    async def close(self) -> None:
        self.stub.close()
        await asyncio.sleep(0)

    async def send(self, frame: Body) -> None:
        await self.stub.send(
            frame["type"].removeprefix("lineup.v1."),
            frame["payload"],
            conversation_id=frame.get("conversation_id"),
            message_id=frame["message_id"],
        )

    async def act(self, actor: str, name: str, args: Body) -> Body:
        return await self.stub.act(name, actor=actor, **args)

    async def query(self, name: str, args: Body) -> Any:
        return self.stub.query(name, **args)

    async def settle(self) -> None:
        await self.stub.settle()

    async def passes(self, seconds: float) -> None:
        await self.stub.advance(seconds)

    async def kill_worker(self, conversation_id: str) -> None:
        await self.stub.crash_worker("probe")
        await self.stub.advance(BACK_AGAIN_S)

    async def kill_runtime(self) -> None:
        await self.stub.restart()


class MemoryWorker:
    """The SDK's runner at the other end of a channel in memory."""

    def __init__(self, stage: MemoryStage, start: fx.StartWorker, bundle: StubBundle) -> None:
        self.stage = stage
        self.instance_id, self.incarnation = start.instance_id, start.incarnation
        mine, self.link = memory_pair()
        self.tasks = [asyncio.create_task(self._run(mine, bundle)), asyncio.create_task(self._hear())]
        self.is_over = False

    async def _run(self, channel: MemoryChannel, bundle: StubBundle) -> None:
        ended = await Runner(channel, bundle.load).run()
        await self.tasks[1]
        self.over("stopped" if ended.reason == "stopped" else "exited", ended.message)

    async def _hear(self) -> None:
        try:
            while True:
                for frame in await self.link.receive():
                    self.stage.feed(ev.WorkerFrame, **self._who(), frame=frame)
        except ChannelClosed:
            pass

    def say(self, messages: tuple[Body, ...]) -> None:
        try:
            for message in messages:
                self.link.send(message)
        except ChannelClosed:
            pass

    def kill(self, *, silently: bool = False) -> None:
        self.link.close()
        for task in self.tasks:
            task.cancel()
        self.over("killed", "", silently=silently)

    def over(self, reason: str, detail: str, *, silently: bool = False) -> None:
        if not self.is_over:
            self.is_over = True
            self.stage.workers.pop((self.instance_id, self.incarnation), None)
            if not silently:
                self.stage.feed(ev.WorkerExited, **self._who(), reason=reason, detail=detail)

    def _who(self) -> Body:
        return {"instance_id": self.instance_id, "incarnation": self.incarnation}


class MemoryStage:
    """The core and the engine over a store in memory; the agent's frames come to the core's door as text."""

    def __init__(self) -> None:
        self.heard: list[Body] = []
        self.workers: dict[tuple[str, int], MemoryWorker] = {}
        self.revision = ""
        self.wall_ms, self.steady_ms = 1_796_000_000_000, 5_000
        self._store = MemoryStore(TABLES, encoded=True)
        self._bundles = {each.app_scope: each for each in (find_chat(None), from_folder(BUNDLE))}
        self._answers: dict[str, fx.ReplyHost] = {}
        self._queue: deque[ev.AnyEvent] = deque()
        self._busy = False
        self._fed = self._boots = 0
        self._due: tuple[int | None, int | None] = (None, None)
        self._agent_id = ""

    @property
    def now(self) -> str:
        return to_rfc3339(self.wall_ms)

    async def open(self, agent_id: str) -> None:
        self._agent_id = agent_id
        await self._boot()

    async def close(self) -> None:
        for worker in list(self.workers.values()):
            worker.kill(silently=True)
        await asyncio.sleep(0)

    async def _boot(self) -> None:
        self._boots += 1
        self._engine = Engine(self._store, step, timers.next_due, on_fault=_fault)
        own = tuple(each.bundle for each in self._bundles.values())
        self.feed(ev.Boot, boot_id=f"boot-{self._boots}", isolation="S3", bundles=own, policy=Policy())
        hello = {"agent_id": self._agent_id, "protocol": 1}
        await self.send(
            {"type": "lineup.v1.hello", "message_id": f"hello-{self._boots}", "sent_at": self.now, "payload": hello}
        )

    def feed(self, event: Any, **fields: Any) -> None:
        self._fed += 1
        self._queue.append(event(event_id=f"e{self._fed}", **fields))
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                outcome = self._engine.run([self._queue.popleft()], ev.Now(self.wall_ms, self.steady_ms))
                self._due = outcome.next_due
                for effect in outcome.effects:
                    self._carry_out(effect)
        finally:
            self._busy = False

    def _carry_out(self, effect: fx.AnyEffect) -> None:
        match effect:
            case fx.SendAgent(frames=frames):
                for frame in frames:
                    self._agent_takes(json.loads(json.dumps(frame)))
            case fx.SendWorker(instance_id=i, incarnation=n, messages=messages):
                if (i, n) in self.workers:
                    self.workers[i, n].say(messages)
            case fx.StartWorker(instance_id=i, incarnation=n):
                self.workers[i, n] = MemoryWorker(self, effect, self._bundles[effect.app_scope])
                self.feed(ev.WorkerStarted, instance_id=i, incarnation=n, pid=os.getpid(), isolation="S3")
            case fx.StopWorker(instance_id=i, incarnation=n):
                if (i, n) in self.workers:
                    self.workers[i, n].kill()
            case fx.ReplyHost():
                self._answers[effect.reply_to] = effect

    def _agent_takes(self, frame: Body) -> None:
        self.heard.append(frame)
        if frame["type"] == "lineup.v1.client.inventory":
            self.revision = frame["payload"]["revision"]
        if "seq" in frame:
            ack = {"type": "lineup.v1.ack", "message_id": f"ack-{frame['seq']}-{len(self.heard)}", "sent_at": self.now}
            self._agent_says(ack | {"payload": {"seq": frame["seq"]}})

    def _agent_says(self, frame: Body) -> None:
        self.feed(ev.AgentFrame, link_id=f"link-{self._boots}", frame=json.loads(json.dumps(frame)))

    async def send(self, frame: Body) -> None:
        self._agent_says(frame)
        await self.settle()

    async def act(self, actor: str, name: str, args: Body) -> Body:
        reply_to = f"h{self._fed}"
        self.feed(ev.HostAction, reply_to=reply_to, action_id=f"x{self._fed}", actor=actor, name=name, args=args)
        answer = self._answers.pop(reply_to)
        await self.settle()
        told = {"accepted": answer.accepted, "code": answer.code, "message": answer.message, "detail": answer.detail}
        return {name: value for name, value in told.items() if value is not None}

    async def query(self, name: str, args: Body) -> Any:
        reply_to = f"h{self._fed}"
        self.feed(ev.HostQuery, reply_to=reply_to, name=name, args=args)
        answer = self._answers.pop(reply_to)
        assert answer.accepted, answer
        return answer.detail

    async def settle(self) -> None:
        quiet = 0
        while quiet < QUIET_TURNS:
            before = self._fed
            await asyncio.sleep(0)
            quiet = quiet + 1 if before == self._fed else 0

    async def passes(self, seconds: float) -> None:
        await self.settle()
        left = round(seconds * 1000)
        for _ in range(TIMERS_MAX):
            nows = (self.wall_ms, self.steady_ms)
            waits = [max(0, due - now) for due, now in zip(self._due, nows, strict=True) if due is not None]
            wait = min([left, *waits])
            self.wall_ms += wait
            self.steady_ms += wait
            left -= wait
            if wait in waits:
                self.feed(ev.Wake)
                await self.settle()
            if left == 0:
                return
        raise AssertionError("the timers do not come to rest")

    async def kill_worker(self, conversation_id: str) -> None:
        rows = (await self.query("status", {}))["instances"]
        (row,) = [r for r in rows if (r["app_scope"], r["conversation_id"]) == ("probe", conversation_id)]
        self.workers[row["instance_id"], row["incarnation"]].kill()
        await self.passes(BACK_AGAIN_S)

    async def kill_runtime(self) -> None:
        for worker in list(self.workers.values()):
            worker.kill(silently=True)
        self.workers.clear()
        self._queue.clear()
        await self._boot()


def _fault(event: ev.Event, error: Exception) -> None:
    raise AssertionError(f"a fault in {type(event).__name__}") from error


class DaemonStage:
    """The daemon, its hostshell and sandboxed workers; the agent speaks raw frames over a WebSocket."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._actions = 0

    @property
    def heard(self) -> list[Body]:
        return self.agent.frames

    @property
    def revision(self) -> str:
        return self.agent.revision

    @property
    def now(self) -> str:
        return to_rfc3339(time.time_ns() // 1_000_000)

    async def open(self, agent_id: str) -> None:
        self.agent = Agent(self.runtime, agent_id)
        await self.agent.connect()

    async def close(self) -> None:
        """Leave nothing open for the next scenario on the same daemon."""
        await self.agent.leave()
        await self.act("operator", "apps.enable", {"app_scope": "probe"})
        for row in (await self.query("status", {}))["instances"]:
            if row["app_scope"] == "probe":
                args = {"instance_id": row["instance_id"], "force": True}
                await self.act("person", "instance.close", args)

    async def send(self, frame: Body) -> None:
        await self.agent.send_frame(frame)

    async def act(self, actor: str, name: str, args: Body) -> Body:
        self._actions += 1
        action_id = f"{self.agent.agent_id}-{self._actions}"

        def ask() -> Body:
            with self._peer("hostshell" if actor == "person" else "cli") as peer:
                return peer.action(name, action_id, **args)

        answer = await asyncio.to_thread(ask)
        return {name: value for name, value in answer.items() if name != "re" and value is not None}

    async def query(self, name: str, args: Body) -> Any:
        def ask() -> Any:
            with self._peer("cli") as peer:
                return peer.query(name, **args)

        return await asyncio.to_thread(ask)

    def _peer(self, role: str) -> Operator:
        return Operator(self.runtime.home, role, is_up=lambda: self.runtime.is_up)

    async def settle(self) -> None:
        """A daemon goes on by itself."""

    async def passes(self, seconds: float) -> None:
        over_at = time.monotonic() + seconds
        await until(lambda: time.monotonic() >= over_at, seconds + 5, f"{seconds} s have passed")

    async def kill_worker(self, conversation_id: str) -> None:
        pid = await asyncio.to_thread(self.runtime.worker, "probe", conversation_id)
        assert pid is not None, "it has no worker"
        os.kill(pid, signal.SIGKILL)

    async def kill_runtime(self) -> None:
        await asyncio.to_thread(self.runtime.kill)
        await self.agent.cut()
        assert await self.runtime.start_async(), self.runtime.errors()
        await self.agent.connect()
