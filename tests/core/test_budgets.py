"""What one worker may make the Runtime write down in a minute, and what comes of being refused too often."""

from __future__ import annotations

import pytest

from core.harness import Core, Worker
from lineup_protocol import limits
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import BUDGETS


def ready(core: Core) -> Worker:
    core.call("lab.direct", call_id="k1")
    worker = core.unstarted[-1].run()
    worker.take("k1")
    return worker


def test_requests_that_leave_records_are_refused_beyond_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WORKER_RECORDS_PER_MINUTE_MAX", 3)
    core = Core()
    worker = ready(core)
    for number in range(3):
        worker.accept("state.save", state={"n": number})
    before = core.dump()
    assert worker.refused("state.save", state={"n": 4}) == "rate_limited"
    assert core.dump() == before
    worker.accept("tool.complete", call_id="k1", result={"n": 1})
    core.advance(60)
    worker.accept("state.save", state={"n": 5})


def test_progress_beyond_its_rate_is_accepted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROGRESS_PER_SECOND_MAX", 2)
    core = Core()
    worker = ready(core)
    for number in range(5):
        worker.accept("tool.progress", call_id="k1", progress=number / 10)
        core.send("ack", {"seq": number + 1})
    assert len(core.audited("call.progress")) == 2
    core.advance(1)
    worker.accept("tool.progress", call_id="k1", progress=0.9)
    assert len(core.audited("call.progress")) == 3


def test_too_many_refusals_end_the_worker_as_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WORKER_REFUSALS_PER_MINUTE_MAX", 3)
    core = Core(policy=Policy(restarts_max=0))
    worker = ready(core)
    for _ in range(4):
        worker.say("surface.close", surface_id="nobodys")
    assert worker.stopped == "violation"
    worker.say("tool.complete", call_id="k1", result={"n": 1})
    assert core.result() is None, "what a condemned worker says does not count"
    worker.exit("stopped")
    result = core.result()
    assert result is not None
    assert result["error"]["code"] == "app_crashed"
    assert result["error"]["detail"] == {"reason": "violation", "ends": 1}
    assert "rate_limited" in result["error"]["message"]


def test_no_count_is_left_of_a_closed_instance() -> None:
    """What it still says is refused and counted; with its process the count goes too."""
    core = Core()
    worker = ready(core)
    core.did("instance.close", instance_id=worker.instance_id, force=True)
    assert worker.refused("tool.complete", call_id="k1", result={"n": 1}) == "app_closed"
    assert len(list(core.scan(BUDGETS))) == 1
    worker.exit("stopped")
    assert list(core.scan(BUDGETS)) == []
