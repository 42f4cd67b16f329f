"""Plays one scenario on one stage, step by step. The scenario is data; this file owns what its words mean.

A scenario is ``{says, steps}``. A step is one of:

====================================  ==================================================================================
``{agent, payload, in?, as?}``        The agent sends a message of this type; ``in`` names a conversation, ``as`` the
                                      frame and its ``message_id``. A call without a revision gets the current one.
``{again}``                           The agent sends the frame that was bound to this name once more, byte for byte.
``{hears, payload}``                  The next frame that reaches the agent is this one, and has nothing else in it.
``{person | operator, args, answer}`` A Host's action and the whole answer to it.
``{sees, is, id? | in?}``             The Runtime comes to this view within a bound: ``questions`` and ``focus`` of a
                                      conversation, a ``call``, ``interaction`` or ``instance``. Objects may have more.
``{passes}``                          So many seconds go by.
``{kill}``                            SIGKILL: ``worker`` (of the conversation ``in``) or ``runtime``.
``{audited, of, detail?}``            The audit has a row of this kind in the story of that object.
====================================  ==================================================================================

``"@name"`` is an id of this play alone; for ``"$name"`` and ``"<any>"`` see ``patterns``. ``$now`` is the time of the
Runtime. At the end a ping must be answered by the very next frame: nothing came that the scenario does not tell of.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from conformance.support.patterns import difference, filled, own
from lineup_protocol.ids import is_id
from lineup_protocol.times import is_rfc3339_utc

Body = dict[str, Any]
COMES_S = 30.0  # what comes at all is there within this, on the slowest stage on a busy machine
POLL_S = 0.01
SCOPE = "probe"
MAIN = "@c"
SENT_AT = "2026-11-30T08:00:00Z"
SKIPPED = ("lineup.v1.welcome", "lineup.v1.client.inventory")


class Stage(Protocol):
    """A Runtime with the bundle ``probe``, and one agent that acknowledges what it hears."""

    heard: list[Body]  # every frame that reached the agent, in order; one that was sent again may be there twice

    @property
    def revision(self) -> str: ...

    @property
    def now(self) -> str: ...

    async def send(self, frame: Body) -> None: ...

    async def act(self, actor: str, name: str, args: Body) -> Body: ...

    async def query(self, name: str, args: Body) -> Any: ...

    async def settle(self) -> None: ...

    async def passes(self, seconds: float) -> None: ...

    async def kill_worker(self, conversation_id: str) -> None: ...

    async def kill_runtime(self) -> None: ...


class Player:
    """See the module."""

    def __init__(self, stage: Stage, tag: str) -> None:
        self.stage = stage
        self.tag = tag
        self.names: Body = {}
        self._sent: dict[str, Body] = {}
        self._read = 0
        self._seq = 0
        self._numbers = 0

    async def play(self, scenario: Body) -> None:
        for number, step in enumerate(scenario["steps"], 1):
            try:
                await self._step(own(step, self.tag))
            except AssertionError as error:
                raise AssertionError(f"step {number} {step}: {error}") from error
        await self._step({"agent": "ping", "payload": {}})
        await self._step({"hears": "pong", "payload": {}})

    async def _step(self, step: Body) -> None:
        (word, value) = next(iter(step.items()))
        match word:
            case "agent":
                await self._send(value, step)
            case "again":
                await self.stage.send(self._sent[value])
            case "hears":
                await self._hear(value, step["payload"])
            case "person" | "operator":
                answer = await self.stage.act(word, value, filled(step["args"], self._known()))
                self._same(step["answer"], answer, exact=True)
                await self._hears_of_the_inventory()
            case "sees":
                await self._comes(lambda: self._view(value, step), step["is"])
            case "passes":
                await self.stage.passes(value)
            case "kill":
                conversation = step.get("in", own(MAIN, self.tag))
                await (self.stage.kill_worker(conversation) if value == "worker" else self.stage.kill_runtime())
            case "audited":
                await self._audited(value, step)
            case _:
                raise AssertionError(f"no step is called {word!r}")

    # -- the agent

    async def _send(self, type_: str, step: Body) -> None:
        payload = filled(step["payload"], self._known())
        if type_ == "tool.call" and "tool_id" in payload:
            payload = {"inventory_revision": self.stage.revision} | payload
        self._numbers += 1
        frame: Body = {
            "type": f"lineup.v1.{type_}",
            "message_id": f"m{self._numbers}-{self.tag}",
            "sent_at": SENT_AT,
            "payload": payload,
        }
        if type_ in ("tool.call", "message.text"):
            frame["conversation_id"] = step.get("in", own(MAIN, self.tag))
        if name := step.get("as"):
            self._sent[name] = frame
            self.names[f"${name}"] = frame["message_id"]
        self.names["$last"] = frame["message_id"]
        await self.stage.send(frame)

    async def _hear(self, type_: str, payload: Body) -> None:
        frame = await self._until(self._next_frame, f"a frame {type_}")
        assert frame["type"] == f"lineup.v1.{type_}", f"heard {frame['type']}: {frame['payload']}"
        assert is_id(frame["message_id"])
        assert is_rfc3339_utc(frame["sent_at"])
        self._same(payload, frame["payload"], exact=True)

    async def _hears_of_the_inventory(self) -> None:
        """What a Host did may have changed it; an agent that has not heard of that yet is another scenario."""
        current = (await self.stage.query("status", {}))["inventory_revision"]
        await self._until(lambda: self.stage.revision == current, "the agent has the current inventory")

    def _next_frame(self) -> Body | None:
        while self._read < len(self.stage.heard):
            frame = self.stage.heard[self._read]
            self._read += 1
            if frame["type"] in SKIPPED:
                continue
            if (seq := frame.get("seq")) is not None:
                if seq <= self._seq:
                    continue  # sent again after a new link; the agent has taken it over
                assert seq == self._seq + 1, f"seq {seq} after {self._seq}"
                self._seq = seq
            return frame
        return None

    # -- the Runtime as people see it

    async def _view(self, what: str, step: Body) -> Any:
        conversation = step.get("in", own(MAIN, self.tag))
        if what == "questions":
            found = (await self.stage.query("interactions", {}))["interactions"]
            return [each for each in found if each["owner"]["conversation_id"] == conversation]
        if what == "focus":
            snapshot = await self.stage.query("snapshot", {})
            scopes = {row["instance_id"]: row["app_scope"] for row in snapshot["instances"]}
            rows = [row for row in snapshot["conversations"] if row["conversation_id"] == conversation]
            return [scopes[id_] for row in rows for id_ in row["focus"]]
        if what == "instance":
            rows = (await self.stage.query("status", {}))["instances"]
            mine = [row for row in rows if (row["app_scope"], row["conversation_id"]) == (SCOPE, conversation)]
            return mine[0] if mine else None
        return await self.stage.query(what, {f"{what}_id": filled(step["id"], self._known())})

    async def _audited(self, kind: str, step: Body) -> None:
        id_ = filled(step["of"], self._known())
        entries = (await self.stage.query("story", {"id": id_}))["entries"]
        details = [entry["detail"] for entry in entries if entry["kind"] == kind]
        assert details, f"no {kind} among {[entry['kind'] for entry in entries]}"
        faults = [difference(step.get("detail", {}), detail, dict(self.names), exact=False) for detail in details]
        assert None in faults, faults

    # -- comparing

    def _known(self) -> Body:
        return self.names | {"$now": self.stage.now}

    def _same(self, expected: Any, came: Any, *, exact: bool) -> None:
        names = dict(self.names)
        fault = difference(expected, came, names, exact=exact)
        assert fault is None, fault
        self.names = names

    async def _comes(self, view: Any, expected: Any) -> None:
        give_up_at = time.monotonic() + COMES_S
        while True:
            names = dict(self.names)
            fault = difference(expected, await view(), names, exact=False)
            if fault is None:
                self.names = names
                return
            assert time.monotonic() < give_up_at, fault
            await self.stage.settle()
            await asyncio.sleep(POLL_S)

    async def _until(self, what: Any, words: str) -> Any:
        give_up_at = time.monotonic() + COMES_S
        while not (value := what()):
            assert time.monotonic() < give_up_at, f"not within {COMES_S:g} s: {words}"
            await self.stage.settle()
            await asyncio.sleep(POLL_S)
        return value
