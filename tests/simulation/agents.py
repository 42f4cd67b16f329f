"""Simulated agents: they call, resend, contradict themselves, lose their links and come back."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from checkers.history import AgentLog, Entry
from lineup_supervisor.core import events as ev

if TYPE_CHECKING:
    from simulation.world import World

Frame = dict[str, Any]
CLOSE = "close"
AT = "2026-11-30T08:00:00Z"
CALLS_OPEN_MAX = 24  # of one agent, so that a run stays readable


class Link:
    """One WebSocket. ``to_agent`` holds frames and (CLOSE, code); ``to_runtime`` frames that have left the agent."""

    def __init__(self, link_id: str, agent: SimAgent) -> None:
        self.link_id = link_id
        self.agent = agent
        self.to_agent: deque[Any] = deque()
        self.to_runtime: deque[Any] = deque()


class SimAgent:
    """One agent: its client's memory (what it sent, how far it has taken over) outlives its links."""

    def __init__(self, world: World, agent_id: str) -> None:
        self.world = world
        self.agent_id = agent_id
        self.log = world.history.agents.setdefault(agent_id, AgentLog(agent_id))
        self.conversations = [f"c-{agent_id}-{n}" for n in range(2)]
        self.links: list[Link] = []
        self.revision = "r-unknown"
        self.tools: list[str] = []  # those that the inventory tells of
        self.seen = 0  # everything up to this seq has been taken over
        self.acked = 0
        self.calls: dict[str, Frame] = {}  # call_id → the frame that made it
        self.results: dict[str, Frame] = {}
        self.receipts: dict[str, Frame] = {}  # message_id → payload
        self.asked_again: set[str] = set()  # call_ids sent once more on this link while the run comes to rest
        self._next = 1

    @property
    def link(self) -> Link | None:
        """The link that it uses: the newest."""
        return self.links[-1] if self.links else None

    def note(self, what: str, data: Any, link: str = "") -> None:
        self.log.entries.append(Entry(self.world.tick(), self.world.wall_ms, what, data, link))

    # what it does

    def act(self) -> None:
        mix, rng = self.world.mix, self.world.rng
        link = self.link
        if link is None:
            self.connect()
            return
        roll = rng.random()
        if roll < mix.cut:
            self.cut(link)
        elif roll < mix.cut + mix.two_links and len(self.links) < 3:
            self.connect()
        elif rng.random() < mix.malformed:
            self.send(self._malformed())
        elif rng.random() < mix.resend and (again := self._to_resend()):
            self._resend(rng.choice(again))
        elif self.calls and rng.random() < mix.cancel:
            self._say("tool.cancel", {"call_id": rng.choice(list(self.calls)), "reason": "changed my mind"})
        elif self.seen > self.acked and rng.random() > mix.lost_ack:
            self.acknowledge()
        elif len(self.calls) - len(self.results) < CALLS_OPEN_MAX and rng.random() < (0.6 if self.tools else 0.1):
            self.call()
        elif rng.random() < 0.3:
            self._say("message.text", {"text": f"text {self._next}"}, self._conversation())
        elif self.calls and rng.random() < 0.3:
            self._say("tool.get", {"call_id": rng.choice([*self.calls, "k-unknown"])})
        elif rng.random() < 0.2:
            self._say("ping", {})

    def connect(self) -> None:
        """Open a link and say hello, sometimes without a word of what has been taken over."""
        rng = self.world.rng
        link = Link(self.world.new_id("l"), self)
        self.links.append(link)
        self.world.links[link.link_id] = link
        self.note("opened", None, link.link_id)
        self.asked_again.clear()
        hello: Frame = {"agent_id": self.agent_id, "protocol": 1}
        if rng.random() < 0.7:
            hello["acked_seq"] = self.seen
        if rng.random() < self.world.mix.malformed:
            hello |= rng.choice(({"protocol": 99}, {"acked_seq": 10**6}, {"acked_seq": -1}, {"agent_id": "cli"}))
        self._say("hello", hello)

    def cut(self, link: Link) -> None:
        """The connection is gone: what was under way in either direction is lost, but for what had arrived already."""
        self.acked = 0  # what was acknowledged on it may never have arrived
        if link in self.links:
            self.links.remove(link)
            self.note("cut", None, link.link_id)
        for _ in range(self.world.rng.randint(0, len(link.to_runtime))):
            self._carry_one(link)
        self.world.links.pop(link.link_id, None)
        self.world.submit(ev.AgentLinkClosed(event_id=self.world.new_id("e"), link_id=link.link_id))

    def call(self) -> None:
        rng, mix = self.world.rng, self.world.mix
        wanted = self.world.callable_tools
        if rng.random() > mix.stale:
            wanted = [tool_id for tool_id in wanted if tool_id in self.tools] or wanted
        tool_id = rng.choice(wanted)
        payload: Frame = {"call_id": self._id("k"), "inventory_revision": self.revision}
        conversation = self._conversation()
        if tool_id in ("choice", "confirm", "input") and rng.random() < 0.4:
            payload = {"call_id": payload["call_id"], "tool": tool_id}
        else:
            payload["tool_id"] = tool_id
        payload["input"] = self.world.input_for(tool_id)
        if rng.random() < mix.stale:
            payload["inventory_revision"] = "r-0000000000000000"
        if rng.random() < mix.invalid:
            payload |= rng.choice(
                (
                    {"input": {"n": "one"}},
                    {"input": None},
                    {"input": {"n": 1, "more": 2}},
                    {"input": {**payload["input"], "expires_at": "yesterday"}},
                    {"input": {**payload["input"], "expires_at": "2001-01-01T00:00:00Z"}},
                    {"tool_id": "nobody.knows"},
                )
            )
        if rng.random() < mix.foreign:
            conversation = rng.choice(self.world.all_conversations())
        frame = self._envelope("tool.call", payload, conversation)
        self.calls[payload["call_id"]] = frame
        self.send(frame)

    def _to_resend(self) -> list[Frame]:
        """With retention as short as in some runs, a call whose result it has could be a new one by then."""
        kept = [c for c in self.calls if not self.world.mix.kept_max or c not in self.results]
        return [self.calls[call_id] for call_id in kept]

    def _resend(self, frame: Frame) -> None:
        """The same message, the same call in a new message, or (a fault) other content under the same call_id."""
        rng, roll = self.world.rng, self.world.rng.random()
        if roll < 0.4:
            self.send(frame)
        elif roll < 0.8 or rng.random() > self.world.mix.conflict:
            self.send(frame | {"message_id": self._id("m")})
        else:
            other = frame["payload"] | {"input": {"n": rng.randint(1, 9)}}
            self.send(frame | {"message_id": self._id("m"), "payload": other})

    def acknowledge(self) -> None:
        rng = self.world.rng
        seq = self.seen if rng.random() < 0.8 else rng.randint(self.acked, self.seen)
        if rng.random() < self.world.mix.malformed:
            seq += 1000
        else:
            self.acked = max(self.acked, seq)
        self._say("ack", {"seq": seq})

    def unresolved(self) -> list[Frame]:
        """Calls of which it knows neither a result nor a refusal of the message itself."""
        left = []
        for call_id, frame in self.calls.items():
            receipt = self.receipts.get(frame["message_id"], {})
            refused = receipt.get("accepted") is False and not self._is_recorded_refusal(receipt)
            if call_id not in self.results and (
                not refused or receipt["code"] in ("storage_full", "rate_limited", "runtime_stopping")
            ):
                left.append(frame)
        return left

    @staticmethod
    def _is_recorded_refusal(receipt: Frame) -> bool:
        """A refused call has a result as well, but for refusals of the message that carried it."""
        return receipt.get("code") not in (
            "message_invalid",
            "call_id_conflict",
            "storage_full",
            "rate_limited",
            "runtime_stopping",
        )

    # frames

    def _conversation(self) -> str:
        opened = self.world.person.opened_for(self.agent_id)
        return self.world.rng.choice([*self.conversations, *opened])

    def _id(self, prefix: str) -> str:
        self._next += 1
        return f"{prefix}-{self.agent_id}-{self._next}"

    def _say(self, type_: str, payload: Frame, conversation: str | None = None) -> None:
        self.send(self._envelope(type_, payload, conversation))

    def _envelope(self, type_: str, payload: Frame, conversation: str | None = None) -> Frame:
        frame: Frame = {"type": f"lineup.v1.{type_}", "message_id": self._id("m"), "sent_at": AT, "payload": payload}
        return frame if conversation is None else frame | {"conversation_id": conversation}

    def _malformed(self) -> Any:
        good = self._envelope("message.text", {"text": "x"}, self.conversations[0])
        return self.world.rng.choice(
            (
                None,
                [],
                {},
                good | {"type": "lineup.v1.nonsense"},
                good | {"message_id": "not an id"},
                good | {"sent_at": "now"},
                good | {"extra": 1},
                good | {"payload": {"text": 7}},
                self._envelope("message.text", {"text": "no conversation"}),
                self._envelope("hello", {"agent_id": self.agent_id, "protocol": 1}),
            )
        )

    def send(self, frame: Any) -> None:
        link = self.link
        if link is not None:
            self.note("sent", frame, link.link_id)
            link.to_runtime.append(frame)

    def carry(self, link: Link) -> None:
        """Some of what was sent arrives."""
        for _ in range(self.world.rng.randint(1, len(link.to_runtime))):
            self._carry_one(link)

    def _carry_one(self, link: Link) -> None:
        frame = link.to_runtime.popleft()
        self.world.submit(ev.AgentFrame(event_id=self.world.new_id("e"), link_id=link.link_id, frame=frame))

    def hear(self, link: Link) -> None:
        """Some of what the Runtime sent on this link arrives."""
        for _ in range(self.world.rng.randint(1, len(link.to_agent))):
            item = link.to_agent.popleft()
            if isinstance(item, tuple) and item[0] == CLOSE:
                self.note("closed", item[1], link.link_id)
                self.cut(link)
                return
            self.note("received", item, link.link_id)
            self._take(item)
            payload = item["payload"]
            if item["type"] == "lineup.v1.error" and payload["code"] == "storage_full":
                self.cut(link)  # its hello may have been refused: the agent comes again
                return

    def _take(self, frame: Frame) -> None:
        type_, payload = frame["type"], frame["payload"]
        if type_ == "lineup.v1.client.inventory":
            self.revision = payload["revision"]
            self.tools = [tool["id"] for tool in payload["tools"]]
        elif type_ == "lineup.v1.welcome":
            self.acked = payload["acked_seq"]
        elif type_ == "lineup.v1.receipt":
            self.receipts[payload["reply_to"]] = payload
            if payload.get("code") in ("storage_full", "runtime_stopping"):
                self.asked_again.discard(payload["reply_to"])
        if "seq" in frame and frame["seq"] == self.seen + 1:
            self.seen += 1
            if type_ == "lineup.v1.tool.result":
                self.results[payload["call_id"]] = payload
