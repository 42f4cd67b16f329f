"""The demo agent: its table of rules, and its turns against a scripted Runtime."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lineup_agent import AgentLink, demo
from lineup_agent.demo_rules import RULES, Intent, understand

WAIT_S = 5.0

UNDERSTOOD = [
    ("hello", Intent("greet")),
    ("你好", Intent("greet", True)),
    ("help", Intent("help")),
    ("你能做什么？", Intent("help", True)),
    ("start a 25 minute focus", Intent("focus", seconds=1500)),
    ("Start a 10-minute focus on reading", Intent("focus", seconds=600, activity="reading")),
    ("focus for 90 seconds", Intent("focus", seconds=90)),
    ("focus", Intent("focus", seconds=1500)),
    ("pomodoro for 1 hour 30 minutes to write the report.", Intent("focus", seconds=5400, activity="write the report")),
    ("focus for 999999 hours", Intent("focus", seconds=86400)),
    ("focus 0 seconds", Intent("focus", seconds=1500)),
    ("专注 25 分钟", Intent("focus", True, 1500)),
    ("请开始专注10分钟看书", Intent("focus", True, 600, "看书")),
    ("写作业 专注 1 小时", Intent("focus", True, 3600, "写作业")),
    ("番茄钟", Intent("focus", True, 1500)),
    ("stop", Intent("stop")),
    ("please stop the focus", Intent("stop")),
    ("停止专注", Intent("stop", True)),
    ("停", Intent("stop", True)),
    ("task: write report", Intent("task", title="write report")),
    ("Task: stop smoking and focus", Intent("task", title="stop smoking and focus")),
    ("任务：写报告", Intent("task", True, title="写报告")),
    ("whiteboard", Intent("whiteboard")),
    ("打开白板", Intent("whiteboard", True)),
    ("ask me something", Intent("choice")),
    ("问我一个问题", Intent("choice", True)),
    ("confirm", Intent("confirm")),
    ("show me a form", Intent("form")),
    ("通知", Intent("notice", True)),
    ("what is the weather", Intent("unknown")),
    ("天气怎么样", Intent("unknown", True)),
    ("task:", Intent("unknown")),
    ("", Intent("unknown")),
]


@pytest.mark.parametrize(("text", "intent"), UNDERSTOOD)
def test_the_rules(text: str, intent: Intent) -> None:
    assert understand(text) == intent


def test_every_rule_has_an_example_and_an_answer_in_both_languages() -> None:
    names = {name for name, _ in RULES} | {"unknown"}
    assert names == {intent.name for _, intent in UNDERSTOOD}
    assert all(name in demo.ACTIONS or name in demo.WORDS for name in names)
    for key, (english, chinese) in demo.WORDS.items():
        placeholders = set(re.findall(r"\{\w+\}", english))
        assert placeholders == set(re.findall(r"\{\w+\}", chinese)), key


@pytest.mark.parametrize(
    "text", ["专" * 100_000, "1" * 100_000, "1 minute " * 10_000, " " * 100_000, "focus on " * 10_000]
)
def test_no_text_takes_long(text: str) -> None:
    understand(text)


def test_durations_are_spoken() -> None:
    assert demo.spoken_duration(1500, False) == "25 minutes"
    assert demo.spoken_duration(3661, False) == "1 hour 1 minute 1 second"
    assert demo.spoken_duration(90, True) == "1 分钟 30 秒"


TOOLS = (
    "pomodoro.start",
    "pomodoro.interrupt",
    "task-dashboard.open",
    "task-dashboard.update",
    "whiteboard.open",
    "choice",
    "confirm",
    "input",
    "notice",
)


class Talk:
    """A person, the Runtime and all MiniApps in front of the demo agent."""

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.seq = 0

    async def person(self, text: str) -> None:
        self.seq += 1
        await self.wire.text(self.seq, text)

    async def hears(self) -> str:
        frame = await self.wire.expect("message.text")
        assert frame["conversation_id"] == "c-1"
        await self.wire.accept(frame)
        text: str = frame["payload"]["text"]
        assert "{" not in text
        return text

    async def called(self, tool_id: str) -> dict[str, Any]:
        frame = await self.wire.expect("tool.call")
        assert frame["payload"]["tool_id"] == tool_id
        await self.wire.accept(frame)
        payload: dict[str, Any] = frame["payload"]
        return payload

    async def ends(self, call: dict[str, Any], status: str = "completed", **more: Any) -> None:
        self.seq += 1
        await self.wire.result(self.seq, call["call_id"], status, **more)


@contextlib.asynccontextmanager
async def talking(scripted: Any, token: str, *tools: str) -> AsyncIterator[Talk]:
    link = AgentLink(scripted.url, token, "demo")
    entering = asyncio.create_task(link.__aenter__())
    wire = await scripted.connection()
    await wire.welcome()
    await wire.inventory("i-2", *(tools or TOOLS))
    await entering
    async with asyncio.timeout(WAIT_S):
        while link.inventory.revision != "i-2":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    running = asyncio.create_task(demo.run(link, step_s=0.02))
    try:
        yield Talk(wire)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await link.close()


async def test_it_greets_helps_and_admits(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        for text, expected in (("hi", "demo agent"), ("帮助", "番茄钟"), ("weather?", "help"), ("天气", "帮助")):
            await talk.person(text)
            assert expected in await talk.hears()
        await talk.wire.acknowledged(4)


async def test_a_text_is_acknowledged_once_its_call_is_committed(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        await talk.person("confirm")
        call = await talk.wire.expect("tool.call")
        await talk.person("hi")
        await talk.wire.silent()
        assert talk.wire.acks == []  # no receipt yet: a crash now must bring the text again
        await talk.wire.accept(call)
        assert "demo agent" in await talk.hears()  # the question is open, and the next text is answered
        await talk.wire.acknowledged(2)


async def test_a_focus_to_its_end_and_once_more(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        await talk.person("专注 2 秒 看书")
        start = await talk.called("pomodoro.start")
        assert start["input"] == {"duration_seconds": 2, "activity": "看书"}
        assert "看书" in await talk.hears()
        await talk.ends(start, result={"state": "completed", "operation_id": "op-1"})
        assert "完成" in await talk.hears()
        await talk.ends(await talk.called("confirm"), result={"approved": True})
        again = await talk.called("pomodoro.start")
        assert again["call_id"] != start["call_id"]
        assert again["input"] == start["input"]
        await talk.hears()
        await talk.person("停")
        interrupt = await talk.called("pomodoro.interrupt")
        await talk.ends(again, result={"state": "interrupted", "operation_id": "op-2"})
        assert "提前" in await talk.hears()
        await talk.ends(interrupt, result={"status": "interrupted", "operation_id": "op-2"})
        assert "已停止" in await talk.hears()


async def test_a_second_focus_is_refused_with_its_reason(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        await talk.person("focus")
        start = await talk.called("pomodoro.start")
        error = {"code": "active_focusing_operation", "message": "one is active already"}
        await talk.ends(start, "rejected", error=error)
        said = await talk.hears()
        assert "active_focusing_operation" in said
        assert "one is active already" in said
        await talk.person("stop")
        await talk.ends(await talk.called("pomodoro.interrupt"), result={"status": "no_active_focusing_operation"})
        assert "no focus" in await talk.hears()


async def test_a_task_is_opened_and_worked_on(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        await talk.person("task: write report")
        opened = await talk.called("task-dashboard.open")
        task_id = opened["input"]["task_id"]
        assert opened["input"]["title"] == "write report"
        assert "write report" in await talk.hears()
        for n in range(1, demo.TASK_STEPS + 1):
            update = await talk.called("task-dashboard.update")
            assert update["input"]["task_id"] == task_id
            assert update["input"]["progress"] == n / demo.TASK_STEPS
            assert ("status" in update["input"]) == (n == demo.TASK_STEPS)
            await talk.ends(update, result={"task_id": task_id})
        await talk.ends(opened, result={"status": "completed"})
        assert "done" in await talk.hears()


async def test_a_task_that_the_person_ends_is_worked_on_no_more(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        await talk.person("task: write report")
        opened = await talk.called("task-dashboard.open")
        await talk.hears()
        update = await talk.called("task-dashboard.update")
        await talk.ends(opened, result={"status": "cancelled"})
        await talk.ends(update, result={})
        assert "cancelled" in await talk.hears()


async def test_a_whiteboard(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        await talk.person("whiteboard")
        opened = await talk.called("whiteboard.open")
        assert set(opened["input"]) == {"board_id", "title"}
        await talk.hears()
        await talk.ends(opened, result={"status": "completed", "artifact_id": "art-1"})
        assert "art-1" in await talk.hears()


async def test_questions(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        await talk.person("ask me something")
        choice = await talk.called("choice")
        assert [action["id"] for action in choice["input"]["actions"]] == ["focus", "task", "nothing"]
        await talk.ends(choice, result={"action_ids": ["nothing"]})
        assert "Nothing" in await talk.hears()
        await talk.person("confirm")
        await talk.ends(await talk.called("confirm"), result={"approved": False})
        assert "not" in await talk.hears()
        await talk.person("form")
        await talk.ends(await talk.called("input"), result={"values": {"name": "Ada", "cups": 3}})
        assert "Ada" in await talk.hears()
        await talk.person("confirm")
        await talk.ends(await talk.called("confirm"), "cancelled")
        assert "cancelled" in await talk.hears()
        await talk.person("notice")
        await talk.ends(await talk.called("notice"), result={"acknowledged": True})
        assert "Acknowledged" in await talk.hears()


async def test_the_chosen_focus_starts(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        await talk.person("问我")
        await talk.ends(await talk.called("choice"), result={"action_ids": ["focus"]})
        await talk.hears()
        assert (await talk.called("pomodoro.start"))["input"] == {"duration_seconds": 60}


@pytest.mark.parametrize("text", ["focus", "stop", "task: x", "whiteboard", "ask me", "form"])
async def test_a_missing_tool_is_said(scripted: Any, token: str, text: str) -> None:
    async with talking(scripted, token, "something.else") as talk:
        await talk.person(text)
        assert "not installed" in await talk.hears()


async def test_a_refused_message_is_said(scripted: Any, token: str) -> None:
    async with talking(scripted, token) as talk:
        await talk.person("confirm")
        await talk.wire.refuse(await talk.wire.expect("tool.call"), "rate_limited")
        assert "rate_limited" in await talk.hears()


async def test_a_text_that_comes_again_starts_nothing_new(scripted: Any, token: str) -> None:
    ids = []
    for _ in range(2):  # two runs of the agent, the first of which died before it acknowledged
        async with talking(scripted, token) as talk:
            await talk.person("confirm")
            ids.append((await talk.called("confirm"))["call_id"])
    assert ids[0] == ids[1]


async def test_the_process_answers_and_stops_on_sigterm(scripted: Any, token: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    for name, content in (("runtime.json", json.dumps({"agent_url": scripted.url})), ("agent.token", token)):
        (run / name).write_text(content)
        (run / name).chmod(0o600)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lineup_agent.demo", env=os.environ | {"LINEUP_HOME": str(tmp_path)},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        wire = await scripted.connection()
        assert (await wire.welcome())["agent_id"] == "demo"
        talk = Talk(wire)
        await talk.person("hello")
        assert "demo agent" in await talk.hears()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            _, err = await process.communicate()
        assert process.returncode == 0, err
        assert token not in err.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
