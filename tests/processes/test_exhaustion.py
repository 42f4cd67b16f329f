"""What runs out on the supervisor's own side (catalogue E5): whoever comes then waits, whoever runs goes on."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import psutil

from processes.support.agent import Agent
from processes.support.judge import assert_kept, settled
from processes.support.runtime import LAB, Runtime
from processes.support.waiting import until


async def test_e5_no_descriptor_is_left_for_another_worker(own: Runtime) -> None:
    own.start()
    own.add(LAB)
    agent = Agent(own, "a")
    await agent.connect()
    await agent.call("lab.echo", {"text": "x"}, call_id="before", conversation="c-1")
    assert (await agent.result("before"))["status"] == "completed"
    worker = own.worker("lab", "c-1")
    soft, hard = resource.prlimit(own.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(own.pid, resource.RLIMIT_NOFILE, (highest_descriptor(own.pid) + 2, hard))
    await agent.call("lab.echo", {"text": "x"}, call_id="waits", conversation="c-2")
    # Crashes as many would have closed the instance, and what its MiniApp has kept in it.
    await until(lambda: len(failed_starts(own)) > 6, 20, "it is tried again and again")
    assert all("Too many open files" in row["detail"] for row in failed_starts(own))
    await agent.call("lab.echo", {"text": "y"}, call_id="beside", conversation="c-1")
    assert (await agent.result("beside"))["status"] == "completed"
    assert own.worker("lab", "c-1") == worker
    assert own.is_up
    resource.prlimit(own.pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert (await agent.result("waits", 20))["status"] == "completed"
    await agent.call("lab.echo", {"text": "z"}, call_id="after", conversation="c-2")
    assert (await agent.result("after"))["status"] == "completed"
    await settled(own, agent)
    assert_kept(own, agent)
    await agent.leave()
    assert own.stop() == 0
    own.assert_clean()
    await until(lambda: not own.left(), 2, "nobody is left")


async def test_where_memory_runs_out_workers_end_and_not_the_runtime(own: Runtime) -> None:
    own.start()
    own.add(LAB)
    agent = Agent(own, "a")
    await agent.connect()
    await agent.call("lab.echo", {"text": "x"}, call_id="k", conversation="c-1")
    assert (await agent.result("k"))["status"] == "completed"
    worker = own.worker("lab", "c-1")
    assert worker is not None
    inside = [child.pid for child in psutil.Process(worker).children(recursive=True)] or [worker]
    assert oom_score_adj(inside[-1]) == 1_000, "the kernel takes whose code is a MiniApp's first"
    assert oom_score_adj(own.pid) == oom_score_adj(os.getpid())
    await agent.leave()
    assert own.stop() == 0


def oom_score_adj(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def failed_starts(own: Runtime) -> list[dict[str, Any]]:
    return [row for row in own.log() if row.get("reason") == "start_failed"]


def highest_descriptor(pid: int) -> int:
    return max(map(int, os.listdir(f"/proc/{pid}/fd")))
