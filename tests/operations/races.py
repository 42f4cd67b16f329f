"""Races from a seed: deeds in random order around the firing instant, the supervisor killed before or after commits.

A deed is what somebody wants; it is said again after a crash, under the same ids, as the contract asks of agents and
Hosts. ``Race.settle`` lets time pass to the end, and ``Race.check`` is the verdict, over all that was ever said.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from functools import cache
from typing import Any

from core.harness import AT, Body
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import CALLS, INSTANCES, OPERATIONS, OUTBOX_ITEMS, SESSIONS
from operations.focus import Focus

SECONDS = 60
LIVES, BEFORE, AFTER = "lives", "dies before the commit", "dies after the commit"
MOSTLY_LIVES = (LIVES, LIVES, LIVES, BEFORE, AFTER)
RESULT = "lineup.v1.tool.result"
Deed = Callable[[], ev.AnyEvent]


@cache
def _prepared(running: bool, worker: bool) -> bytes:
    """A session that runs, or a conversation in which none does; with its worker, or without; pickled."""
    core = Focus()
    core.call_accepted("lab.direct", call_id="k-lab")
    core.start("lab").take("k-lab")
    core.call_accepted("confirm", {"title": "T", "prompt": "P"}, call_id="k-ask")
    if running:
        core.begin(SECONDS, call_id="k-first")
        if worker:
            core.start("pomodoro").take("k-first")
    core.bundles = ()  # known from here on; installing them at every boot is slow and changes nothing
    return pickle.dumps(core)


class Race:
    """One run. ``fates`` are drawn for each event."""

    def __init__(self, seed: int, *, running: bool = True, fates: tuple[str, ...] = MOSTLY_LIVES) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.core: Focus = pickle.loads(_prepared(running, self.rng.random() < 0.5))
        self.fates = fates
        self.link = "a1"
        self.starts = ["k-first"] if running else []
        self.interrupts: list[str] = []
        if running:
            # Somewhere around the end: the deadline may be passed by the first deed, by the second, or by none.
            self.core.wall_ms = self.core.operation().ends_ms + self.rng.choice((-3, -1, 0, 0, 1, 40))
            self.core.steady_ms += SECONDS * 1000

    # deeds

    def due(self) -> Deed:
        return lambda: ev.Wake(event_id=self.core.new_id())

    def start(self, call_id: str) -> Deed:
        self.starts.append(call_id)
        return self._call("pomodoro.start", call_id, {"duration_seconds": SECONDS})

    def interrupt(self, call_id: str) -> Deed:
        self.interrupts.append(call_id)
        return self._call("pomodoro.interrupt", call_id, {})

    def leave(self) -> Deed:
        """A person closes it, or goes elsewhere."""
        pomodoro, lab = (self.core.instance(scope).instance_id for scope in ("pomodoro", "lab"))
        name, args = self.rng.choice(
            (
                ("instance.close", {"instance_id": pomodoro}),
                ("instance.back", {"instance_id": pomodoro}),
                ("conversation.home", {"conversation_id": "c1"}),
                ("instance.front", {"instance_id": lab}),
            )
        )
        action_id = f"x-{self.rng.random()}"
        return lambda: ev.HostAction(
            event_id=self.core.new_id(), reply_to="person", action_id=action_id, actor="person", name=name, args=args
        )

    def worker_dies(self) -> Deed:
        pomodoro = self.core.instance("pomodoro")
        return lambda: ev.WorkerExited(
            event_id=self.core.new_id(),
            instance_id=pomodoro.instance_id,
            incarnation=pomodoro.incarnation,
            reason="killed",
        )

    def _call(self, tool_id: str, call_id: str, input_: Body) -> Deed:
        payload = {"call_id": call_id, "tool_id": tool_id, "inventory_revision": self.core.revision, "input": input_}
        frame = {"type": "lineup.v1.tool.call", "message_id": f"m-{call_id}", "sent_at": AT, "payload": payload}
        frame["conversation_id"] = "c1"
        return lambda: ev.AgentFrame(event_id=self.core.new_id(), link_id=self.link, frame=frame)

    # the run

    def run(self, *deeds: Deed) -> None:
        order = list(deeds)
        self.rng.shuffle(order)
        for deed in order:
            self._do(deed)
            if self.rng.random() < 0.3:
                self._do(deed)  # said twice: the first answer was slow
            self.core.wall_ms += self.rng.choice((0, 0, 1, 2))

    def _do(self, deed: Deed) -> None:
        fate = self.rng.choice(self.fates)
        if fate == LIVES:
            self.core.do(deed())
            return
        if fate == BEFORE:
            self.core.do_without_commit(deed())
        else:
            self.core.do(deed(), lose_effects=True)
        self._reboot()
        self.core.do(deed())

    def _reboot(self) -> None:
        if self.rng.random() < 0.2:
            self.core.boot(lose_effects=True)  # dies again while it comes up
        self.core.boot()
        self.link = self.core.new_id()
        self.core.connect("a1", self.link)

    def settle(self) -> None:
        """A last boot, so that no effect is lost for good; then everything ends, or comes to its time."""
        self._reboot()
        self.core.advance(SECONDS + 1)

    def check(self) -> None:
        """One terminal state, one result in the outbox, the same answer on every resend; nothing half done."""
        for call_id in {*self.starts, *self.interrupts}:
            self._check_call(call_id)
        rows = [row for _, row in self.core.scan(OPERATIONS)]
        accepted = {call_id for call_id in self.starts if self.record(call_id).status == "completed"}
        assert {row.source_call_id for row in rows} == accepted
        for row in rows:
            self._check_operation(row)
        for call_id in self.interrupts:
            self._check_interrupt(call_id, rows)
        pomodoros = [i for _, i in self.core.scan(INSTANCES) if i.app_scope == "pomodoro"]
        assert len(pomodoros) == len(rows)
        assert {i.state for i in pomodoros} <= {"closed"}
        assert {self.core.row(SESSIONS, i.session_id).state for i in pomodoros} <= {"read_only"}
        assert self.core.front() in ("chat", "lab")
        assert self.record("k-ask").status == "waiting_for_app", "what belongs to others was not touched"

    def record(self, call_id: str) -> Any:
        return self.core.row(CALLS, "a1", call_id)

    def _check_call(self, call_id: str) -> None:
        record = self.record(call_id)
        assert record.status in ("completed", "rejected"), record
        results = self.core.results(call_id)
        assert len(results) == 1, f"{call_id} has the results {results}"
        kept = [
            i
            for _, i in self.core.scan(OUTBOX_ITEMS, "a1")
            if i.payload.get("call_id") == call_id and "status" in i.payload
        ]
        assert len(kept) == 1, f"{call_id} stands {len(kept)} times in the outbox"
        tool, input_ = record.tool_id, record.input
        again = self.core.call(tool, input_, call_id=call_id, link=self.link)
        assert again["accepted"]
        assert (again["detail"]["status"], again["detail"].get("result")) == (record.status, record.result)
        assert len(self.core.results(call_id)) == 1

    def _check_operation(self, row: Any) -> None:
        assert row.state in ("completed", "interrupted"), row
        ends = [
            a
            for kind in ("completed", "interrupted")
            for a in self.core.audited(f"operation.{kind}")
            if row.operation_id in a.subjects
        ]
        assert [a.kind for a in ends] == [f"operation.{row.state}"]
        result = self.record(row.source_call_id).result
        assert (result["state"], result.get("interruption_reason")) == (row.state, row.interruption_reason)
        assert (row.state == "completed") == (row.ended_ms >= row.ends_ms), (
            "the deadline wins from ends_at on, and never before"
        )

    def _check_interrupt(self, call_id: str, rows: list[Any]) -> None:
        receipt = self.record(call_id).result
        by_id = {row.operation_id: row for row in rows}
        match receipt["status"]:
            case "interrupted":
                row = by_id[receipt["operation_id"]]
                assert (row.state, row.interruption_reason) == ("interrupted", "interrupted_by_agent")
            case "operation_already_final":
                assert receipt["operation_id"] in by_id
            case _:
                assert receipt == {"status": "no_active_focusing_operation"}
