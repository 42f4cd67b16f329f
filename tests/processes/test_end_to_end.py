"""The whole way of a call over real processes: agent, hostshell, supervisor, sandboxed worker, and the command line.

The agent here is ``support.agent``: raw frames on the ``websockets`` package.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from processes.support.agent import Agent, Cut
from processes.support.judge import assert_kept, in_thread, proof_of, settled
from processes.support.operator import Operator
from processes.support.runtime import Runtime
from processes.support.waiting import until, until_async

Ids = Callable[[str], str]
FRAME_BYTES_MAX = 1024 * 1024


async def agent(runtime: Runtime, agent_id: str, **options: Any) -> Agent:
    made = Agent(runtime, agent_id, **options)
    await made.connect()
    return made


async def test_hello_welcome_inventory_call_progress_result_ack(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"), acks=False)
    kinds = [frame["type"] for frame in me.frames]
    assert kinds == ["lineup.v1.welcome", "lineup.v1.client.inventory"]
    assert me.welcome == {"boot_id": shared.facts()["boot_id"], "protocol": 1, "acked_seq": 0}
    tools = {tool["id"]: tool for tool in me.frames[1]["payload"]["tools"]}
    assert {"task-dashboard.open", "notice", "choice", "confirm", "input", "lab.echo"} <= set(tools)
    assert tools["lab.slowly"]["input_schema"]["required"] == ["text"]

    call_id = unique("k")
    message_id = await me.call("lab.slowly", {"text": "hi"}, call_id=call_id)
    assert await me.receipt(message_id) == {"reply_to": message_id, "accepted": True}
    result = await me.result(call_id)
    assert result["status"] == "completed"
    assert result["result"] == {"text": "hi", "proof": proof_of(call_id, "hi"), "attempt": 1}
    durable = [frame for frame in me.frames if "seq" in frame]
    assert [frame["seq"] for frame in durable] == list(range(1, len(durable) + 1))
    steps = [p["progress"] for p in me.progress[call_id]]
    assert steps == sorted(steps)
    assert steps[-1] == 0.75
    assert {frame["conversation_id"] for frame in durable} == {me.conversation}
    assert shared.query("status")["outbox"] == len(durable)
    await me.ack()
    record = await me.record(call_id)
    assert (record["status"], record["agent_id"], record["attempt"]) == ("completed", unique("a"), 1)
    await until(lambda: shared.query("status")["outbox"] == 0, 5, "the outbox is empty after the acknowledgement")
    await me.leave()
    assert_kept(shared, me)


async def test_the_command_line_in_three_processes(shared: Runtime) -> None:
    """A task is opened and watched, moved in another terminal, and ends for the first one."""
    opened = shared.cli_begin("call", "task-dashboard.open", '{"task_id": "t1", "title": "Write report"}')
    try:
        await until(lambda: _open_call(shared) is not None, 20, "the task's call runs")
        call_id = _open_call(shared)
        assert call_id is not None
        moved = await in_thread(
            shared.cli,
            "call",
            "task-dashboard.update",
            '{"task_id": "t1", "progress": 0.6, "note": "draft is written"}',
        )
        assert moved.returncode == 0, moved.stderr
        assert json.loads(moved.stdout)["progress"] == 0.6
        assert opened.poll() is None
        ended = await in_thread(shared.cli, "call", "task-dashboard.update", '{"task_id": "t1", "status": "completed"}')
        assert ended.returncode == 0, ended.stderr
        out, err = await in_thread(opened.communicate, None, 20)
    finally:
        opened.kill()
        opened.wait()
    assert opened.returncode == 0, err
    assert json.loads(out[out.index("{") :]) == {"status": "completed"}
    assert "draft is written" in out + err
    story = await in_thread(shared.cli, "story", call_id)
    for words in ("call made", "task-dashboard.open", "progress", "call completed", "focus returned"):
        assert words in story.stdout, story.stdout
    verified = await in_thread(shared.cli, "audit", "verify")
    assert verified.returncode == 0, verified.stderr
    assert_kept(shared)


def _open_call(runtime: Runtime) -> str | None:
    for record in runtime.query("calls", state="open")["calls"]:
        if record["tool_id"] == "task-dashboard.open" and record["status"] == "running":
            return str(record["call_id"])
    return None


async def test_the_older_form_asks_a_person(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    question = {"title": "Go on?", "prompt": "It costs nothing."}
    message_id = await me.say("tool.call", {"call_id": unique("k"), "tool": "confirm", "input": question}, unique("c"))
    assert (await me.receipt(message_id))["accepted"]
    record = await me.record(unique("k"))
    assert (record["tool_id"], record["app_scope"]) == ("confirm", "chat")
    answer = shared.action(
        "interaction.answer",
        unique("answer"),
        interaction_id=record["interaction_id"],
        result={"approved": True},
    )
    assert answer["accepted"], answer
    result = await me.result(unique("k"))
    assert (result["status"], result["result"]) == ("completed", {"approved": True})
    again = shared.action(
        "interaction.answer", unique("late"), interaction_id=record["interaction_id"], result={"approved": False}
    )
    assert (again["accepted"], again["code"]) == (False, "interaction_already_final")
    await settled(shared, me)
    await me.leave()
    assert_kept(shared, me)


async def test_a_question_is_answered_from_the_command_line(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    actions = [{"id": "now", "label": "Now"}, {"id": "later", "label": "Later"}]
    await me.call(
        "choice",
        {"title": "When?", "prompt": "Pick one.", "mode": "single-choice", "actions": actions},
        call_id=unique("k"),
        conversation=unique("c"),
    )
    question = await until_async(lambda: _question_of(me, unique("k")), 10, "the question is asked")
    listed = await in_thread(shared.cli, "interactions", "--json")
    assert question in {row["interaction_id"] for row in json.loads(listed.stdout)}
    answered = await in_thread(shared.cli, "answer", question, '{"action_ids": ["later", "later"]}')
    assert answered.returncode == 0, answered.stderr
    assert (await me.result(unique("k")))["result"] == {"action_ids": ["later"]}
    await settled(shared, me)
    await me.leave()


async def _question_of(me: Agent, call_id: str) -> str | None:
    return (await me.record(call_id)).get("interaction_id")


async def test_cancel_is_acknowledged_and_ends_the_call_once(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    await me.call("lab.hold", {"text": "x", "until_attempt": 9}, call_id=unique("k"), conversation=unique("c"))
    await until_async(lambda: _is_running(me, unique("k")), 15, "the call runs")
    message_id = await me.say("tool.cancel", {"call_id": unique("k"), "reason": "changed my mind"})
    assert (await me.receipt(message_id))["accepted"]
    result = await me.result(unique("k"))
    assert (result["status"], result["error"]) == ("cancelled", {"code": "cancelled", "message": "changed my mind"})
    late = await me.say("tool.cancel", {"call_id": unique("k")})
    refusal = await me.receipt(late)
    assert (refusal["accepted"], refusal["code"]) == (False, "call_already_final")
    unknown = await me.receipt(await me.say("tool.cancel", {"call_id": "no-such-call"}))
    assert (unknown["accepted"], unknown["code"]) == (False, "call_not_found")
    await settled(shared, me)
    await me.leave()
    assert_kept(shared, me)


async def _is_running(me: Agent, call_id: str) -> bool:
    return bool((await me.record(call_id))["status"] == "running")


async def test_a_call_that_runs_out_of_time_expires_and_a_late_result_is_dropped(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    await me.call("lab.echo", {"text": "warm"}, call_id=unique("w"), conversation=unique("c"))
    await me.result(unique("w"))
    for tool in ("brief", "deaf"):
        await me.call(f"lab.{tool}", {"text": "x"}, call_id=unique(tool), conversation=unique("c"))
    for tool in ("brief", "deaf"):
        result = await me.result(unique(tool))
        assert (result["status"], result["error"]["code"]) == ("expired", "tool_timeout")
    # What the deaf one says after its end comes before this answer of the same worker.
    await me.call("lab.echo", {"text": "after"}, call_id=unique("after"), conversation=unique("c"))
    assert (await me.result(unique("after")))["status"] == "completed"
    await settled(shared, me)
    await me.leave()
    assert_kept(shared, me)


async def test_failures_of_the_miniapp_are_typed(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    wanted = {"wrong": ("failed", "tool_output_invalid"), "boom": ("failed", "tool_failed")}
    for tool in wanted:
        await me.call(f"lab.{tool}", {"text": "x"}, call_id=unique(tool), conversation=unique("c"))
    for tool, expected in wanted.items():
        result = await me.result(unique(tool))
        assert (result["status"], result["error"]["code"]) == expected
    await settled(shared, me)
    await me.leave()
    assert_kept(shared, me)


async def test_refusals_are_durable_results_and_name_their_place(shared: Runtime, unique: Ids) -> None:
    """Stale revision, no such tool, bad input: ``rejected``, sent again after a reconnect until acknowledged."""
    me = await agent(shared, unique("a"), acks=False)
    first = await me.receipt(await me.call("lab.echo", {"text": "x"}, call_id=unique("s"), revision="r-0000"))
    assert (first["code"], first["detail"]["current"]) == ("inventory_revision_mismatch", me.revision)
    second = await me.receipt(await me.call("lab.nothing", {}, call_id=unique("t")))
    assert second["code"] == "tool_not_advertised"
    third = await me.receipt(await me.call("lab.echo", {"text": 7}, call_id=unique("i")))
    assert (third["code"], third["detail"]["path"]) == ("tool_input_invalid", "/text")
    fourth = await me.receipt(
        await me.call("task-dashboard.update", {"task_id": "t"}, call_id=unique("n"), conversation=unique("c"))
    )
    assert fourth["code"] == "app_instance_not_found"
    calls = [unique(name) for name in "stin"]
    for call_id in calls:
        result = await me.result(call_id)
        assert result["status"] == "rejected"
        assert "result" not in result
    await me.cut()
    before = len([frame for frame in me.frames if "seq" in frame])
    await me.connect()
    await me.until(lambda: len([f for f in me.frames if "seq" in f]) == 2 * before, 5, "all of them again")
    await me.ack()
    await settled(shared, me)
    await me.leave()
    assert_kept(shared, me)


async def test_texts_go_both_ways_and_wait_for_the_agent(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    assert (await me.receipt(await me.say("message.text", {"text": "**hello**"}, unique("c"))))["accepted"]
    entries = shared.query("timeline", conversation_id=unique("c"))["entries"]
    assert [(entry["kind"], entry["text"]) for entry in entries] == [("text", "**hello**")]
    await me.leave()
    await until(lambda: not _connected(shared, unique("a")), 5, "the Runtime knows that the agent has left")
    said = shared.action("person.text", unique("p"), conversation_id=unique("c"), text="hello yourself")
    assert said["accepted"], said
    await me.connect()
    await me.until(lambda: me.texts, 5, "the person's text")
    assert [text["text"] for text in me.texts] == ["hello yourself"]
    other = await agent(shared, unique("b"))
    stolen = await other.receipt(await other.say("message.text", {"text": "mine now"}, unique("c")))
    assert (stolen["accepted"], stolen["code"]) == (False, "unauthorized")
    await settled(shared, me, other)
    await me.leave()
    await other.leave()
    assert_kept(shared, me, other)


def _connected(runtime: Runtime, agent_id: str) -> bool:
    return any(row["agent_id"] == agent_id and row["connected"] for row in runtime.query("status")["agents"])


async def test_reconnect_resumes_behind_what_was_taken_over(shared: Runtime, unique: Ids) -> None:
    """A7: the link is cut before the acknowledgement; the same ids and seqs come again, unless hello says otherwise."""
    me = await agent(shared, unique("a"), acks=False)
    for n in range(4):
        await me.call("lab.echo", {"text": str(n)}, call_id=unique(f"k{n}"), conversation=unique("c"))
    for n in range(4):
        await me.result(unique(f"k{n}"))
    first = [frame for frame in me.frames if "seq" in frame]
    await me.cut()
    await me.connect()
    await me.until(lambda: len([f for f in me.frames if "seq" in f]) == 8, 5, "the four again")
    assert [frame for frame in me.frames if "seq" in frame][4:] == first
    await me.cut()
    await me.connect(acked_seq=3)
    assert me.welcome["acked_seq"] == 3
    await me.until(lambda: len([f for f in me.frames if "seq" in f]) == 9, 5, "the last one")
    assert me.frames[-1]["seq"] == 4
    await me.ack()
    await settled(shared, me)
    await me.cut()
    await me.connect(acked_seq=4)
    assert me.welcome["acked_seq"] == 4
    await me.leave()
    assert_kept(shared, me)


async def test_a_seq_that_was_never_sent_is_refused(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    await me.send_frame(me.frame("ack", {"seq": 99}))
    await me.until(lambda: me.errors, 5, "the refusal")
    assert me.errors[0]["code"] == "message_invalid"
    await me.leave()
    with pytest.raises(Cut):
        await me.connect(acked_seq=99)
    await until(lambda: me.closed, 5, "the link is closed")
    assert me.closed is not None
    assert me.closed[0] == 1008
    await me.leave()


async def test_a_second_link_takes_over(shared: Runtime, unique: Ids) -> None:
    """F9: the newer link wins, the older is closed with a reason; nothing is delivered on both."""
    old = await agent(shared, unique("a"), acks=False)
    await old.call("lab.hold", {"text": "x", "until_attempt": 9}, call_id=unique("k"), conversation=unique("c"))
    await until_async(lambda: _is_running(old, unique("k")), 15, "the call runs")
    new = await agent(shared, unique("a"))
    await until(lambda: old.closed, 5, "the older link is closed")
    assert old.closed is not None
    assert old.closed[0] == 4000
    assert "taken over" in old.closed[1]
    before = len(old.frames)
    await new.say("tool.cancel", {"call_id": unique("k")})
    assert (await new.result(unique("k")))["status"] == "cancelled"
    assert len(old.frames) == before
    await settled(shared, new)
    await old.leave()
    await new.leave()


async def test_the_same_message_again_has_no_second_effect(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    message = me.frame("message.text", {"text": "once"}, unique("c"))
    for _ in range(3):
        await me.send_frame(message)
    await me.until(lambda: _receipts_of(me, message["message_id"]) == 3, 5, "three receipts")
    assert len(shared.query("timeline", conversation_id=unique("c"))["entries"]) == 1

    payload = {"call_id": unique("k"), "tool_id": "lab.once", "input": {"text": "x"}, "inventory_revision": me.revision}
    frame = me.frame("tool.call", payload, unique("c"))
    await me.send_frame(frame)
    await me.send_frame(frame)
    result = await me.result(unique("k"))
    await me.send_frame(me.frame("tool.call", payload, unique("c")))  # the same call under a new message_id
    other = me.frame("tool.call", payload | {"input": {"text": "y"}}, unique("c"))
    await me.send_frame(other)
    refusal = await me.receipt(other["message_id"])
    assert (refusal["accepted"], refusal["code"]) == (False, "call_id_conflict")
    records = [f["payload"] for f in me.frames if f["payload"].get("detail") and f["type"].endswith("receipt")]
    assert records[-1]["detail"]["result"] == result["result"]
    assert len([f for f in me.frames if f["type"] == "lineup.v1.tool.result"]) == 1
    await me.call("lab.tally", {"text": ""}, call_id=unique("tally"), conversation=unique("c"))
    assert (await me.result(unique("tally")))["result"] == {"texts": ["x"]}
    await settled(shared, me)
    await me.leave()
    assert_kept(shared, me)


def _receipts_of(me: Agent, message_id: str) -> int:
    return len([f for f in me.frames if f["type"].endswith("receipt") and f["payload"]["reply_to"] == message_id])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("x" * (FRAME_BYTES_MAX + 1), 1009),
        (b'{"type": "\xff\xfe"}', 1007),
        (b"\x00binary", 1008),
    ],
    ids=["oversize", "bad-utf-8", "binary"],
)
async def test_what_cannot_be_a_frame_closes_the_link(
    shared: Runtime, unique: Ids, data: str | bytes, code: int
) -> None:
    me, other = await agent(shared, unique("a")), await agent(shared, unique("b"))
    if code == 1007:  # a text frame whose bytes are no UTF-8: below what the library would send
        assert me._socket is not None
        me._socket.protocol.send_text(bytes(data))
        me._socket.transport.write(b"".join(me._socket.protocol.data_to_send()))
    else:
        await me.send_raw(data)
    await until(lambda: me.closed, 5, "the link is closed")
    assert me.closed is not None
    assert me.closed[0] == code
    await other.send_frame(other.frame("ping", {}))
    await other.until(lambda: other.frames[-1]["type"] == "lineup.v1.pong", 5, "the others go on")
    await me.leave()
    await other.leave()


async def test_malformed_envelopes_are_answered_and_change_nothing(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    good = me.frame("message.text", {"text": "x"}, unique("c"))
    bad: list[tuple[Any, str]] = [
        ("not json", "message_invalid"),
        ("[]", "message_invalid"),
        ('{"type": "lineup.v1.ping", "type": "lineup.v1.ping"}', "message_invalid"),
        (good | {"extra": 1}, "message_invalid"),
        (good | {"type": "lineup.v1.nothing"}, "message_invalid"),
        (good | {"message_id": "with space"}, "message_invalid"),
        (good | {"sent_at": "yesterday"}, "message_invalid"),
        (good | {"conversation_id": "\u202e"}, "message_invalid"),
        (good | {"payload": {"text": 1}}, "message_invalid"),
        ('{"type": NaN}', "message_invalid"),
    ]
    before = shared.query("status")["instances"]
    for number, (content, code) in enumerate(bad, start=1):
        await me.send_raw(content if isinstance(content, str) else json.dumps(content))
        await me.until(lambda number=number: len(me.errors) == number, 5, f"an answer to {content!r}")
        assert me.errors[-1]["code"] == code, content
    assert shared.query("status")["instances"] == before
    await me.call("lab.echo", {"text": "still here"}, call_id=unique("k"))
    assert (await me.result(unique("k")))["status"] == "completed"
    await settled(shared, me)
    await me.leave()


async def test_without_hello_or_token_there_is_no_link(shared: Runtime, unique: Ids) -> None:
    mute = Agent(shared, unique("a"))
    await mute.connect(hello=False)
    await mute.send_frame(mute.frame("message.text", {"text": "x"}, "c-1"))
    await until(lambda: mute.closed, 5, "the link is closed")
    assert mute.closed is not None
    assert mute.closed[0] == 1008
    assert mute.errors[0]["code"] == "unauthorized"
    await mute.leave()
    operator = Agent(shared, "cli")
    with pytest.raises(Cut):
        await operator.connect()
    await operator.leave()


async def test_many_calls_in_flight_keep_their_order_of_numbers(shared: Runtime, unique: Ids) -> None:
    agents = [await agent(shared, unique(f"a{n}")) for n in range(3)]
    for number, me in itertools.product(range(20), agents):
        await me.call("lab.echo", {"text": str(number)}, call_id=f"k-{number}")
    for me in agents:
        await me.until(lambda me=me: len(me.results) == 20, 30, "twenty results")
    await settled(shared, *agents)
    await asyncio.gather(*(me.leave() for me in agents))
    assert_kept(shared, *agents)


async def test_two_at_the_operators_link_get_the_same_answer_to_the_same_action(shared: Runtime, unique: Ids) -> None:
    me = await agent(shared, unique("a"))
    await me.receipt(await me.say("message.text", {"text": "x"}, unique("c")))
    with Operator(shared.home) as one, Operator(shared.home) as two:
        first = one.action("person.text", unique("p"), conversation_id=unique("c"), text="only once")
        second = two.action("person.text", unique("p"), conversation_id=unique("c"), text="only once")
    assert {**first, "re": ""} == {**second, "re": ""}
    await me.until(lambda: me.texts, 5, "the text")
    await settled(shared, me)
    assert len(me.texts) == 1
    await me.leave()
