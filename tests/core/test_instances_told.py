"""What a worker is told between its welcome and its ready: no change may fall into the gap."""

from __future__ import annotations

from core.harness import Core, Worker


def welcomed(core: Core) -> Worker:
    """A worker that has said hello and not yet ready."""
    worker = core.unstarted.pop()
    worker.started()
    worker.say("worker.hello", protocols=[1], sdk_version="1.0")
    return worker


def told(worker: Worker, type_: str) -> list[dict[str, object]]:
    return [message["body"] for message in worker.messages if message["type"] == type_]


def test_a_change_of_place_while_the_app_loads_is_told() -> None:
    core = Core()
    core.call_accepted("lab.direct")
    core.start("lab").exit("killed")
    core.advance(1)
    worker = welcomed(core)
    assert told(worker, "worker.welcome")[0]["context"]["state"] == "background"  # type: ignore[index]
    core.did("instance.front", instance_id=worker.instance_id)
    assert told(worker, "context.changed") == [{"state": "foreground"}]
    worker.say("worker.ready")
    assert told(worker, "context.changed") == [{"state": "foreground"}]


def test_the_end_of_an_operation_while_the_app_loads_is_told() -> None:
    core = Core()
    core.call_accepted("timer.start", {"duration_seconds": 5})
    worker = welcomed(core)
    core.advance(6)
    (changed,) = told(worker, "operation.changed")
    assert changed["operation"]["state"] == "completed"  # type: ignore[index]


def test_a_worker_before_its_hello_is_told_nothing() -> None:
    core = Core()
    core.call_accepted("lab.direct")
    worker = core.unstarted.pop()
    worker.started()
    core.did("instance.front", instance_id=worker.instance_id)
    assert worker.messages == []
    worker.say("worker.hello", protocols=[1], sdk_version="1.0")
    assert told(worker, "worker.welcome")[0]["context"]["state"] == core.instance("lab").state  # type: ignore[index]
