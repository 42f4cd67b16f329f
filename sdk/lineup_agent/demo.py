"""The demo agent: ``python -m lineup_agent.demo --home DIR``. Rules instead of a model, so that it needs no key.

It is an ordinary agent on an ordinary link; its file is also an example of one. Each text is answered by a task of its
own, so that a focus of 25 minutes does not keep the next text waiting. A text is acknowledged once the Runtime has
committed the first thing that was done about it, and the ids of calls follow from the text that asked for them: one
that is delivered again after a crash finds the same calls and starts none twice.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from lineup_agent.calls import CallHandle
from lineup_agent.demo_rules import Intent, understand
from lineup_agent.errors import AgentLinkError, MessageRefused
from lineup_agent.link import AgentLink
from lineup_agent.model import Text, ToolResult

DEFAULT_AGENT_ID = "demo"
TASK_STEPS = 8
TASK_STEP_S = 1.5

_log = logging.getLogger("lineup.agent.demo")

# What it says: English and Chinese.
WORDS: dict[str, tuple[str, str]] = {
    "greet": (
        "Hello! I am the **demo agent**. I follow a handful of rules, no model. Say `help` to see them.",
        "你好！我是**演示智能体**，只按几条规则工作，没有模型。说“帮助”看看我会什么。",
    ),
    "help": (
        "Try one of these:\n\n"
        "| say | and I |\n|---|---|\n"
        "| `start a 25 minute focus on reading` | start a Pomodoro |\n"
        "| `stop` | end the focus |\n"
        "| `task: write report` | show a task and work on it |\n"
        "| `whiteboard` | open a whiteboard for you |\n"
        "| `ask me something` | ask you to choose |\n"
        "| `confirm`, `form`, `notice` | show the other questions |\n",
        "可以这样说：\n\n"
        "| 你说 | 我会 |\n|---|---|\n"
        "| `专注 25 分钟 看书` | 开始一个番茄钟 |\n"
        "| `停止` | 结束专注 |\n"
        "| `任务：写报告` | 打开任务面板并开始工作 |\n"
        "| `白板` | 为你打开白板 |\n"
        "| `问我` | 请你做选择 |\n"
        "| `确认`、`表单`、`通知` | 其他几种提问 |\n",
    ),
    "unknown": ("I do not know that one. Say `help` to see what I understand.", "这句我不懂。说“帮助”看看我会什么。"),
    "missing": (
        "The tool `{tool}` is not installed here, so I cannot do that.",
        "这里没有安装工具 `{tool}`，我做不到。",
    ),
    "refused": ("That did not work: {message} (`{code}`)", "没有成功：{message}（`{code}`）"),
    "cancelled": ("All right, cancelled.", "好的，已取消。"),
    "focus_start": (
        "Focus for **{duration}**{activity}. I will tell you when it is over.",
        "专注 **{duration}**{activity}，到时间我告诉你。",
    ),
    "focus_done": ("**Done!** You focused for {duration}{activity}.", "**完成！**你专注了{duration}{activity}。"),
    "focus_stopped": ("The focus was interrupted before its end.", "这次专注提前结束了。"),
    "focus_again_title": ("Another round?", "再来一轮？"),
    "focus_again": ("The same again: {duration}.", "同样的时长：{duration}。"),
    "stop_done": ("Stopped.", "已停止。"),
    "stop_nothing": ("There is no focus to stop just now.", "现在没有正在进行的专注。"),
    "task_start": (
        "I am working on **{title}**; the dashboard shows how far I am.",
        "我开始处理**{title}**，进度在任务面板上。",
    ),
    "task_note": ("step {n} of {all}", "第 {n} 步，共 {all} 步"),
    "task_done": ("**{title}** is done.", "**{title}**完成了。"),
    "task_ended": ("**{title}** has ended as *{status}*.", "**{title}**的结果是 *{status}*。"),
    "board_title": ("Whiteboard", "白板"),
    "board_start": ("Here is a whiteboard. Submit it when you are done.", "白板打开了，画好后提交。"),
    "board_done": ("Thank you for the drawing. (`{artifact}`)", "谢谢你的画。（`{artifact}`）"),
    "board_closed": ("The whiteboard was closed without a drawing.", "白板关闭了，没有提交内容。"),
    "choice_title": ("A question", "一个问题"),
    "choice_prompt": ("What would you like to do next?", "接下来想做什么？"),
    "choice_focus": ("Focus for a minute", "专注一分钟"),
    "choice_task": ("See a task", "看一个任务"),
    "choice_nothing": ("Nothing for now", "暂时不用"),
    "choice_done": ("You chose **{label}**.", "你选择了**{label}**。"),
    "confirm_title": ("May I?", "可以吗？"),
    "confirm_prompt": ("I would like to say *thank you*.", "我想说一声*谢谢*。"),
    "confirm_yes": ("Thank you!", "谢谢！"),
    "confirm_no": ("Then I will not.", "那就不说了。"),
    "form_title": ("About you", "关于你"),
    "form_prompt": ("Two short questions.", "两个简短的问题。"),
    "form_name": ("Your name", "你的名字"),
    "form_cups": ("Cups of tea a day", "每天几杯茶"),
    "form_done": (
        "Nice to meet you, **{name}**. {cups} cups, noted.",
        "很高兴认识你，**{name}**。每天 {cups} 杯，记下了。",
    ),
    "notice_title": ("Good to know", "提示"),
    "notice_text": ("This is a notice. It goes away when you acknowledge it.", "这是一条通知，确认后消失。"),
    "notice_done": ("Acknowledged.", "已确认。"),
    "sample_task": ("Sort the photos", "整理照片"),
}


class _CannotGoOn(Exception):
    """Said to the person instead of going on."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key)
        self.key = key
        self.values = values


class Turn:
    """One text and what the agent does about it."""

    def __init__(self, link: AgentLink, text: Text, intent: Intent, step_s: float) -> None:
        self.link = link
        self.conversation_id = text.conversation_id
        self.intent = intent
        self.step_s = step_s
        self._id = f"{link.agent_id}-{text.seq}"
        self._calls = 0
        self.begun = asyncio.Event()  # the first effect is committed: the text need not come again

    def words(self, key: str, **values: Any) -> str:
        return WORDS[key][1 if self.intent.chinese else 0].format(**values)

    async def say(self, key: str, **values: Any) -> None:
        await self.link.send_text(self.conversation_id, self.words(key, **values))
        self.begun.set()

    async def start(self, tool_id: str, input_: dict[str, Any]) -> CallHandle:
        if not self.link.inventory.has(tool_id):
            raise _CannotGoOn("missing", tool=tool_id)
        self._calls += 1
        handle = await self.link.start_call(
            tool_id, input_, conversation_id=self.conversation_id, call_id=f"{self._id}-{self._calls}"
        )
        await handle.accepted()
        self.begun.set()
        return handle

    async def call(self, tool_id: str, input_: dict[str, Any]) -> dict[str, Any]:
        """The result of a completed call. Raises _CannotGoOn for every other end."""
        result = await (await self.start(tool_id, input_)).result()
        if result.error_code == "inventory_revision_mismatch":  # the tools changed just now; once more under a new id
            result = await (await self.start(tool_id, input_)).result()
        return completed(result)


def completed(result: ToolResult) -> dict[str, Any]:
    if result.status == "cancelled":
        raise _CannotGoOn("cancelled")
    if not result.completed:
        error = result.error or {}
        raise _CannotGoOn("refused", code=error.get("code", result.status), message=error.get("message", ""))
    return result.result or {}


def spoken_duration(seconds: int, chinese: bool) -> str:
    """``90`` → ``1 minute 30 seconds``, ``1 分钟 30 秒``."""
    units = ((3600, "hour", "小时"), (60, "minute", "分钟"), (1, "second", "秒"))
    parts = []
    for size, english, zh in units:
        n, seconds = divmod(seconds, size)
        if n:
            parts.append(f"{n} {zh}" if chinese else f"{n} {english}{'' if n == 1 else 's'}")
    return " ".join(parts)


# --- what it does, one function per intent ----------------------------------------------------------------------------


async def focus(turn: Turn) -> None:
    intent = turn.intent
    duration = spoken_duration(intent.seconds, intent.chinese)
    joint = "：{}" if intent.chinese else " on {}"
    activity = joint.format(intent.activity) if intent.activity else ""
    input_: dict[str, Any] = {"duration_seconds": intent.seconds}
    if intent.activity:
        input_["activity"] = intent.activity
    while True:
        handle = await turn.start("pomodoro.start", input_)
        early = await _result_within(handle, turn.step_s)
        if early is None:
            await turn.say("focus_start", duration=duration, activity=activity)
        result = completed(early or await handle.result())
        if result.get("state") != "completed":
            await turn.say("focus_stopped")
            return
        await turn.say("focus_done", duration=duration, activity=activity)
        question = {"title": turn.words("focus_again_title"), "prompt": turn.words("focus_again", duration=duration)}
        if not (await turn.call("confirm", question)).get("approved"):
            return


async def stop(turn: Turn) -> None:
    result = await turn.call("pomodoro.interrupt", {})
    await turn.say("stop_done" if result.get("status") == "interrupted" else "stop_nothing")


async def task(turn: Turn) -> None:
    title = turn.intent.title or turn.words("sample_task")
    task_id = f"t-{turn._id}"
    handle = await turn.start("task-dashboard.open", {"task_id": task_id, "title": title})
    early = await _result_within(handle, turn.step_s)
    if early is None:
        await turn.say("task_start", title=title)
    for n in range(1, TASK_STEPS + 1):
        if early is not None:
            break  # the person (or a fault) has ended the task
        update: dict[str, Any] = {"task_id": task_id, "progress": n / TASK_STEPS}
        update["note"] = turn.words("task_note", n=n, all=TASK_STEPS)
        if n == TASK_STEPS:
            update["status"] = "completed"
        await turn.call("task-dashboard.update", update)
        early = await _result_within(handle, turn.step_s)
    status = completed(early or await handle.result()).get("status")
    await turn.say("task_done" if status == "completed" else "task_ended", title=title, status=status)


async def whiteboard(turn: Turn) -> None:
    handle = await turn.start("whiteboard.open", {"board_id": f"b-{turn._id}", "title": turn.words("board_title")})
    early = await _result_within(handle, turn.step_s)
    if early is None:
        await turn.say("board_start")
    result = completed(early or await handle.result())
    artifact = result.get("artifact_id")
    await turn.say("board_done" if artifact else "board_closed", artifact=artifact)


async def choice(turn: Turn) -> None:
    labels = {name: turn.words(f"choice_{name}") for name in ("focus", "task", "nothing")}
    request = {
        "title": turn.words("choice_title"),
        "prompt": turn.words("choice_prompt"),
        "mode": "single-choice",
        "actions": [{"id": name, "label": label} for name, label in labels.items()],
    }
    chosen = (await turn.call("choice", request)).get("action_ids") or ["nothing"]
    await turn.say("choice_done", label=labels.get(chosen[0], chosen[0]))
    if chosen[0] == "focus":
        turn.intent = Intent("focus", turn.intent.chinese, seconds=60)
        await focus(turn)
    elif chosen[0] == "task":
        await task(turn)


async def confirm(turn: Turn) -> None:
    result = await turn.call("confirm", {"title": turn.words("confirm_title"), "prompt": turn.words("confirm_prompt")})
    await turn.say("confirm_yes" if result.get("approved") else "confirm_no")


async def form(turn: Turn) -> None:
    fields = [
        {"id": "name", "label": turn.words("form_name"), "type": "text", "required": True, "max_length": 80},
        {"id": "cups", "label": turn.words("form_cups"), "type": "number", "minimum": 0, "maximum": 50},
    ]
    request = {"title": turn.words("form_title"), "prompt": turn.words("form_prompt"), "fields": fields}
    values = (await turn.call("input", request)).get("values", {})
    await turn.say("form_done", name=values.get("name", "?"), cups=values.get("cups", 0))


async def notice(turn: Turn) -> None:
    await turn.call("notice", {"title": turn.words("notice_title"), "message": turn.words("notice_text")})
    await turn.say("notice_done")


ACTIONS: dict[str, Callable[[Turn], Awaitable[None]]] = {
    "focus": focus,
    "stop": stop,
    "task": task,
    "whiteboard": whiteboard,
    "choice": choice,
    "confirm": confirm,
    "form": form,
    "notice": notice,
}


async def _result_within(handle: CallHandle, wait_s: float) -> ToolResult | None:
    """The result if the call ends that soon (a refusal does), else None."""
    try:
        return await handle.result(wait_s)
    except TimeoutError:
        return None


# --- the agent --------------------------------------------------------------------------------------------------------


async def answer(turn: Turn) -> None:
    """Do what one text asks for, and say what came of it. Raises nothing but the end of the link."""
    try:
        action = ACTIONS.get(turn.intent.name)
        if action is None:
            await turn.say(turn.intent.name)
        else:
            await action(turn)
    except _CannotGoOn as stopped:
        await turn.say(stopped.key, **stopped.values)
    except MessageRefused as refused:
        _log.warning("the Runtime refused a message: %s", refused)
        await turn.say("refused", code=refused.code, message=refused.message)


async def run(link: AgentLink, *, step_s: float = TASK_STEP_S) -> None:
    """Answer texts until the link ends."""
    turns: set[asyncio.Task[None]] = set()
    try:
        async for text in link.messages():
            turn = Turn(link, text, understand(text.text), step_s)
            task = asyncio.create_task(_answer_safely(turn))
            turns.add(task)
            task.add_done_callback(turns.discard)
            await turn.begun.wait()
    finally:
        for task in turns:
            task.cancel()


async def _answer_safely(turn: Turn) -> None:
    try:
        await answer(turn)
    except AgentLinkError as error:
        _log.warning("no answer to a text: %s", error)
    except Exception:
        _log.exception("a fault of the demo agent")
    finally:
        turn.begun.set()


async def _amain(home: str | None, agent_id: str) -> int:
    stop_asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop_asked.set)
    stopping = asyncio.create_task(stop_asked.wait())
    working = asyncio.create_task(_work(home, agent_id))
    await asyncio.wait((stopping, working), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    working.cancel()
    try:
        await working
    except asyncio.CancelledError:
        return 0
    except AgentLinkError as error:
        print(f"lineup demo agent: {error}", file=sys.stderr)
        return 1
    return 0


async def _work(home: str | None, agent_id: str) -> None:
    async with AgentLink.from_home(home, agent_id=agent_id) as link:
        _log.info("connected as %s", agent_id)
        await run(link)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lineup_agent.demo", description="The rule-based demo agent.")
    parser.add_argument("--home", help="the Runtime's home (default: $LINEUP_HOME, else the user data directory)")
    parser.add_argument("--agent-id", default=DEFAULT_AGENT_ID)
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    return asyncio.run(_amain(options.home, options.agent_id))


if __name__ == "__main__":
    sys.exit(main())
