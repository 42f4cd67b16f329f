"""One simulated world: the real core and engine over the in-memory store, and everybody around them.

Everything random comes from the seed: step ``i`` draws from a generator seeded with ``(seed, i)``, so that a run
replays exactly and steps can be left out when a failing run is made shorter.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from checkers.history import History
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core import timers
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import META
from lineup_supervisor.engine import Engine
from simulation import bundles
from simulation.agents import CLOSE, Link, SimAgent
from simulation.disk import Disk
from simulation.looks import Operator
from simulation.mix import Mix, draw
from simulation.people import Person
from simulation.rest import come_to_rest
from simulation.witness import Witness
from simulation.workers import Process

START_WALL_MS = 1_796_000_000_000
FIELDS = [
    {"id": "name", "label": "Name", "type": "text", "required": True},
    {"id": "age", "label": "Age", "type": "number"},
]
_TO_HOST = (fx.SendAgent, fx.CloseAgent, fx.ReplyHost, fx.HostDelta)


class Crash(BaseException):
    """The supervisor was killed at a named point."""


class CoreFault(AssertionError):
    """A step raised: a bug of the core."""


class World:
    def __init__(self, seed: int, *, mix: Mix | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.mix = mix or draw(self.rng)
        self.history = History(
            seed=seed,
            tools=bundles.TOOLS,
            restarts_max=self.mix.restarts_max,
            starting_max=self.mix.starting_max,
            workers_max=self.mix.workers_max,
            inbox_max=self.mix.inbox_max,
            inbox_bytes_max=self.mix.inbox_bytes_max,
        )
        self.wall_ms = START_WALL_MS
        self.steady_ms = 0
        self.resting = False
        self._ticks = 0
        self._ids = 0
        self.store = Disk()
        self.witness = Witness()
        self.history.refusals = self.witness.refusals
        self.links: dict[str, Link] = {}
        self.processes: dict[tuple[str, int], Process] = {}
        tools = list(bundles.TOOLS)
        self.callable_tools = self.rng.sample(tools, self.rng.choice((2, 4, 8, len(tools), len(tools))))
        self.person = Person(self)
        self.operator = Operator(self)
        self.agents = [SimAgent(self, f"a{n}") for n in range(self.mix.agents)]
        self.queue: deque[ev.AnyEvent] = deque()
        self.engine: Engine | None = None
        self.kill_point: str | None = None
        self.retry_at_ms: int | None = None
        self.due: tuple[int | None, int | None] = (None, None)
        self.awake = False  # a Wake is in the queue
        self.frozen = False  # the Host is stopped; what it would get waits in ``held``
        self.held: list[fx.AnyEffect] = []
        self.strobes_left = 0
        self.happened: Counter[str] = Counter()  # faults of clock, disk, Host and archive, by name
        self.boot()

    # what everybody uses

    def tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}{self._ids}"

    def wall_time(self, in_ms: int) -> str:
        return to_rfc3339(self.wall_ms + in_ms)

    def submit(self, event: ev.AnyEvent) -> None:
        if self.engine is not None:
            self.queue.append(event)

    def all_conversations(self) -> list[str]:
        return [c for agent in self.agents for c in agent.conversations] + list(self.person.conversations)

    def calls_to_forge(self) -> list[str]:
        """Calls that are open as far as their agents know, else any."""
        open_ = [c for agent in self.agents for c in agent.calls if c not in agent.results]
        return open_ or [c for agent in self.agents for c in agent.calls] or ["k-none"]

    def input_for(self, tool_id: str) -> dict[str, Any]:
        rng = self.rng
        match tool_id:
            case "notice":
                return {"title": "Note", "message": "Read this."}
            case "confirm":
                body: dict[str, Any] = {"title": "Sure?", "prompt": "Shall we?"}
            case "choice":
                actions = [{"id": name, "label": name} for name in ("red", "green", "blue")]
                body = {"title": "Colour", "prompt": "Which?", "mode": "single-choice", "actions": actions}
            case "input":
                body = {"title": "Who", "prompt": "Tell me.", "fields": FIELDS}
            case "timer.start":
                return {"duration_seconds": rng.choice((1, 5, 60, 600)), "activity": "reading"}
            case "timer.interrupt":
                return {}
            case _:
                return {"n": rng.randint(0, 1000)}
        if rng.random() < 0.3:
            body["expires_at"] = self.wall_time(rng.choice((1_000, 30_000, 600_000)))
        return body

    # the supervisor

    def boot(self) -> None:
        """A new run of the supervisor over the same store."""
        with self.store.read() as txn:
            meta = txn.get(META, ("runtime",))
        if meta is not None:
            self.steady_ms = max(self.steady_ms, meta.steady_ms)
        self.engine = Engine(self.store, self.witness.step, timers.next_due, on_fault=self._on_fault, hook=self._hook)
        self.queue.clear()
        self.retry_at_ms = None
        self.awake = False
        boot_id = self.new_id("boot-")
        # Later runs know the bundles already; installing them again is slow and changes nothing, so few of them do.
        installs = bundles.BUNDLES if meta is None or self.rng.random() < 0.1 else ()
        boot = ev.Boot(
            event_id=self.new_id("e"), boot_id=boot_id, isolation="S3", bundles=installs, policy=self._policy()
        )
        self.queue.append(boot)
        self.person.booted(boot_id)

    def _policy(self) -> Policy:
        mix = self.mix
        bounds: dict[str, int] = {}
        if mix.kept_max:
            bounds = {f"{kind}_kept_max": mix.kept_max for kind in ("calls", "interactions", "sessions", "surfaces")}
            bounds |= {f"{kind}_kept_bytes_max": mix.kept_max * 500 for kind in ("calls", "interactions", "sessions")}
        if mix.audit_rows_max:
            bounds["audit_rows_max"] = mix.audit_rows_max
        return Policy(
            workers_max=mix.workers_max,
            workers_starting_max=mix.starting_max,
            restarts_max=mix.restarts_max,
            **bounds,  # type: ignore[arg-type]
        )

    def crash(self) -> None:
        """SIGKILL: with the supervisor go its workers, its Host, its links and everything that was not committed."""
        self.engine = None
        self.kill_point = None
        self.queue.clear()
        self.frozen = False
        self.held.clear()
        self.operator.late.clear()
        for process in list(self.processes.values()):
            process.die("supervisor killed", report=False)
        for link in list(self.links.values()):
            link.to_runtime.clear()
            link.agent.cut(link)

    def _on_fault(self, event: ev.AnyEvent, error: Exception) -> None:
        raise CoreFault(f"{type(event).__name__} raised {error!r}") from error

    def _hook(self, name: str) -> None:
        if self.kill_point == name:
            raise Crash(name)

    @property
    def now(self) -> ev.Now:
        return ev.Now(wall_ms=self.wall_ms, steady_ms=self.steady_ms)

    def pump(self) -> None:
        """One batch through the engine, then its effects; perhaps killed on the way."""
        assert self.engine is not None
        count = min(len(self.queue), self.rng.choice((1, 1, 2, 8)))
        batch = [self.queue.popleft() for _ in range(count)]
        if any(isinstance(event, ev.Wake) for event in batch):
            self.awake = False
        torn = self._plan_kill()
        try:
            outcome = self.engine.run(batch, self.now)
        except Crash as killed:
            self.happened[f"crash_{str(killed).replace('-', '_')}"] += 1
            self.crash()
            return
        self.due = outcome.next_due
        self.retry_at_ms = None if outcome.retry_in_ms is None else self.steady_ms + outcome.retry_in_ms
        for number, effect in enumerate(outcome.effects):
            if number == torn:
                self.happened["torn_effects"] += 1
                self.crash()
                return
            self._execute(effect)
            if self.engine is None:
                return
        self._wake_if_due()

    def _plan_kill(self) -> int | None:
        mix, rng = self.mix, self.rng
        self.kill_point = None
        if rng.random() < mix.crash_before_commit:
            self.kill_point = "before-commit"
        elif rng.random() < mix.crash_after_commit:
            self.kill_point = "after-commit"
        return rng.randint(0, 3) if rng.random() < mix.torn_effects else None

    def _execute(self, effect: fx.AnyEffect) -> None:
        if self.frozen and isinstance(effect, _TO_HOST):
            self.held.append(effect)
            return
        match effect:
            case fx.SendAgent(link_id=link_id, frames=frames):
                if (link := self.links.get(link_id)) is not None:
                    link.to_agent.extend(frames)
            case fx.CloseAgent(link_id=link_id, code=code):
                if (link := self.links.get(link_id)) is not None:
                    link.to_agent.append((CLOSE, code))
            case fx.SendWorker(instance_id=instance_id, incarnation=incarnation, messages=messages):
                if (process := self.processes.get((instance_id, incarnation))) is not None:
                    process.to_worker.extend(messages)
            case fx.StartWorker():
                process = Process(self, effect.instance_id, effect.incarnation, effect.app_scope)
                self.processes[process.key] = process
            case fx.StopWorker(instance_id=instance_id, incarnation=incarnation):
                if (process := self.processes.get((instance_id, incarnation))) is not None:
                    process.stop(effect.reason, effect.grace_ms)
            case fx.ReplyHost(reply_to=reply_to):
                body = {
                    "accepted": effect.accepted,
                    "code": effect.code,
                    "message": effect.message,
                    "detail": effect.detail,
                }
                self.person.reply(reply_to, body)
            case fx.HostDelta(revision=revision, changes=changes):
                self.person.delta(revision, changes)
            case fx.ArchiveAudit():
                self.operator.archive(effect)
            case fx.Halt():
                self.crash()
            case fx.SaveBlob():
                pass

    def last_words(self, process: Process) -> None:
        """A process that ends in order: what it sent arrives."""
        while process.to_runtime:
            process.carry()

    # time

    def _wake_if_due(self) -> None:
        wall, steady = self.due
        is_due = (wall is not None and wall <= self.wall_ms) or (steady is not None and steady <= self.steady_ms)
        if is_due and not self.awake and self.retry_at_ms is None and self.engine is not None:
            self.awake = True
            self.queue.append(ev.Wake(event_id=self.new_id("e")))

    def pass_time(self, ms: int) -> None:
        self.wall_ms += ms
        self.steady_ms += ms
        for process in list(self.processes.values()):
            if process.kill_at_ms is not None and process.kill_at_ms <= self.steady_ms:
                process.die("hung" if process.state == "hung" else "stopped")
        self._wake_if_due()

    def suspend(self, ms: int) -> None:
        """The machine sleeps: the wall clock goes on, the steady clock and everybody stand still."""
        self.happened["suspend"] += 1
        self.wall_ms += ms
        self._wake_if_due()

    def jump_wall(self, ms: int) -> None:
        self.wall_ms = max(START_WALL_MS - 3_600_000, self.wall_ms + ms)
        self._wake_if_due()

    # steps

    @property
    def can_pump(self) -> bool:
        if self.engine is None:
            return False
        return bool(self.queue) or (self.retry_at_ms is not None and self.retry_at_ms <= self.steady_ms)

    def step(self, index: int) -> None:
        """One step of the run, drawn from ``(seed, index)``."""
        self.rng.seed(self.seed * 1_000_003 + index)
        if self.engine is None:
            self._while_down()
            return
        choices = self._choices()
        pick = self.rng.random() * sum(weight for weight, _ in choices)
        for weight, deed in choices:
            pick -= weight
            if pick <= 0:
                deed()
                return

    def _choices(self) -> list[tuple[float, Callable[[], None]]]:
        mix, rng = self.mix, self.rng
        choices: list[tuple[float, Callable[[], None]]] = [(1.0, self._time_passes)]
        if self.frozen:
            choices.append((0.5, self.thaw))
        else:
            choices += [(2.0, self._agent_acts), (1.5, self.person.act), (mix.freeze * 20, self._freeze)]
            if links := [link for link in self.links.values() if link.to_runtime]:
                choices.append((4.0, lambda: self._carry(rng.choice(links))))
            if hearing := [link for link in self.links.values() if link.to_agent]:
                choices.append((4.0, lambda: self._hear(rng.choice(hearing))))
        if self.can_pump:
            choices.append((10.0, self.pump))
        if self.operator.late:
            choices.append((0.5, self.operator.answer_late))
        processes = list(self.processes.values())
        if spawning := [p for p in processes if p.state == "spawning"]:
            choices.append((3.0, lambda: rng.choice(spawning).spawn()))
        if running := [p for p in processes if p.state == "running"]:
            choices.append((8.0, lambda: self._worker_acts(running)))
        if talking := [p for p in processes if p.to_runtime]:
            choices.append((6.0, lambda: rng.choice(talking).carry()))
        choices.append(
            (mix.wall_jump * 20, lambda: self.jump_wall(rng.choice((-3_600_000, -300_000, 300_000, 3_600_000))))
        )
        choices.append((mix.suspend * 20, lambda: self.suspend(rng.choice((30_000, 480_000, 28_800_000)))))
        choices.append((mix.strobe * 20, self._strobe))
        # A full disk is soon given room: while it lasts, nothing else happens.
        choices.append((3.0 if self.store.full else mix.full * 20, self._toggle_full))
        choices.append((mix.write_failure * 20, self._let_a_write_fail))
        choices.append((mix.stop * 20, self._stop))
        choices.append((mix.reclaim * 20, self._reclaim))
        return choices

    def _while_down(self) -> None:
        """The supervisor is dead: time passes, then it is started again."""
        if self.rng.random() < 0.5:
            self.wall_ms += self.rng.choice((10, 1_000, 60_000, 900_000))
        self.store.full = False
        self.store.fails_in = None
        self.boot()

    def _agent_acts(self) -> None:
        self.rng.choice(self.agents).act()

    def _carry(self, link: Link) -> None:
        link.agent.carry(link)

    def _hear(self, link: Link) -> None:
        link.agent.hear(link)

    def _worker_acts(self, running: list[Process]) -> None:
        busy = [process for process in running if process.to_worker or process.todo]
        self.rng.choice(busy if busy and self.rng.random() < 0.9 else running).act()

    def _time_passes(self) -> None:
        rng = self.rng
        if self.strobes_left:
            self.happened["strobe"] += 1
            self.strobes_left -= 1
            self.jump_wall(300_000 if self.strobes_left % 2 else -300_000)
            self.pass_time(1_000)
        elif rng.random() < self.mix.long_wait:
            self.pass_time(rng.choice((5_000, 61_000, 700_000)))
        else:
            self.pass_time(rng.choice((1, 10, 50, 200, 1_000, 4_000)))

    def _strobe(self) -> None:
        """From now on the wall clock is set five minutes to and fro every second."""
        self.strobes_left = self.rng.choice((4, 20, 60))

    def _let_a_write_fail(self) -> None:
        self.store.fails_in = self.rng.choice((0, 1, 2, 5, 10, 20, 40, 80))

    def _freeze(self) -> None:
        self.happened["freeze"] += 1
        self.frozen = True

    def thaw(self) -> None:
        """The Host goes on where it stood, or is replaced by one that knows nothing and carries no link."""
        self.frozen = False
        held, self.held = self.held, []
        if self.rng.random() >= self.mix.replace_host:
            for effect in held:
                self._execute(effect)
            return
        self.happened["replace_host"] += 1
        for link in list(self.links.values()):
            link.to_agent.clear()
            link.to_runtime.clear()
            link.agent.cut(link)
        self.person.replaced()

    def _toggle_full(self) -> None:
        self.store.full = not self.store.full

    def _stop(self) -> None:
        self.submit(ev.Stopping(event_id=self.new_id("e"), reason="asked to"))

    def _reclaim(self) -> None:
        self.submit(ev.ReclaimWorkers(event_id=self.new_id("e"), count=self.rng.randint(1, 3)))

    def rest(self) -> None:
        """See ``simulation.rest``."""
        come_to_rest(self)
