"""A real daemon with many focus sessions at once: start them, act at given moments, and judge what came of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lineup_protocol.times import from_rfc3339
from processes.support.agent import Agent, Frame
from processes.support.judge import assert_kept, in_thread, settled
from processes.support.operator import Operator
from processes.support.runtime import Runtime
from processes.support.waiting import until

WITHIN_S = 40.0


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def moment(at_ms: int) -> None:
    """Until the wall clock shows ``at_ms``: to act at an instant is the point, not to wait for something."""
    await asyncio.sleep(max(0, at_ms - wall_ms()) / 1000)


class Room:
    """One agent with many conversations, and one operator beside it."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self.runtime = runtime
        self.name = name
        self.agent = Agent(runtime, f"a-{name}")

    def conversation(self, n: int) -> str:
        return f"c-{self.name}-{n}"

    async def start(self, count: int, seconds: int, **more: Any) -> list[str]:
        """``count`` sessions, each in its own conversation; their call ids. All are accepted and running."""
        calls = [f"k-{self.name}-{n}" for n in range(count)]
        said = [
            await self.agent.call(
                "pomodoro.start",
                {"duration_seconds": seconds} | more,
                call_id=call_id,
                conversation=self.conversation(n),
            )
            for n, call_id in enumerate(calls)
        ]
        for message_id in said:
            assert (await self.agent.receipt(message_id, WITHIN_S))["accepted"]
        return calls

    async def open_conversations(self, count: int) -> None:
        """They belong to the agent from now on, and nothing runs in them."""
        said = [await self.agent.say("message.text", {"text": "hello"}, self.conversation(n)) for n in range(count)]
        for message_id in said:
            assert (await self.agent.receipt(message_id, WITHIN_S))["accepted"]

    async def operations(self, calls: Iterable[str]) -> dict[str, Frame]:
        """The operation of each start call that has one, as everybody may see it."""
        return await in_thread(self._operations, list(calls))

    def _operations(self, calls: list[str]) -> dict[str, Frame]:
        found = {}
        with self.runtime.operator() as operator:
            for call_id in calls:
                record = operator.query("call", call_id=call_id)
                if record.get("operation_id"):
                    found[call_id] = operator.query("operation", operation_id=record["operation_id"])
        return found

    async def rest(self) -> None:
        """Every start has its result and every message its answer."""
        await settled(self.runtime, self.agent, within_s=WITHIN_S)

    async def judge(self, starts: Iterable[str], interrupts: Iterable[str]) -> dict[str, Frame]:
        """The operations, after a look that each has one terminal state, one result, and the same answer on resend."""
        starts, interrupts = list(starts), list(interrupts)
        operations = await self.operations(starts)
        for call_id, operation in operations.items():
            result = self.agent.results[call_id]["result"]
            assert result["operation_id"] == operation["operation_id"]
            assert result["state"] == operation["state"] in ("completed", "interrupted")
            is_late = from_rfc3339(operation["ended_at"]) >= from_rfc3339(operation["ends_at"])
            assert is_late == (operation["state"] == "completed")
        by_id = {operation["operation_id"]: operation["state"] for operation in operations.values()}
        for call_id in interrupts:
            receipt = self.agent.results[call_id]["result"]
            if receipt["status"] == "interrupted":
                assert by_id[receipt["operation_id"]] == "interrupted"
            else:
                assert receipt["status"] in ("operation_already_final", "no_active_focusing_operation")
        await self._resend([*starts, *interrupts])
        await in_thread(assert_kept, self.runtime, self.agent)
        return operations

    async def _resend(self, calls: list[str]) -> None:
        """The agent itself asserts that no second result comes."""
        for call_id in calls:
            record = await self.agent.record(call_id)
            said = await self.agent.call(
                record["tool_id"], record["input"], call_id=call_id, conversation=record["conversation_id"]
            )
            receipt = await self.agent.receipt(said)
            assert receipt["accepted"]
            assert receipt["detail"].get("result") == self.agent.results[call_id].get("result")


class Wall:
    """The wall clock of a daemon, moved through ``LINEUP_TEST_WALL_OFFSET_FILE``."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wall-offset-ms"
        self.environment = {"LINEUP_TEST_WALL_OFFSET_FILE": str(self._file)}
        self.set(0)

    def set(self, seconds: float) -> None:
        half_written = self._file.with_suffix(".new")
        half_written.write_text(str(round(seconds * 1000)))
        half_written.rename(self._file)


async def until_closed(runtime: Runtime, conversation: str) -> None:
    """Pomodoro is gone from this conversation."""

    def gone() -> bool:
        rows = runtime.query("status")["instances"]
        return not any((row["app_scope"], row["conversation_id"]) == ("pomodoro", conversation) for row in rows)

    await until(gone, WITHIN_S, "Pomodoro is closed")


__all__ = ["WITHIN_S", "Operator", "Room", "Wall", "moment", "until_closed", "wall_ms"]
