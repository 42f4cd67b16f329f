"""Nothing that a worker, an agent, a Host or the operator says gets into a frame, a row or the audit at any length.

Generated from the protocol's table, so that a message that comes new to it is tried too.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from core.harness import AT, CONFIRM, Core, Worker
from lineup_protocol import limits
from lineup_protocol.messages import AGENT_LINK, LENGTHS, WORKER_LINK, Message
from lineup_supervisor.core import actions
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.audit import NO_HASH, chain, public
from lineup_supervisor.core.schema import AUDIT, CALLS
from simulation import bundles

HUGE = "x" * 3_000_000
AUDIT_ROW_BYTES_MAX = 32 * limits.KIB
Body = dict[str, Any]


def _samples() -> dict[str, Any]:
    """One value for each field that a body may need, by its name; enough to get past ``check_body``."""
    names = ("request", "patch", "state", "arguments", "result")
    return {name: {} for name in names} | {
        "input": {"n": 1},
        "protocols": [1],
        "content": b"x",
        "progress": 0.5,
        "call_id": "k1",
        "tool_id": "lab.poke",
    }


def _body(message: Message, changes: Body) -> Body:
    kinds: dict[Any, Any] = {"id": "q1", "int": 1, "time": AT, "bool": True}
    samples = _samples()
    made = {
        name: samples.get(name, kinds.get(field.kind, "x"))
        for name, field in message.fields.items()
        if field.required or name in ("tool_id", "inventory_revision")
    }
    return made | changes


def _strings(link: tuple[Message, ...], source: str) -> list[Any]:
    return [
        pytest.param(message, name, field.kind, id=f"{message.type}-{name}")
        for message in link
        for name, field in message.fields.items()
        if message.source == source and field.kind in LENGTHS
    ]


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def working(core: Core, tool_id: str = "lab.direct") -> Worker:
    core.call_accepted(tool_id, call_id="k1")
    worker = core.start("lab")
    worker.take("k1")
    return worker


def no_long_row(core: Core) -> None:
    """The chain holds, and no row of it is large."""
    prev = NO_HASH
    for _, row in core.scan(AUDIT):
        body = public(row)
        assert len(json.dumps(body)) < AUDIT_ROW_BYTES_MAX, row.kind
        assert body.pop("prev") == prev
        prev = body.pop("hash")
        assert chain(body_prev := row.prev, body) == prev, body_prev


@pytest.mark.parametrize("size", ["over by one", "huge"])
@pytest.mark.parametrize(("message", "name", "kind"), _strings(WORKER_LINK, "worker"))
def test_a_worker_is_refused(core: Core, message: Message, name: str, kind: str, size: str) -> None:
    worker = working(core)
    length_max, code = LENGTHS[kind]
    body = _body(message, {name: "x" * (length_max + 1) if size == "over by one" else HUGE})
    if message.type.startswith("worker."):  # has no receipt
        worker.say(message.type, **body)
        assert worker.stopped == "violation"
    else:
        before = core.dump()
        receipt = worker.ask(message.type, **body)
        assert (receipt["accepted"], receipt["code"], receipt["detail"]["path"]) == (False, code, f"/{name}")
        assert core.dump() == before
    no_long_row(core)


@pytest.mark.parametrize(("message", "name", "kind"), _strings(AGENT_LINK, "agent"))
def test_an_agent_is_refused(core: Core, message: Message, name: str, kind: str) -> None:
    core.call_accepted("lab.launch", call_id="k1")
    length_max, code = LENGTHS[kind]
    frames = core.send(
        message.type.removeprefix("lineup.v1."), _body(message, {name: "x" * (length_max + 1)}), conversation="c1"
    )
    (receipt,) = [frame["payload"] for frame in frames]
    assert (receipt["accepted"], receipt["code"]) == (False, code)
    assert receipt["detail"]["path"] == f"/payload/{name}"
    no_long_row(core)


@pytest.mark.parametrize("name", sorted(actions._ACTIONS))
@pytest.mark.parametrize("actor", ["person", "operator"])
def test_an_action_leaves_no_long_row(core: Core, name: str, actor: str) -> None:
    """Every argument is tried, long, beside ids that exist."""
    worker = working(core, "lab.launch")
    worker.accept("ui.request", request={"kind": "confirm", **CONFIRM}, key="a")
    (question,) = core.questions()
    instance = core.instance("lab")
    ids = {
        "call_id": "k1",
        "conversation_id": "c1",
        "interaction_id": question["interaction_id"],
        "instance_id": instance.instance_id,
        "session_id": instance.session_id,
        "app_scope": "lab",
        "tool_id": "lab.direct",
    }
    texts = ("reason", "text", "title", "name", "capability", "tool_id", "inventory_revision", "path", "result")
    for long in (*texts, *ids):
        args = {**ids, "call_id": f"k-{long}" if name == "call.start" else "k1", "input": {"n": 1}, "payload": {}}
        bundle = core.bundles[1] if name == "apps.add" else None
        event = ev.HostAction(
            event_id=core.new_id(),
            reply_to=f"r-{long}",
            action_id=f"x-{long}",
            actor=actor,
            name=name,
            args={**args, long: HUGE},
            bundle=bundle,
        )
        core.do(event)
        reply = core.replies[f"r-{long}"]
        assert len(json.dumps([reply.message, reply.code])) < AUDIT_ROW_BYTES_MAX
    no_long_row(core)


def test_an_action_of_no_name_leaves_no_long_row(core: Core) -> None:
    assert core.action(HUGE).code == "message_invalid"
    no_long_row(core)


@pytest.mark.parametrize("name", ["call.cancel", "interaction.cancel"])
def test_a_reason_of_a_person_or_the_operator_is_short(core: Core, name: str) -> None:
    worker = working(core, "lab.launch")
    worker.accept("ui.request", request={"kind": "confirm", **CONFIRM}, key="a")
    (question,) = core.questions()
    args = {"call_id": "k1", "interaction_id": question["interaction_id"]}
    refused = core.action(name, actor="operator", reason="x" * (limits.REASON_LENGTH_MAX + 1), **args)
    assert (refused.accepted, refused.code) == (False, "message_too_large")
    assert core.action(name, actor="operator", reason="x" * limits.REASON_LENGTH_MAX, **args).accepted


def test_the_revision_that_the_operator_names_is_a_string(core: Core) -> None:
    args = {"call_id": "k1", "conversation_id": "c1", "tool_id": "lab.direct", "input": {"n": 1}}
    assert core.action("call.start", actor="operator", inventory_revision=5, **args).code == "message_invalid"
    assert core.action("call.start", actor="operator", inventory_revision=None, **args).accepted


def test_the_label_of_a_deadline_is_a_sentence(core: Core) -> None:
    input_ = {"duration_seconds": 60, "activity": "x" * (limits.REASON_LENGTH_MAX + 1)}
    assert core.call("timer.start", input_)["code"] == "tool_input_invalid"
    core.call_accepted("timer.start", input_ | {"activity": "x" * limits.REASON_LENGTH_MAX}, call_id="k2")


def test_the_last_words_of_a_worker_are_cut(core: Core) -> None:
    worker = working(core)
    gone = ev.WorkerExited(
        event_id="gone", instance_id=worker.instance_id, incarnation=worker.incarnation, reason="exited", detail=HUGE
    )
    core.do(gone)
    result = core.result()
    assert result is not None
    assert len(result["error"]["message"]) < 2 * limits.REASON_LENGTH_MAX
    no_long_row(core)


# the audit's own last line of defence


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * limits.AUDIT_TEXT_LENGTH_MAX, "x" * limits.AUDIT_TEXT_LENGTH_MAX),
        ({"a": [1, "b"]}, {"a": [1, "b"]}),
        (5, 5),
    ],
)
def test_what_is_short_is_audited_as_it_is(stage: Any, value: Any, shown: Any) -> None:
    from lineup_supervisor.core.audit import audit

    stage.run(lambda ctx: audit(ctx, "test.row", what=value))
    (row,) = stage.audited("test.row")
    assert row.detail == {"what": shown}


@pytest.mark.parametrize("value", ["é" * 100_000, {"a": ["b" * 100_000]}, ["c"] * 50_000])
def test_what_is_long_is_cut_with_its_digest(stage: Any, value: Any) -> None:
    from lineup_supervisor.core.audit import audit, digest

    stage.run(lambda ctx: audit(ctx, "test.row", what=value))
    (row,) = stage.audited("test.row")
    said = row.detail["what"]
    assert len(said) < limits.AUDIT_TEXT_LENGTH_MAX + 100
    assert said.endswith(f" characters, sha256 {digest(value)})")


# what an agent gets


def _on_the_wire(frame: Body) -> int:
    """As the host link writes it."""
    return len(msgspec.json.encode(frame))


def _open_manifest() -> Body:
    anything = bundles.lab("open")
    for tool in anything["tools"]:
        tool["input_schema"] = tool["output_schema"] = {"type": "object"}
    return anything


RESULTS = {
    "escapes": {"x": "\x01" * ((limits.TOOL_RESULT_BYTES_MAX - 100) // 6)},
    "letters": {"x": "é" * ((limits.TOOL_RESULT_BYTES_MAX - 100) // 2)},
    "whole floats": {"x": [[1.0] * 32_000] * 4},
    "whole floats that are too many": {"x": [[1.0] * 65_000] * 4},
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_the_largest_result_fits_a_frame_that_every_client_reads(result: Body) -> None:
    core = Core(manifests=(_open_manifest(),))
    agent_id, conversation, call_id = "a" * 128, "c" * 128, "k" * 128
    core.connect(agent_id)
    core.call("open.direct", {"x": "\x01" * 80_000}, call_id=call_id, link=agent_id, conversation=conversation)
    worker = core.start("open")
    worker.take(call_id)
    receipt = worker.ask("tool.complete", call_id=call_id, result=result)
    if not receipt["accepted"]:
        assert receipt["code"] == "message_too_large"
        worker.accept("tool.fail", call_id=call_id, code="x" * 128, message="\x01" * 1024, detail={"x": "\x01" * 2_700})
    core.send("tool.get", {"call_id": call_id}, link=agent_id)
    core.call("open.direct", {"x": "\x01" * 80_000}, call_id=call_id, link=agent_id, conversation=conversation)
    core.send("tool.cancel", {"call_id": call_id}, link=agent_id)
    types = [frame["type"] for frame in core.frames[agent_id]]
    assert types.count("lineup.v1.tool.result") == 1
    assert "lineup.v1.tool.state" in types
    for frame in core.frames[agent_id]:
        assert _on_the_wire(frame) < limits.AGENT_FRAME_BYTES_MAX, frame["type"]


def test_a_record_that_fits_has_its_input_and_a_large_one_has_not() -> None:
    core = Core(manifests=(_open_manifest(),))
    core.connect("a1")
    half = {"x": "y" * (limits.TOOL_INPUT_BYTES_MAX - 100)}
    for call_id, input_ in (("k1", {"n": 1}), ("k2", half)):
        core.call_accepted("open.direct", input_, call_id=call_id)
    worker = core.start("open")
    for call_id in ("k1", "k2"):
        worker.take(call_id)
        worker.accept("tool.complete", call_id=call_id, result=half)
        (state,) = [
            frame["payload"]["record"]
            for frame in core.send("tool.get", {"call_id": call_id})
            if frame["type"] == "lineup.v1.tool.state"
        ]
        assert ("input" in state, state["result"]) == (call_id == "k1", half)
    assert core.row(CALLS, "a1", "k2").input == half


def test_the_longest_text_of_a_person_fits_a_frame(core: Core) -> None:
    core.call_accepted("lab.launch", call_id="k1")
    core.did("person.text", conversation_id="c1", text="\x01" * limits.TEXT_LENGTH_MAX)
    (frame,) = [frame for frame in core.frames["a1"] if frame["type"] == "lineup.v1.message.text"]
    assert _on_the_wire(frame) < limits.AGENT_FRAME_BYTES_MAX
    longer = core.action("person.text", conversation_id="c1", text="x" * (limits.TEXT_LENGTH_MAX + 1))
    assert longer.code == "message_too_large"


def test_an_answer_fits_the_result_of_its_call(core: Core) -> None:
    """What a person may hand in must be something that the question's call can end with."""
    fields = [{"id": f"f{n}", "label": "x", "type": "textarea"} for n in range(limits.INTERACTION_FIELDS_MAX)]
    assert core.call("input", {"title": "t", "prompt": "p", "fields": fields})["accepted"]
    (question,) = core.questions()
    id_ = question["interaction_id"]
    too_much = {"values": {f"f{n}": "x" * 60_000 for n in range(limits.INTERACTION_FIELDS_MAX)}}
    refused = core.action("interaction.answer", interaction_id=id_, result=too_much)
    assert (refused.code, refused.detail["path"]) == ("interaction_invalid", "/")
    most = {"values": {f"f{n}": "x" * 60_000 for n in range(7)}}
    core.did("interaction.answer", interaction_id=id_, result=most)
    worker = core.start("chat")
    worker.accept("tool.complete", call_id="k1", result=most)
    assert core.result()["result"] == most  # type: ignore[index]


def test_a_question_of_a_miniapp_has_a_size(core: Core) -> None:
    worker = working(core)
    longest = "\x01" * limits.TEXT_LENGTH_MAX
    worker.accept("ui.request", request={"kind": "notice", "title": "t", "message": longest})
    actions_ = [{"id": f"a{n}", "label": "x" * 60_000} for n in range(8)]
    request = {"kind": "choice", "title": "t", "prompt": "p", "mode": "button", "actions": actions_}
    assert worker.refused("ui.request", request=request) == "interaction_invalid"
    assert worker.ask("ui.request", request={**request, "actions": actions_[:7]})["accepted"]
