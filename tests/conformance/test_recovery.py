"""``kill -9`` of supervisor, workers or both in the middle of a full screen: all of it is there again, in its order.

One conversation with four MiniApps in its focus stack, a half-typed answer, a board of 500 elements, a running
countdown and an instance that sleeps without a process. It is killed in three ways, one after the other, then
brought to its end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from conformance.support.stages import BUNDLE
from processes.support.agent import Agent
from processes.support.operator import Operator
from processes.support.runtime import Runtime, runtime
from processes.support.waiting import until, until_async

Body = dict[str, Any]
STACK = ["chat", "task-dashboard", "whiteboard", "pomodoro"]
CONVERSATION, ELSEWHERE = "c-full", "c-asleep"
ELEMENTS = {f"e{n}": {"type": "rect", "x": n % 25 * 40, "y": n // 25 * 30, "w": 30, "h": 20} for n in range(500)}
FORM = {"title": "You", "prompt": "Who are you?", "fields": [{"id": "name", "label": "Name", "type": "text"}]}
DRAFT = {"values": {"name": "Ad"}}
OPEN_CALLS = ("k-task", "k-board", "k-focus", "k-ask", "k-form")
COMES_S = 30.0


class Screen:
    """The Runtime with all of that open, and how it looks from outside."""

    def __init__(self, made: Runtime) -> None:
        self.runtime = made
        self.agent = Agent(made, "full")
        self._actions = 0

    async def query(self, name: str, **args: Any) -> Any:
        return await asyncio.to_thread(self.runtime.query, name, **args)

    async def act(self, name: str, **args: Any) -> Any:
        """As a person; must be accepted."""
        self._actions += 1
        number = self._actions

        def ask() -> Body:
            with Operator(self.runtime.home, "hostshell", is_up=lambda: self.runtime.is_up) as peer:
                return peer.action(name, f"full-{number}", **args)

        answer = await asyncio.to_thread(ask)
        assert answer["accepted"], answer
        return answer.get("detail")

    async def call(self, call_id: str, tool_id: str, input_: Body, conversation: str = CONVERSATION) -> None:
        message_id = await self.agent.call(tool_id, input_, call_id=call_id, conversation=conversation)
        receipt = await self.agent.receipt(message_id)
        assert receipt["accepted"], receipt

    async def fill(self) -> None:
        await self.agent.connect()
        await self.call("k-seen", "probe.echo", {"text": "x"}, ELSEWHERE)
        await self.agent.result("k-seen", COMES_S)
        ask = {"request": {"kind": "input", **FORM}}
        await self.call("k-ask", "probe.ask", ask)
        await self.call("k-task", "task-dashboard.open", {"task_id": "t1", "title": "Write report"})
        await self.call("k-half", "task-dashboard.update", {"task_id": "t1", "progress": 0.5})
        await self.agent.result("k-half", COMES_S)
        await self.call("k-board", "whiteboard.open", {"board_id": "b1", "title": "Plan", "elements": ELEMENTS})
        await until_async(self.is_drawn, COMES_S, "the board is open")
        await self.call("k-focus", "pomodoro.start", {"duration_seconds": 3600, "activity": "deep work"})
        await self.call("k-form", "input", FORM)
        await until_async(self.both_questions, COMES_S, "both questions wait")
        for question in await self.both_questions():
            await self.act("interaction.present", interaction_id=question["interaction_id"])
            await self.act("interaction.draft", interaction_id=question["interaction_id"], draft=DRAFT)
        await until_async(self.at_rest, COMES_S, "everybody is in their place, and one sleeps")

    async def is_drawn(self) -> bool:
        return any(row["app_scope"] == "whiteboard" for row in (await self.query("snapshot"))["surfaces"])

    async def both_questions(self) -> list[Body]:
        found: list[Body] = (await self.query("interactions"))["interactions"]
        return found if len(found) == 2 else []

    async def at_rest(self) -> bool:
        """The screen's owner has a worker, whoever has an open call has taken it over and saved it,
        and the sleeper has none."""
        rows = (await self.query("status"))["instances"]
        asleep = [row for row in rows if (row["app_scope"], row["conversation_id"]) == ("probe", ELSEWHERE)]
        front = [row for row in rows if row["app_scope"] == "pomodoro"]
        calls = [await self.query("call", call_id=call_id) for call_id in OPEN_CALLS if call_id != "k-form"]
        saved = {row["instance_id"] for row in (await self.query("snapshot"))["snapshots"]}
        keepers = {row["instance_id"] for row in rows if row["app_scope"] in STACK[1:]}
        return (
            keepers <= saved
            and [(row["state"], row["worker_pid"]) for row in asleep] == [("suspended", None)]
            and all(row["worker_pid"] for row in front)
            and all(call["status"] == "running" for call in calls)
        )

    async def picture(self) -> Body:
        """All that must be there again. Times and numbers of attempts are not in it."""
        snapshot = await self.query("snapshot")
        instances = {row["instance_id"]: row for row in snapshot["instances"]}
        stacks = {row["conversation_id"]: row["focus"] for row in snapshot["conversations"]}
        (board,) = [row for row in snapshot["surfaces"] if row["app_scope"] == "whiteboard"]
        surface = await self.query("surface", surface_id=board["surface_id"])
        (operation,) = snapshot["operations"]
        return {
            "stack": [(id_, instances[id_]["app_scope"]) for id_ in stacks[CONVERSATION]],
            "instances": sorted((id_, row["app_scope"], row["conversation_id"]) for id_, row in instances.items()),
            "questions": sorted(snapshot["interactions"], key=lambda row: str(row["interaction_id"])),
            "board": (surface["surface_id"], surface["status"], surface["revision"], surface["state"]),
            "saved": {
                scope: row["state"]
                for row in snapshot["snapshots"]
                if (scope := instances[row["instance_id"]]["app_scope"]) != "probe"  # it notes each attempt
            },
            "operation": operation,
            "open calls": sorted(call["call_id"] for call in snapshot["calls"]),
            "ended": sorted(self.agent.results),
        }

    async def workers(self) -> list[int]:
        return [row["worker_pid"] for row in (await self.query("status"))["instances"] if row["worker_pid"]]

    async def kill_workers(self) -> None:
        for pid in await self.workers():
            os.kill(pid, signal.SIGKILL)

    async def kill_supervisor(self) -> None:
        await asyncio.to_thread(self.runtime.kill)
        await self.agent.cut()
        assert await self.runtime.start_async(), self.runtime.errors()
        await self.agent.connect()


@pytest.fixture(scope="module")
def daemon() -> Iterator[Runtime]:
    with runtime("[workers]\nidle_ms = 500\n[restarts]\nmax = 50\n") as made:
        made.start()
        made.add(BUNDLE)
        yield made
        assert made.stop() == 0, made.errors()
        made.assert_clean()


@pytest.fixture(scope="module")
def shared_screen(daemon: Runtime) -> Screen:
    return Screen(daemon)


@pytest.fixture
async def screen(shared_screen: Screen) -> AsyncIterator[Screen]:
    """Filled by the first test; each connects anew, because links belong to one test's loop."""
    if not shared_screen.agent.results:
        await shared_screen.fill()
    else:
        await shared_screen.agent.connect()
    yield shared_screen
    await shared_screen.agent.leave()


@pytest.mark.conformance("03-9.11")
@pytest.mark.parametrize("who", ["workers", "supervisor", "both"])
async def test_everything_is_there_again(screen: Screen, who: str) -> None:
    await until_async(screen.at_rest, COMES_S, "everybody is in their place, and one sleeps")
    before = await screen.picture()
    assert [scope for _, scope in before["stack"]] == STACK
    assert [question["draft"] for question in before["questions"]] == [DRAFT, DRAFT]
    assert len(before["board"][3]["elements"]) == 500
    assert before["open calls"] == sorted(OPEN_CALLS)
    killed = await screen.workers()
    if who in ("workers", "both"):
        await screen.kill_workers()
    if who in ("supervisor", "both"):
        await screen.kill_supervisor()

    async def by_new_workers() -> bool:
        return not set(killed) & set(await screen.workers()) and await screen.at_rest()

    await until_async(by_new_workers, COMES_S, "everybody is in their place again")
    assert await screen.picture() == before
    assert sorted(screen.agent.results) == ["k-half", "k-seen"], "nothing pretends to be complete"


@pytest.mark.conformance("03-9.11")
async def test_then_each_comes_to_its_end(screen: Screen) -> None:
    """What was recovered is alive: answers, updates and ends reach their owners, and the stack unwinds in order."""
    agent = screen.agent
    for question in await screen.both_questions():
        answer = {"values": {"name": "Ada"}}
        await screen.act("interaction.answer", interaction_id=question["interaction_id"], result=answer)
    assert (await agent.result("k-form", COMES_S))["result"] == {"values": {"name": "Ada"}}
    assert (await agent.result("k-ask", COMES_S))["result"]["result"] == {"values": {"name": "Ada"}}
    await screen.call("k-stop", "pomodoro.interrupt", {})
    assert (await agent.result("k-focus", COMES_S))["result"]["state"] == "interrupted"
    await screen.call("k-look", "whiteboard.submit", {"board_id": "b1", "request": "summary"})
    assert (await agent.result("k-look", COMES_S))["result"]["summary"]["elements"] == 500
    await screen.call("k-done", "task-dashboard.update", {"task_id": "t1", "status": "completed"})
    assert (await agent.result("k-task", COMES_S))["result"] == {"status": "completed"}
    (board,) = [row for row in (await screen.query("snapshot"))["instances"] if row["app_scope"] == "whiteboard"]
    await screen.act("instance.close", instance_id=board["instance_id"], force=True)
    await until(lambda: set(OPEN_CALLS) <= set(agent.results), COMES_S, "every call has its one result")
    snapshot = await screen.query("snapshot")
    (stack,) = [row["focus"] for row in snapshot["conversations"] if row["conversation_id"] == CONVERSATION]
    scopes = {row["instance_id"]: row["app_scope"] for row in snapshot["instances"]}
    assert [scopes[id_] for id_ in stack] == ["chat"]
    await screen.call("k-again", "probe.seen", {}, ELSEWHERE)
    assert (await agent.result("k-again", COMES_S))["result"] == {"seen": ["k-seen 1"]}, (
        "the sleeper wakes where it was"
    )
