"""MiniApps that take all they can get: each is stopped at a limit that has a name, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from hostile.support.stage import Stage, assert_harmless
from processes.support.family import members
from processes.support.waiting import until


async def assert_named(stage: Stage, call_id: str, reason: str, limit: str) -> None:
    """The error, the audit and the log name what was exceeded."""
    error = (await stage.agent.result(call_id))["error"]
    assert error["code"] == "outcome_unknown", error
    assert error["detail"] == {"reason": reason}
    assert limit in error["message"]
    exits = await stage.audited("worker.exited", call_id)
    assert exits[0]["detail"]["reason"] == reason
    assert limit in exits[0]["detail"]["detail"]
    logged = [row for row in stage.runtime.log() if row.get("reason") == reason and limit in row.get("detail", "")]
    assert logged


async def test_ten_gigabytes_of_memory(on_confined: Stage) -> None:
    stage = on_confined
    calls: list[str] = []

    async def attack() -> None:
        calls.append(await stage.begin("hungry.memory"))
        await stage.agent.result(calls[-1])

    await assert_harmless(stage, attack)
    await assert_named(stage, calls[-1], "limit", "memory_bytes")


async def test_memory_that_is_refused_and_given_back_ends_nobody(on_sandboxed: Stage) -> None:
    found = await on_sandboxed.completed("hungry.caught")
    assert found["stopped_at_mib"] is not None
    assert found["stopped_at_mib"] <= 128


async def test_a_thousand_threads(on_confined: Stage) -> None:
    """Refused at once where RLIMIT_NPROC counts; seen from outside and ended where it does not (root, S2)."""
    stage = on_confined
    call_id = await stage.begin("hungry.threads")
    payload = await stage.agent.result(call_id)
    if payload["status"] == "completed":
        assert payload["result"]["started"] <= 16
    else:
        await assert_named(stage, call_id, "limit", "threads")


async def test_all_processors(on_confined: Stage) -> None:
    """It is slowed down to its share, which the audit names once."""
    stage = on_confined
    call_id = ""

    async def attack() -> Any:
        nonlocal call_id
        call_id = await stage.begin("hungry.processor", {"seconds": 1.6})
        return await stage.agent.result(call_id)

    payload = await assert_harmless(stage, attack)
    assert payload["status"] == "completed", payload
    # A second's worth at once and what four threads take until they are looked at, 0.4 s at most; then a tenth of a
    # processor: more than three seconds for what takes 1.6 on one processor and half of that on two.
    assert payload["result"]["took_s"] > 2.5
    rows = await stage.audited("worker.throttled", call_id)
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)  # then others may have slowed it down to its share before us
    assert [row["detail"]["limit"] for row in rows] == ["cpu_share"] or (is_busy and not rows)


LIE = "the audit says that all is well"


async def test_a_gigabyte_of_lies_on_stdout(on_sandboxed: Stage) -> None:
    stage = on_sandboxed
    call_id = ""

    async def attack() -> Any:
        nonlocal call_id
        call_id = await stage.begin("hungry.output", {"bytes": 1_000_000_000, "lie": LIE})
        return await stage.agent.result(call_id, 60)

    payload = await assert_harmless(stage, attack)
    assert payload["status"] == "completed", payload
    rows = await stage.audited("worker.throttled", call_id)
    assert [row["detail"]["limit"] for row in rows] == ["stdout_bytes_per_s"]
    log = stage.runtime.home / "logs" / "apps" / "hungry.log"
    raw = log.read_bytes()
    assert len(raw) < 9 * 1024 * 1024
    lines = [json.loads(line) for line in raw.decode().splitlines()]
    assert {line["app_scope"] for line in lines} == {"hungry"}
    assert not [line for line in lines if LIE in line.get("note", "")], "what it prints is text, never a line of ours"
    assert [line for line in lines if "stdout_bytes_per_s" in line.get("note", "")]
    assert not any(code in raw for code in (b"\x1b", b"\r", b"\x00", b"\x08", "\u202e".encode(), "\u2028".encode()))
    others = [row for row in stage.runtime.log() if LIE in json.dumps(row)]
    assert others == []


async def test_files_descriptors_and_tmp(on_confined: Stage) -> None:
    stage = on_confined
    has_own_tmp = stage.runtime.facts()["isolation"] == "S3"
    found = await stage.completed("hungry.tmp", {"many": has_own_tmp})
    assert found["one_file"] == "OSError: File too large"
    if has_own_tmp:
        assert found["many"] == "OSError: No space left on device"
    found = await stage.completed("hungry.descriptors")
    assert found["opened"] < 128
    assert found["said"] == "OSError: Too many open files"


async def test_state_and_artifacts_have_quotas_and_others_still_write(on_sandboxed: Stage) -> None:
    stage = on_sandboxed
    found = await stage.completed("hungry.state")
    assert found["code"] in ("state_too_large", "state_invalid")
    assert found["saves"] < 10
    found = await stage.completed("hungry.artifacts")
    assert found == {"accepted": 10, "code": "artifact_quota_exceeded"}
    assert "surface_id" in await stage.completed("bystander.keep", {"text": "mine"})


async def test_those_that_do_not_answer_any_more(on_sandboxed: Stage) -> None:
    """One that never comes back from its handler, and one that stops reading from its link."""
    stage = on_sandboxed
    calls: list[str] = []

    async def attack() -> None:
        calls[:] = [await stage.begin(tool) for tool in ("hungry.hang", "hungry.deaf")]
        for call_id in calls:
            await stage.agent.result(call_id)

    await assert_harmless(stage, attack)
    for call_id in calls:
        await assert_named(stage, call_id, "hung", "pings went unanswered")


async def test_a_fork_bomb(on_confined: Stage) -> None:
    """Where RLIMIT_NPROC counts it stays at its limit until it is stopped; else it is ended, with all its children."""
    stage = on_confined
    call_id = ""

    async def attack() -> dict[str, Any] | None:
        nonlocal call_id
        call_id = await stage.begin("brood.bomb")
        row = await _ended_or_refused(stage, call_id)
        if row is None:
            assert len(members(stage.runtime.home)) < 60
            await stage.agent.say("tool.cancel", {"call_id": call_id})
            await stage.agent.result(call_id)
        return row

    if await assert_harmless(stage, attack) is not None:
        await assert_named(stage, call_id, "limit", "processes")


async def _ended_or_refused(stage: Stage, call_id: str) -> dict[str, Any] | None:
    """The result if the bomb was ended within a few looks of the watch."""
    try:
        await until(lambda: call_id in stage.agent.results, 5.0, "the bomb is ended")
    except AssertionError:
        return None
    return stage.agent.results[call_id]


async def test_daemons_go_with_their_worker(on_sandboxed: Stage) -> None:
    stage = on_sandboxed
    await stage.completed("brood.daemons", {"count": 5}, "d")
    worker = await asyncio.to_thread(stage.runtime.worker, "brood", "d")
    assert worker is not None
    before = {member.pid: member for member in members(stage.runtime.home)}
    answer = await asyncio.to_thread(
        stage.runtime.action, "instance.close", "close-d", instance_id=await _instance(stage, "d")
    )
    assert answer["accepted"], answer
    await until(lambda: not before[worker].is_alive(), 10, "the worker has ended")
    left = {member.pid for member in members(stage.runtime.home)}
    assert len(set(before) - left) >= 7, "bubblewrap, the worker and five daemons"


async def _instance(stage: Stage, conversation: str) -> str:
    status = await asyncio.to_thread(stage.runtime.query, "status")
    (found,) = [
        row["instance_id"]
        for row in status["instances"]
        if row["app_scope"] == "brood" and row["conversation_id"] == conversation
    ]
    return str(found)
