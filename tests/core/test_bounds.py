"""What is taken can be carried on: an input, a result and a submit at their bounds fit every message that has them."""

from __future__ import annotations

import pytest

from core.harness import Body, Core, Worker, status_of
from lineup_protocol import limits
from lineup_protocol.codec import CAPS, encode
from lineup_supervisor.core.schema import WORKERS
from simulation import bundles


def open_lab() -> Body:
    """A lab whose schemas allow anything."""
    manifest = bundles.lab("open")
    for tool in manifest["tools"]:
        tool["input_schema"] = tool["output_schema"] = {"type": "object"}
    return manifest


def nested(depth: int) -> Body:
    value: Body = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def of_nodes(nodes: int) -> Body:
    return {"a": [0] * (nodes - 3)}  # the object itself, its key and its list are three


@pytest.fixture
def core() -> Core:
    core = Core(manifests=(open_lab(),))
    core.connect("a1")
    return core


def check_all_that_left(core: Core) -> None:
    """To workers, to people, and in answer to whoever asks."""
    for worker in core.workers.values():
        for message in worker.messages:
            encode(message, CAPS["worker", True])
    for change in core.deltas:
        encode({"type": "host.delta", "body": {"revision": 1, "changes": [change]}}, CAPS["host", True])
    for name, args in (("calls", {}), ("call", {"call_id": "k1"}), ("snapshot", {}), ("audit.page", {})):
        body = {"re": "m1", "accepted": True, "detail": core.query(name, **args)}
        encode({"type": "host.result", "body": body}, CAPS["host", True])


@pytest.mark.parametrize(
    ("most", "beyond"),
    [
        (of_nodes(limits.TOOL_INPUT_NODES_MAX), of_nodes(limits.TOOL_INPUT_NODES_MAX + 1)),
        (nested(limits.VALUE_DEPTH_MAX), nested(limits.VALUE_DEPTH_MAX + 1)),
        (
            {"a": "x" * (limits.TOOL_INPUT_BYTES_MAX - len('{"a":""}'))},
            {"a": "x" * (limits.TOOL_INPUT_BYTES_MAX - len('{"a":""}') + 1)},
        ),
    ],
    ids=["values", "depth", "bytes"],
)
def test_an_input_at_its_bound_is_delivered_and_one_beyond_is_refused_by_name(
    core: Core, most: Body, beyond: Body
) -> None:
    core.call_accepted("open.safe", most)
    refused = core.call("open.safe", beyond, call_id="k2")
    assert refused["code"] in ("message_invalid", "message_too_large")
    assert "/payload/input" in refused["message"]
    assert core.results("k2") == [], "nothing was taken, so that the same call may come again"
    worker = core.start("open")
    assert worker.take("k1")["input"] == most
    worker.exit()
    core.advance(2)
    assert core.start("open").deliveries()[-1]["body"]["input"] == most, "and again after a crash"
    check_all_that_left(core)


@pytest.mark.parametrize("result", [nested(limits.VALUE_DEPTH_MAX), of_nodes(30_000)], ids=["depth", "values"])
def test_a_result_or_a_failure_at_its_bound_reaches_its_agent_and_people(core: Core, result: Body) -> None:
    core.call_accepted("open.direct", result)
    worker = core.start("open")
    worker.take("k1")
    encode({"type": "tool.complete", "id": "1", "body": {"call_id": "k1", "result": result}}, CAPS["worker", False])
    worker.accept("tool.complete", call_id="k1", result=result)
    assert core.result("k1")["result"] == result  # type: ignore[index]
    core.call_accepted("open.direct", call_id="k2")
    detail = nested(limits.VALUE_DEPTH_MAX)
    worker.accept("tool.fail", call_id="k2", code="x", message="m", detail=detail)
    check_all_that_left(core)


# the window


def size_of(messages: list[Body]) -> int:
    return sum(len(encode(message, CAPS["worker", True])) for message in messages)


def away(core: Core) -> Worker:
    """A MiniApp with a page whose worker is on its way up and has been welcomed."""
    core.call_accepted("open.front", call_id="first")
    worker = core.start("open")
    worker.take("first")
    worker.accept("surface.open", entry="surface/index.html")
    worker.accept("tool.complete", call_id="first", result={})
    worker.exit()
    core.advance(2)
    worker = core.unstarted.pop()
    worker.started()
    worker.say("worker.hello", protocols=[1], sdk_version="1")
    return worker


def taken_one_by_one(worker: Worker, most: int, over: int = 0) -> list[int]:
    """Everything that waits, behind the first ``over``, in order; no more than the window is ever under way."""
    seqs = [delivery["seq"] for delivery in worker.deliveries()[:over]]
    while len(waiting := [d for d in worker.deliveries() if d["seq"] not in seqs]):
        under_way = [{"type": "inbox.deliver", "body": body} for body in waiting]
        assert size_of(under_way) <= limits.INBOX_WINDOW_BYTES_MAX + most
        assert len(waiting) <= limits.INBOX_WINDOW_MESSAGES_MAX
        seqs.append(waiting[0]["seq"])
        worker.accept("inbox.ack", seq=waiting[0]["seq"])
    return seqs


def test_what_waits_for_a_worker_is_sent_as_the_window_allows(core: Core) -> None:
    worker = away(core)
    (surface,) = worker.messages[-1]["body"]["surfaces"]
    payload = "x" * (limits.SURFACE_PAYLOAD_BYTES_MAX - 10)
    for _ in range(12):
        core.did("surface.submit", surface_id=surface["surface_id"], payload=payload)
        core.advance(0.1)
    worker.messages.clear()
    worker.say("worker.ready")
    assert size_of(worker.messages) <= limits.INBOX_WINDOW_BYTES_MAX, "two of three mebibytes"
    assert len(worker.deliveries()) == 2
    seqs = taken_one_by_one(worker, 0)
    assert seqs == sorted(seqs)
    assert len(seqs) == 12
    assert core.row(WORKERS, worker.instance_id).sent_bytes == 0


def test_many_full_size_calls_come_window_by_window(core: Core) -> None:
    worker = away(core)
    input_ = {"a": "x" * (limits.TOOL_INPUT_BYTES_MAX - 20)}
    for n in range(64):
        core.call_accepted("open.direct", input_, call_id=f"k{n}")
    worker.say("worker.ready")
    assert len(worker.deliveries()) < 17
    core.send("tool.cancel", {"call_id": "k40"})
    assert status_of(core, "k40") == "cancelled"
    for n in range(3):  # what is ended without its word gives its room back, too
        worker.accept("tool.complete", call_id=f"k{n}", result={})
    assert len(taken_one_by_one(worker, 1_000, over=3)) == 64 - 1


def test_one_that_is_larger_than_the_window_goes_alone(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INBOX_WINDOW_BYTES_MAX", 10)
    worker = away(core)
    for n in range(3):
        core.call_accepted("open.direct", {"n": n}, call_id=f"k{n}")
    worker.say("worker.ready")
    for n in range(3):
        assert [d["body"]["call_id"] for d in worker.deliveries()] == [f"k{m}" for m in range(n + 1)]
        worker.take(f"k{n}")


# one hello


def test_a_hello_that_crosses_a_stop_is_no_fault_of_the_worker(core: Core) -> None:
    core.call_accepted("lab.launch", call_id="k0")
    (worker,) = core.unstarted
    worker.started()
    core.stop()
    worker.say("worker.hello", protocols=[1], sdk_version="1")
    worker.say("worker.failed", code="app_start_failed", message="interrupted")
    assert core.audited("worker.violation") == []
    worker.exit("stopped")
    assert core.instance("lab").crashes == ()


def test_ready_before_hello_ends_the_worker(core: Core) -> None:
    core.call_accepted("lab.launch", call_id="k0")
    (worker,) = core.unstarted
    worker.started()
    worker.say("worker.ready")
    (row,) = core.audited("worker.violation")
    assert row.detail["rule"] == "worker.ready before worker.hello"


@pytest.mark.parametrize("with_id", [False, True])
def test_a_second_hello_ends_the_worker_and_is_told_nothing(core: Core, with_id: bool) -> None:
    core.call_accepted("open.direct")
    worker = core.unstarted.pop()
    worker.started()
    hello = {"type": "worker.hello", "body": {"protocols": [1], "sdk_version": "1"}} | ({"id": "1"} if with_id else {})
    worker.raw(hello)
    assert worker.stopped is None
    for _ in range(3):
        worker.raw(hello)
    assert worker.stopped == "violation"
    assert [m["type"] for m in worker.messages].count("worker.welcome") == 1
    assert len(core.audited("worker.violation")) == 1
    worker.exit("killed")
    core.advance(2)
    again = core.start("open")
    assert again.messages[0]["type"] == "worker.welcome", "each incarnation has its own"


# what a page costs


@pytest.mark.parametrize("name", ["surface.patch", "surface.submit"])
def test_what_a_page_is_refused_costs_it_as_much(core: Core, name: str) -> None:
    worker = away(core)
    (surface,) = worker.messages[-1]["body"]["surfaces"]

    def says(value: Body) -> str | None:
        given = {"surface.patch": "patch", "surface.submit": "payload"}[name]
        return core.action(name, surface_id=surface["surface_id"], **{given: value}).code

    assert says(nested(limits.VALUE_DEPTH_MAX + 1)) == "message_invalid"
    core.advance(1)
    assert says(of_nodes(32_000)) == "message_invalid"
    assert says({"a": 1}) == "rate_limited", "it took a second's worth"
    core.advance(1)
    assert says({"a": 1}) is None


# what an agent asks


def test_what_an_agent_asks_fits_into_one_welcome_of_interact(core: Core) -> None:
    offered = range(limits.INTERACTION_ACTIONS_MAX)
    actions = [{"id": f"a{n}", "label": "x", "description": "€" * 1_024} for n in offered]
    question = {"title": "t", "prompt": "p", "mode": "single-choice", "actions": actions}
    receipts = [core.call("choice", question, call_id=f"q{n}") for n in range(50)]
    taken = [receipt for receipt in receipts if receipt["accepted"]]
    assert {receipt["code"] for receipt in receipts[len(taken) :]} == {"rate_limited"}
    assert core.results(f"q{len(taken)}") == [], "it may be asked again under the same id"
    core.did("interaction.cancel", interaction_id=core.questions()[0]["interaction_id"])
    core.call_accepted("choice", question, call_id=f"q{len(taken)}")
    chat = core.start("chat")  # it has to tell the agent
    (welcome,) = [message for message in chat.messages if message["type"] == "worker.welcome"]
    assert len(welcome["body"]["interactions"]) == len(taken)
    assert 7 * limits.MIB < len(encode(welcome, CAPS["worker", True])) < 9 * limits.MIB
