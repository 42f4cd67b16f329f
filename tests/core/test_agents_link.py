"""The agent link: hello, the outbox's window and resends, takeover, frames that cannot be taken."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import AT, Core
from lineup_protocol import limits
from lineup_supervisor.core.schema import AGENTS, OUTBOX_ITEMS


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def texts(core: Core, count: int) -> None:
    """The person says something ``count`` times, so that as many durable messages wait for a1."""
    if not list(core.query("snapshot")["conversations"]):
        core.send("message.text", {"text": "hello"}, conversation="c1")
    for n in range(count):
        core.did("person.text", conversation_id="c1", text=f"t{n}")


def seqs(frames: list[Any]) -> list[int]:
    return [frame["seq"] for frame in frames if "seq" in frame]


def test_hello_is_answered_by_welcome_and_inventory() -> None:
    core = Core()
    welcome, inventory = core.connect("a1")
    assert welcome["type"] == "lineup.v1.welcome"
    assert welcome["payload"] == {"boot_id": core.query("status")["boot_id"], "protocol": 1, "acked_seq": 0}
    assert inventory["type"] == "lineup.v1.client.inventory"
    assert inventory["payload"]["revision"] == core.revision
    ids = [tool["id"] for tool in inventory["payload"]["tools"]]
    assert ids == sorted(ids)
    assert {"notice", "choice", "confirm", "input", "lab.launch", "timer.start"} <= set(ids)
    assert all("deadline" not in tool for tool in inventory["payload"]["tools"])


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"agent_id": "a1", "protocol": 2}, "protocol_unsupported"),
        ({"agent_id": "a1", "protocol": 1, "acked_seq": 1}, "message_invalid"),
        ({"agent_id": "a1", "protocol": 1, "acked_seq": -1}, "message_invalid"),
        ({"agent_id": "cli", "protocol": 1}, "unauthorized"),
        ({"agent_id": "no id", "protocol": 1}, "message_invalid"),
    ],
)
def test_a_hello_that_cannot_be_is_refused_and_the_link_closed(payload: Any, code: str) -> None:
    core = Core()
    before = core.dump()
    (error,) = core.send("hello", payload, link="l1")
    assert (error["type"], error["payload"]["code"]) == ("lineup.v1.error", code)
    assert core.closed["l1"][0] == 1008
    assert core.dump() == before


@pytest.mark.parametrize(
    "frame", [None, 7, [], {}, {"type": "lineup.v1.ping"}, {"type": "lineup.v1.nonsense", "message_id": "m"}]
)
def test_a_malformed_frame_gets_an_error_and_the_link_lives(core: Core, frame: Any) -> None:
    before = core.dump()
    (error,) = core.send_raw(frame)
    assert error["type"] == "lineup.v1.error"
    assert error["payload"]["code"] == "message_invalid"
    assert "a1" not in core.closed
    assert core.dump() == before
    assert core.audited("frame.refused")


def test_the_first_frame_must_be_hello() -> None:
    core = Core()
    (error,) = core.send("ping", {}, link="l1")
    assert error["payload"]["code"] == "unauthorized"
    assert core.closed["l1"][0] == 1008


def test_ping_pong(core: Core) -> None:
    (pong,) = core.send("ping", {})
    assert pong["type"] == "lineup.v1.pong"


def test_a_second_hello_on_one_link_is_refused(core: Core) -> None:
    (error,) = core.connect("a1")
    assert error["payload"]["code"] == "message_invalid"


@pytest.mark.conformance("03-9.10")
def test_seq_goes_up_by_one_and_is_sent_until_acknowledged(core: Core) -> None:
    texts(core, 5)
    assert seqs(core.frames["a1"]) == [1, 2, 3, 4, 5]
    core.send("ack", {"seq": 2})
    core.hang_up()
    frames = core.connect("a1", "l2")
    assert frames[0]["payload"]["acked_seq"] == 2
    assert seqs(frames) == [3, 4, 5]
    first = {f["seq"]: f for f in core.frames["a1"] if "seq" in f}
    assert all(frame == first[frame["seq"]] for frame in frames if "seq" in frame), "the same frames again"


def test_hello_may_say_how_far_the_agent_is(core: Core) -> None:
    texts(core, 5)
    core.hang_up()
    frames = core.connect("a1", "l2", acked_seq=4)
    assert frames[0]["payload"]["acked_seq"] == 4
    assert seqs(frames) == [5]


def test_what_was_never_sent_is_not_taken_over_by_a_hello(core: Core) -> None:
    """After a restore an agent remembers numbers of a history that is gone; new messages may have them again."""
    core.send("message.text", {"text": "hello"}, conversation="c1")
    core.hang_up()
    texts(core, 5)
    frames = core.connect("a1", "l2", acked_seq=3)
    assert frames[0]["payload"]["code"] == "message_invalid"
    assert seqs(core.connect("a1", "l3")) == [1, 2, 3, 4, 5]


def test_an_older_word_than_what_is_known_changes_nothing(core: Core) -> None:
    texts(core, 5)
    core.send("ack", {"seq": 4})
    core.hang_up()
    frames = core.connect("a1", "l2", acked_seq=1)
    assert (frames[0]["payload"]["acked_seq"], seqs(frames)) == (4, [5])


def test_an_ack_beyond_what_was_sent_is_refused(core: Core) -> None:
    texts(core, 2)
    before = core.dump()
    (error,) = core.send("ack", {"seq": 3})
    assert error["payload"]["code"] == "message_invalid"
    assert error["payload"]["message"] == "/payload/seq: 3 was never sent; the last one that was is 2"
    assert core.dump() == before
    (error,) = core.send("ack", {"seq": -1})
    assert error["payload"]["code"] == "message_invalid"


def test_an_ack_twice_or_backwards_is_nothing(core: Core) -> None:
    texts(core, 3)
    core.send("ack", {"seq": 3})
    before = core.dump()
    assert core.send("ack", {"seq": 3}) == []
    assert core.send("ack", {"seq": 1}) == []
    assert core.dump() == before
    assert list(core.scan(OUTBOX_ITEMS)) == []


def test_the_window_bounds_what_is_under_way(core: Core) -> None:
    count = limits.OUTBOX_WINDOW_MESSAGES_MAX
    texts(core, count + 3)
    assert seqs(core.frames["a1"]) == list(range(1, count + 1))
    frames = core.send("ack", {"seq": 2})
    assert seqs(frames) == [count + 1, count + 2]


def test_a_newer_link_takes_over(core: Core) -> None:
    texts(core, 2)
    frames = core.connect("a1", "l2")
    assert core.closed["a1"][0] == 4000
    assert seqs(frames) == [1, 2]
    (error,) = core.send("ping", {}, link="a1")
    assert error["payload"]["code"] == "unauthorized", "the older link speaks for nobody any more"
    core.hang_up("a1")
    texts(core, 1)
    assert seqs(core.frames["l2"]) == [1, 2, 3]
    assert core.row(AGENTS, "a1").link_id == "l2"


@pytest.mark.conformance("03-9.13")
def test_what_a_person_writes_waits_for_the_agent(core: Core) -> None:
    core.send("message.text", {"text": "hello"}, conversation="c1")
    core.hang_up()
    core.did("person.text", conversation_id="c1", text="are you there?")
    core.boot()
    frames = core.connect("a1", "l2")
    assert [f["payload"]["text"] for f in frames if "seq" in f] == ["are you there?"]


@pytest.mark.conformance("03-9.13")
def test_texts_of_agents_are_durable_deliveries_to_interact(core: Core) -> None:
    frame = {
        "type": "lineup.v1.message.text",
        "message_id": "m-1",
        "conversation_id": "c1",
        "sent_at": AT,
        "payload": {"text": "hi"},
    }
    core.send_raw(frame)
    core.send_raw(frame)
    chat = core.start("chat")
    assert [d["body"]["text"] for d in chat.deliveries("message.text")] == ["hi"], "once, though sent twice"
    assert [e["text"] for e in core.query("timeline", conversation_id="c1")["entries"]] == ["hi"]


def test_a_conversation_belongs_to_the_agent_that_first_used_it(core: Core) -> None:
    core.send("message.text", {"text": "mine"}, conversation="c1")
    core.connect("a2")
    before = core.dump("receipts", "receipt_ring", "agents")
    (receipt,) = core.send("message.text", {"text": "no, mine"}, link="a2", conversation="c1")
    assert receipt["payload"]["code"] == "unauthorized"
    assert core.dump("receipts", "receipt_ring", "agents") == before


def test_a_persons_conversation_belongs_to_the_agent_connected_last(core: Core) -> None:
    core.connect("a2")
    opened = core.did("conversation.open", title="Hello")
    assert opened["agent_id"] == "a2"
    core.did("person.text", conversation_id=opened["conversation_id"], text="hi")
    assert seqs(core.frames["a2"]) == [1]
    assert core.did("conversation.open", agent_id="a1")["agent_id"] == "a1"
    assert core.action("conversation.open", agent_id="nobody").code == "not_found"


def test_the_inventory_changes_with_its_content_and_not_else(core: Core) -> None:
    before = core.revision
    core.did("apps.disable", actor="operator", app_scope="lab2")
    assert core.revision != before
    pushed = [f for f in core.frames["a1"] if f["type"] == "lineup.v1.client.inventory"]
    assert pushed[-1]["payload"]["revision"] == core.revision
    assert not any(tool["id"].startswith("lab2.") for tool in pushed[-1]["payload"]["tools"])
    core.did("apps.enable", actor="operator", app_scope="lab2")
    assert core.revision == before, "the same content, the same revision"
    count = len(core.frames["a1"])
    core.boot()
    assert core.revision == before
    assert len(core.frames["a1"]) == count


def test_calls_of_the_operator_have_records_and_no_outbox(core: Core) -> None:
    answer = core.did(
        "call.start", actor="operator", call_id="k1", tool_id="lab.direct", conversation_id="c1", input={"n": 1}
    )
    assert answer["receipt"]["accepted"]
    worker = core.start("lab")
    worker.take("k1")
    worker.accept("tool.progress", call_id="k1", progress=0.5)
    worker.accept("tool.complete", call_id="k1", result={"n": 2})
    assert core.query("call", call_id="k1")["result"] == {"n": 2}
    assert list(core.scan(OUTBOX_ITEMS)) == []
    again = core.did(
        "call.start", actor="operator", call_id="k1", tool_id="lab.direct", conversation_id="c1", input={"n": 1}
    )
    assert again["record"]["status"] == "completed"


def test_an_action_twice_has_one_effect(core: Core) -> None:
    core.send("message.text", {"text": "hello"}, conversation="c1")
    first = core.action("person.text", action_id="x-1", conversation_id="c1", text="once")
    before = core.dump()
    again = core.action("person.text", action_id="x-1", conversation_id="c1", text="once")
    assert (again.accepted, again.detail) == (first.accepted, first.detail)
    assert core.dump() == before


def test_a_refusal_that_asks_to_try_again_is_not_kept(core: Core) -> None:
    core.call_accepted("lab.direct")
    core.start("lab")
    core.stop()
    args = {"call_id": "k2", "tool_id": "lab.direct", "input": {"n": 1}, "conversation_id": "c1"}
    refused = core.action("call.start", actor="operator", action_id="x-1", **args)
    assert refused.code == "runtime_stopping"
    core.boot()
    assert core.action("call.start", actor="operator", action_id="x-1", **args).accepted


def test_a_watcher_hears_of_every_change(core: Core) -> None:
    from lineup_supervisor.core import events as ev

    core.call_accepted("lab.direct")
    core.do(ev.HostWatch(event_id=core.new_id(), reply_to="w", agent_id="a1", call_id="k1"))
    assert core.replies["w"].detail["record"]["status"] == "waiting_for_app"
    worker = core.start("lab")
    worker.take("k1")
    worker.accept("tool.progress", call_id="k1", progress=0.5)
    worker.accept("tool.complete", call_id="k1", result={"n": 1})
    records = [change["row"] for change in core.deltas if change["kind"] == "call"]
    assert [record["status"] for record in records][-3:] == ["running", "running", "completed"]
    core.do(ev.HostWatch(event_id=core.new_id(), reply_to="w2", agent_id="", call_id="k-none"))
    assert core.replies["w2"].code == "call_not_found"
