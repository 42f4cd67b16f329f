"""One working day of an agent in small steps, each of which a death anywhere may cut short and which then go on.

A step is written so that it can be run again: what was said is said again under the same ids, by ``Agent`` itself or
because the action has a fixed ``action_id``. So after any number of deaths the day ends, and everything must have
happened once.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from processes.support.agent import Agent, Cut
from processes.support.judge import assert_kept, settled
from processes.support.operator import Gone
from processes.support.runtime import Runtime
from processes.support.waiting import until, until_async

STEP_S = 30.0
DEATHS_MAX = 60
LOST_LINK_S = 8.0  # for a Runtime that was restarted, or a hostshell that died, to be back on the line

UNKNOWN = ("failed", "outcome_unknown")


class Day:
    """The steps of one day under ``tag``, for one agent on one Runtime, over restarts of both."""

    def __init__(self, runtime: Runtime, agent: Agent, tag: str) -> None:
        self.runtime = runtime
        self.agent = agent
        self.tag = tag
        self.deaths = 0
        self._asked: set[str] = set()

    @property
    def steps(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            self.talk, self.plain_calls, self.artifact, self.cancelled, self.question, self.person, self.tally,
            self.finish, self.looked_at,
        )  # fmt: skip

    async def run(self, on_death: Callable[[], Awaitable[None]]) -> None:
        """Every step to its end; ``on_death`` brings the Runtime back whenever it has died."""
        for step in self.steps:
            await self.survive(step, on_death)

    async def survive(self, step: Callable[[], Awaitable[None]], on_death: Callable[[], Awaitable[None]]) -> None:
        for _ in range(DEATHS_MAX):
            try:
                if not self.runtime.is_up:
                    raise Cut("the Runtime is dead")
                if not self.agent.is_connected:
                    await self.agent.cut()
                    await self.agent.connect()
                async with asyncio.timeout(STEP_S):
                    await step()
                return
            except (Cut, Gone):
                await self._come_back(on_death)
        raise AssertionError(f"{step.__name__} did not end within {DEATHS_MAX} deaths")

    async def _come_back(self, on_death: Callable[[], Awaitable[None]]) -> None:
        await self.agent.cut()
        link_url = self.runtime.facts().get("agent_url")

        async def is_reachable() -> bool:
            if not self.runtime.is_up:
                return True
            try:
                await self.agent.connect()
            except Cut:
                await self.agent.cut()
            return self.agent.is_connected

        await until_async(is_reachable, LOST_LINK_S, f"the Runtime or its host is back at {link_url}")
        if not self.runtime.is_up:
            self.deaths += 1
            await on_death()

    # -- the steps

    def _id(self, name: str) -> str:
        return f"{name}-{self.tag}"

    async def _ask(self, name: str, tool_id: str, **input_: Any) -> str:
        call_id = self._id(name)
        if call_id not in self._asked:
            self._asked.add(call_id)
            await self.agent.call(tool_id, input_, call_id=call_id)
        # A Runtime that stops refuses it, and the next one gets it again: only then can it be cancelled or looked up.
        await self.agent.until(lambda: not self.agent.has_unanswered, STEP_S, f"the receipt of {call_id}")
        return call_id

    async def _said(self, name: str, kind: str, payload: dict[str, Any], conversation: str | None = None) -> None:
        if self._id(name) not in self._asked:
            self._asked.add(self._id(name))
            await self.agent.say(kind, payload, conversation)
        await self.agent.until(lambda: not self.agent.has_unanswered, STEP_S, f"the receipt of {name}")

    async def _ends(self, call_id: str, *allowed: tuple[str, str | None]) -> None:
        result = await self.agent.result(call_id, STEP_S)
        found = (result["status"], (result.get("error") or {}).get("code"))
        assert found in allowed, f"{call_id} ended as {found}, not as one of {allowed}: {result}"

    async def talk(self) -> None:
        await self._said("hello", "message.text", {"text": f"good morning, {self.tag}"}, self.agent.conversation)

    async def plain_calls(self) -> None:
        safe = await self._ask("echo", "lab.echo", text=self.tag)
        once = await self._ask("once", "lab.once", text=self.tag)
        slow = await self._ask("slow", "lab.slowly", text=self.tag)
        await self._ends(safe, ("completed", None))
        await self._ends(once, ("completed", None), UNKNOWN)
        await self._ends(slow, ("completed", None))

    async def artifact(self) -> None:
        """What a person was promised to find is there, whenever the Runtime died. Consent: see ``consent``."""
        await self._ends(await self._ask("keep", "lab.keep", text=self.tag), ("completed", None))
        await until(lambda: not self.runtime.is_up or self.is_exported(), 5, "the file is in the folder of artifacts")
        if not self.runtime.is_up:
            raise Cut("the Runtime died meanwhile")

    def is_exported(self) -> bool:
        """The text of this day is, whole, where a person finds what was saved."""
        path = self.runtime.home / "artifacts" / f"{hashlib.sha256(self.tag.encode()).hexdigest()}.txt"
        return path.exists() and path.read_text() == self.tag

    async def consent(self) -> None:
        """The first ``lab.keep`` asks the person, who always agrees from then on."""
        call_id = await self._ask("keep", "lab.keep", text=self.tag)

        def asked() -> str | None:
            rows = self.runtime.query("interactions")["interactions"]
            return next((row["interaction_id"] for row in rows if row["owner"]["app_scope"] == "lab"), None)

        question = await until(asked, STEP_S, "the person is asked for consent")
        answer = self.runtime.action(
            "interaction.answer", self._id("consent"), interaction_id=question, result={"action_ids": ["always"]}
        )
        assert answer["accepted"], answer
        await self._ends(call_id, ("completed", None))

    async def cancelled(self) -> None:
        call_id = await self._ask("hold", "lab.hold", text=self.tag, until_attempt=1_000_000)
        await self._said("cancel", "tool.cancel", {"call_id": call_id, "reason": "enough"})
        await self._ends(call_id, ("cancelled", "cancelled"))

    async def question(self) -> None:
        call_id = await self._ask("notice", "notice", title="Look", message=self.tag)
        if call_id not in self.agent.results:

            async def asked() -> str | None:
                return (await self.agent.record(call_id)).get("interaction_id")

            question = await until_async(asked, STEP_S, "the question is asked")
            answer = self.runtime.action(
                "interaction.answer", self._id("answer"), interaction_id=question, result={"acknowledged": True}
            )
            assert answer["accepted"], answer
        await self._ends(call_id, ("completed", None))

    async def person(self) -> None:
        text = f"good evening, {self.tag}"
        answer = self.runtime.action(
            "person.text", self._id("person"), conversation_id=self.agent.conversation, text=text
        )
        assert answer["accepted"], answer
        await self.agent.until(lambda: text in [t["text"] for t in self.agent.texts], STEP_S, "the person's text")

    async def tally(self) -> None:
        """What must not run twice has run once, or nobody knows and the agent was told so."""
        call_id = await self._ask("tally", "lab.tally", text="")
        result = await self.agent.result(call_id, STEP_S)
        times = result["result"]["texts"].count(self.tag)
        known = self.agent.results[self._id("once")]["status"] == "completed"
        assert times == 1 or (not known and times == 0), f"{self._id('once')} ran {times} times"

    async def finish(self) -> None:
        await self._ends(await self._ask("finish", "lab.finish", text=self.tag), ("completed", None))

    async def looked_at(self) -> None:
        boot_id = self.runtime.query("status")["boot_id"]
        if not (facts := self.runtime.facts()):
            raise Cut("the Runtime is stopping")
        assert boot_id == facts["boot_id"]

    async def verdict(self) -> None:
        """Everything said is answered, everything open has ended, and every promise was kept."""
        await settled(self.runtime, self.agent)
        texts = [text["text"] for text in self.agent.texts]
        assert len(texts) == len(set(texts)), "a person's text came twice"
        assert_kept(self.runtime, self.agent)


def tags(prefix: str) -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers)}"


async def is_over(runtime: Runtime, within_s: float = 20.0) -> int:
    """Wait until a dying daemon is dead; its exit code."""
    await until(lambda: not runtime.is_up, within_s, "the daemon is dead")
    return runtime.wait_over()
