"""Starts, stops, cancels and deaths at the same moment (catalogue F1, F2, F4, F7, F8, F10, F11)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable

from processes.support.agent import Agent
from processes.support.family import descendants, zombies_of
from processes.support.judge import assert_kept, settled
from processes.support.runtime import LAB, STUBBORN, Runtime
from processes.support.waiting import until, until_async

Ids = Callable[[str], str]
RACES = 24
TOGETHER = 10


def instances(runtime: Runtime, scope: str, prefix: str) -> list[dict[str, object]]:
    return [
        row
        for row in runtime.query("status")["instances"]
        if row["app_scope"] == scope and row["conversation_id"].startswith(prefix)
    ]


async def _runs(agent: Agent, call_id: str) -> bool:
    return bool((await agent.record(call_id))["status"] == "running")


async def test_f1_started_and_stopped_at_once(shared: Runtime, unique: Ids) -> None:
    """Instances are closed the moment they exist, some before, some while and some after their process starts."""
    agent = Agent(shared, unique("a"))
    await agent.connect()
    processes = {member.pid for member in descendants(shared.pid)}
    for number in range(RACES):
        await agent.call(
            "lab.hold", {"text": "x", "until_attempt": 9}, call_id=f"k-{number}", conversation=f"f1-{number}"
        )
    closed: set[object] = set()

    def close_all() -> bool:
        for row in instances(shared, "lab", "f1-"):
            if row["instance_id"] not in closed:
                closed.add(row["instance_id"])
                answer = shared.action(
                    "instance.close", f"close-{row['instance_id']}", instance_id=row["instance_id"], force=True
                )
                assert answer["accepted"], answer
        return len(closed) == RACES

    await until(close_all, 30, "every instance was seen and closed")
    await agent.until(lambda: len(agent.results) == RACES, 30, "every call has ended")
    assert {result["error"]["code"] for result in agent.results.values()} == {"app_closed"}
    await until(lambda: {member.pid for member in descendants(shared.pid)} <= processes, 20, "no stray is left")
    await until(lambda: not zombies_of(shared.pid), 2, "nobody that has ended waits to be reaped")
    assert shared.is_up
    await settled(shared, agent)
    await agent.leave()
    assert_kept(shared, agent)


async def test_f2_never_started_again_between_term_and_kill(shared: Runtime, unique: Ids) -> None:
    shared.add(STUBBORN)
    agent = Agent(shared, unique("a"))
    await agent.connect()
    await agent.call("stubborn.block", {"text": "x"}, call_id=unique("k"))
    await agent.until(lambda: unique("k") in agent.progress, 20, "it is blocked")
    (row,) = instances(shared, "stubborn", agent.conversation)
    shared.action("instance.close", unique("close"), instance_id=row["instance_id"], force=True)
    assert (await agent.result(unique("k")))["error"]["code"] == "app_closed"
    pid = row["worker_pid"]
    assert isinstance(pid, int)
    await until(lambda: not os.path.exists(f"/proc/{pid}"), 10, "it is killed at the end of its grace")

    def kinds() -> list[str]:
        return [r["kind"] for r in shared.audit()[0] if row["instance_id"] in r["subjects"]]

    await until(lambda: "worker.exited" in kinds(), 5, "its end is on record")
    assert kinds().count("worker.starting") == 1
    await settled(shared, agent)
    await agent.leave()
    assert_kept(shared, agent)


async def test_f4_a_worker_does_not_go_with_the_thread_that_was_there_at_its_start(
    shared: Runtime, unique: Ids
) -> None:
    agent = Agent(shared, unique("a"))
    await agent.connect()
    await agent.call("lab.echo", {"text": "x"}, call_id=unique("k"))
    await agent.result(unique("k"))
    pid = shared.worker("lab", agent.conversation)
    for number in range(3):  # each of them runs in the daemon's pool of threads
        answer = shared.action(
            "runtime.backup", unique(f"b{number}"), path=str(shared.home.parent / f"{unique('b')}-{number}")
        )
        assert answer["accepted"], answer
    await agent.call("lab.echo", {"text": "y"}, call_id=unique("k2"))
    assert (await agent.result(unique("k2")))["status"] == "completed"
    assert shared.worker("lab", agent.conversation) == pid
    await settled(shared, agent)
    await agent.leave()


async def test_f7_two_at_once_and_what_a_dead_one_left(own: Runtime) -> None:
    """One wins; the other says who has the home. Sockets and locks of a killed one are in nobody's way."""
    own.start()
    own.kill()
    rival = Runtime.__new__(Runtime)
    rival.__dict__.update(own.__dict__)
    first, second = own.begin(), rival.begin()
    await until(lambda: first.poll() is not None or second.poll() is not None, 20, "one of them gives up")
    loser = first if first.poll() is not None else second
    winner = second if loser is first else first
    assert loser.wait() == 1
    await until(lambda: own.facts().get("pid") == winner.pid, 30, "the other is ready")
    said = [line for line in own.errors().splitlines() if "store_locked" in line]
    assert len(said) == 1
    assert str(winner.pid) in said[0]
    own.process = winner
    third = await asyncio.to_thread(own.cli, "up", "--no-open", "--port", "0")
    assert third.returncode == 1
    assert f"already running for {own.home} (pid {winner.pid})" in third.stderr
    assert own.query("status")["pid"] == winner.pid
    assert own.stop() == 0
    own.assert_clean()


async def test_f8_cancel_and_result_in_the_same_moment(shared: Runtime, unique: Ids) -> None:
    seed = int(os.environ.get("LINEUP_SEED", "0")) or random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    agent = Agent(shared, unique("a"))
    await agent.connect()
    await agent.call("lab.echo", {"text": "warm"}, call_id=unique("warm"))
    await agent.result(unique("warm"))
    for number in range(40):
        call_id = f"{unique('k')}-{number}"
        await agent.call(rng.choice(["lab.echo", "lab.once", "lab.slowly"]), {"text": "x"}, call_id=call_id)
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)
        await agent.say("tool.cancel", {"call_id": call_id})
    await settled(shared, agent)
    await agent.until(lambda: len(agent.results) == 41, 10, "every result")
    ends = {result["status"] for result in agent.results.values()}
    assert ends <= {"completed", "cancelled"}, ends
    await agent.leave()
    assert_kept(shared, agent)


async def test_f10_what_is_in_front_dies_or_is_removed_with_a_call_in_flight(own: Runtime) -> None:
    own.start()
    own.add(LAB)
    agent = Agent(own, "a")
    await agent.connect()
    await agent.call("lab.keep", {"text": "x"}, call_id="front")  # in front, and waiting for the person's consent
    await until(lambda: own.query("interactions")["interactions"], 20, "the person is asked")
    (lab,) = instances(own, "lab", agent.conversation)
    assert own.query("snapshot")["conversations"][0]["focus"][-1] == lab["instance_id"]
    os.kill(int(str(lab["worker_pid"])), signal.SIGKILL)
    await until(
        lambda: instances(own, "lab", agent.conversation)[0]["worker_pid"] not in (None, lab["worker_pid"]),
        20,
        "it is back",
    )
    assert own.query("snapshot")["conversations"][0]["focus"][-1] == lab["instance_id"]
    assert own.action("apps.remove", "remove", app_scope="lab")["accepted"]
    result = await agent.result("front")
    assert result["status"] in ("failed", "cancelled"), result
    conversation = own.query("snapshot")["conversations"][0]
    assert conversation["focus"] == [conversation["chat_instance_id"]]
    await until(lambda: not own.query("status")["workers"]["live"], 10, "its process is gone")
    await settled(own, agent)
    assert_kept(own, agent)
    await agent.leave()
    assert own.stop() == 0
    own.assert_clean()


async def test_f11_many_workers_killed_together(shared: Runtime, unique: Ids) -> None:
    """No zombie after two seconds, and every call of theirs goes on in the next process."""
    agent = Agent(shared, unique("a"))
    await agent.connect()
    for number in range(TOGETHER):
        await agent.call(
            "lab.hold", {"text": "x", "until_attempt": 2}, call_id=f"k-{number}", conversation=f"f11-{number}"
        )
    for number in range(TOGETHER):
        await until_async(lambda number=number: _runs(agent, f"k-{number}"), 40, f"k-{number} runs")
    pids = [row["worker_pid"] for row in instances(shared, "lab", "f11-")]
    assert len(pids) == TOGETHER
    for pid in pids:
        os.kill(int(str(pid)), signal.SIGKILL)
    await until(
        lambda: not zombies_of(shared.pid) and not any(os.path.exists(f"/proc/{p}") for p in pids), 2, "no zombie"
    )
    await agent.until(lambda: len(agent.results) == TOGETHER, 60, "every call goes on")
    assert {result["result"]["attempt"] for result in agent.results.values()} == {2}
    await settled(shared, agent)
    await agent.leave()
    assert_kept(shared, agent)
