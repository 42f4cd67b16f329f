"""What many events of one commit send to one agent or one worker leaves together, in its order."""

from __future__ import annotations

import json
from typing import Any

from lineup_protocol.codec import decode_message
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.edges import host_link
from lineup_supervisor.edges.host_link import HostLink
from lineup_supervisor.outgoing import sends_last


def send(link_id: str, *numbers: int) -> fx.SendAgent:
    return fx.SendAgent(link_id=link_id, frames=tuple({"n": n} for n in numbers))


def close(link_id: str) -> fx.CloseAgent:
    return fx.CloseAgent(link_id=link_id, code=1008, reason="over")


def test_one_message_for_each_link_behind_everything_else() -> None:
    halt = fx.Halt(reason="stopped")
    effects: list[fx.AnyEffect] = [send("a", 1), send("b", 2), halt, send("a", 3, 4)]
    assert list(sends_last(effects)) == [halt, send("a", 1, 3, 4), send("b", 2)]


def test_a_close_stays_behind_what_was_said_before_and_before_what_comes_later() -> None:
    effects: list[fx.AnyEffect] = [send("a", 1), send("b", 2), close("a"), send("a", 3)]
    assert list(sends_last(effects)) == [send("a", 1), close("a"), send("b", 2), send("a", 3)]
    assert list(sends_last([close("a")])) == [close("a")]


def tell(instance_id: str, incarnation: int, *numbers: int) -> fx.SendWorker:
    messages = tuple({"type": "inbox.deliver", "body": {"seq": n}} for n in numbers)
    return fx.SendWorker(instance_id=instance_id, incarnation=incarnation, messages=messages)


def stop(instance_id: str, incarnation: int) -> fx.StopWorker:
    return fx.StopWorker(instance_id=instance_id, incarnation=incarnation, reason="idle", grace_ms=1)


def test_messages_of_one_incarnation_stay_together_and_before_its_stop() -> None:
    effects: list[fx.AnyEffect] = [tell("i", 1, 1), tell("j", 1, 2), tell("i", 1, 3), stop("i", 1), tell("i", 2, 4)]
    assert list(sends_last(effects)) == [tell("i", 1, 1, 3), stop("i", 1), tell("j", 1, 2), tell("i", 2, 4)]


class Wire:
    """A socket that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def send(self, peer: bytes, data: bytes) -> bool:
        type_, _, body = decode_message(data, "host", from_runtime=True)
        self.sent.append((type_, body))
        return True

    def watch(self, peer: bytes, pid: int) -> None: ...

    def pin(self, peer: bytes) -> None: ...


def carried(link: HostLink, wire: Any) -> None:
    from lineup_protocol.codec import encode_message

    link.socket = wire
    hello = {"protocols": [1], "role": "hostshell", "pid": 1}
    for type_, body in (("host.hello", hello), ("agent.frame", {"link_id": "a", "frame": {}})):
        link.on_message(b"peer", encode_message(type_, body, link="host", from_runtime=False))


def test_what_is_too_much_for_one_message_leaves_as_several(monkeypatch: Any) -> None:
    monkeypatch.setattr(host_link, "AGENT_SEND_BYTES_MAX", 100)
    events: list[ev.AnyEvent] = []
    wire = Wire()
    link = HostLink(
        submit=events.append,
        own=lambda *_: False,
        welcome=lambda _: {"boot_id": "b", "version": "1", "settings": {}},
        new_event_id=lambda: "e-1",
        on_lost=lambda *_: None,
        log=None,
    )
    carried(link, wire)
    texts = ["x" * 30, "y" * 30, "z" * 300, "", "好"]
    link.send_agent(fx.SendAgent(link_id="a", frames=tuple({"text": text} for text in texts)))
    sent = [body["frames"] for type_, body in wire.sent if type_ == "agent.send"]
    assert [json.loads(frame)["text"] for frames in sent for frame in frames] == texts
    assert [len(frames) for frames in sent] == [2, 1, 2]
