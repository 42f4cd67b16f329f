"""What is fuzzed: one Runtime's core with something of everything in it, and the three ways in.

Each input meets the same scene: what it does is taken back. Whatever leaves but a typed refusal is a finding.
"""

from __future__ import annotations

from typing import Any

from core.harness import CONFIRM, Core
from lineup_protocol.codec import CAPS, encode
from lineup_protocol.errors import LineUpError
from lineup_protocol.strict_json import decode_json
from lineup_supervisor import worker_link
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core import invariants
from lineup_supervisor.core.schema import ARTIFACTS, INSTANCES, SESSIONS, SURFACES
from lineup_supervisor.core.step import step
from lineup_supervisor.edges.host_link import HostLink

LINKS = ("worker", "host", "agent")
DAEMONS = ("apps.add", "doctor")  # answered, or made complete, before the core hears of them


class _Undo(Exception):
    """Ends the transaction of one input."""


class _Quiet:
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Scene:
    """See the module."""

    def __init__(self) -> None:
        self.core = Core()
        self.core.call("lab.direct", call_id="k-lab", conversation="c1")
        self.worker = self.core.unstarted[-1].run()
        self.worker.take("k-lab")
        self.worker.accept("ui.request", request={"kind": "confirm", **CONFIRM}, parent_call_id="k-lab")
        self.worker.accept("surface.open", entry="surface/index.html", state={"a": 1})
        self.worker.accept("state.save", state={"mine": 1})
        self.worker.accept("artifact.submit", title="t", media_type="text/plain", content=b"mine")
        self.core.call("timer.start", {"duration_seconds": 60}, call_id="k-timer", conversation="c2")
        self.core.call("lab2.launch", call_id="k-lab2", conversation="c3")
        self.core.call("confirm", dict(CONFIRM), call_id="k-confirm", conversation="c1")
        self._events: list[ev.AnyEvent] = []
        self._seen = 0

    def words(self) -> list[str]:
        """Ids and names that reach further than random ones."""
        tables = (INSTANCES, SURFACES, ARTIFACTS, SESSIONS)
        ids = [str(part) for table in tables for key, _ in self.core.scan(table) for part in key]
        ids += [row["interaction_id"] for row in self.core.questions()]
        return [
            *ids,
            "k-lab",
            "k-timer",
            "k-lab2",
            "k-confirm",
            "c1",
            "c2",
            "c3",
            "a1",
            self.core.revision,
            "lab",
            "lab2",
        ]

    def feed(self, link: str, data: bytes) -> str:
        """Give one input to one link: ``refused`` by a typed error at the edge, or ``stepped`` by the core.

        Raises whatever the code under test raises that is no typed refusal.
        """
        self._events = []
        getattr(self, f"_{link}")(data)
        try:
            with self.core.store.write() as txn:
                for event in self._events:
                    for effect in step(txn, event, self.core.now):
                        check_effect(effect)
                self._seen += 1
                if self._events and self._seen % 20 == 0:
                    faults = list(invariants.find_faults(txn))
                    assert not faults, faults
                raise _Undo
        except _Undo:
            return "stepped" if self._events else "refused"

    def _worker(self, data: bytes) -> None:
        try:
            frame = worker_link._frame(data)
        except LineUpError:
            return
        who = {"instance_id": self.worker.instance_id, "incarnation": self.worker.incarnation}
        self._events.append(ev.WorkerFrame(event_id="f-1", frame=frame, **who))

    def _agent(self, data: bytes) -> None:
        try:
            text = data.decode()
            frame = decode_json(text, **CAPS["agent", False]._asdict())
        except (LineUpError, UnicodeDecodeError):  # bad UTF-8 ends at the WebSocket
            return
        if isinstance(frame, dict):
            self._events.append(ev.AgentFrame(event_id="f-1", link_id="a1", frame=frame))

    def _host(self, data: bytes) -> None:
        link = HostLink(
            submit=self._events.append,
            own=lambda request, *rest: request.name in DAEMONS or request.name.startswith(("host.", "runtime.")),
            welcome=lambda session: {"boot_id": "b", "version": "1", "settings": {}},
            new_event_id=lambda: "f-1",
            on_lost=lambda session, reason: None,
            log=_Quiet(),
        )
        link.socket = _Quiet()  # type: ignore[assignment]
        hello = {"type": "host.hello", "body": {"protocols": [1], "role": "cli", "pid": 1}}
        link.on_message(b"peer", encode(hello, CAPS["host", False]))
        link.on_message(b"peer", data)


def check_effect(effect: fx.AnyEffect) -> None:
    """What goes out can be sent, and nothing of it says that the Runtime is broken."""
    messages: tuple[Any, ...] = ()
    caps = CAPS["host", True]
    if isinstance(effect, fx.SendWorker):
        messages, caps = effect.messages, CAPS["worker", True]
    elif isinstance(effect, fx.SendAgent):
        messages = effect.frames
    elif isinstance(effect, fx.ReplyHost):
        assert effect.code != "internal_error", effect
        messages = ({"detail": effect.detail, "message": effect.message},)
    elif isinstance(effect, fx.HostDelta):
        messages = ({"changes": list(effect.changes)},)
    for message in messages:
        encode(message, caps)
