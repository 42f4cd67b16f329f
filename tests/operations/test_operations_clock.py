"""Wall clocks that jump, stand still and reach odd years; durations that cannot be kept; recovery by ``ends_at``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lineup_protocol.times import WALL_MS_MAX, from_rfc3339, to_rfc3339
from lineup_supervisor.core import events as ev
from lineup_supervisor.core import step as step_module
from lineup_supervisor.core.schema import OPERATIONS
from operations.focus import HOUR_S, OF_A_REFUSAL, Focus

DAY_S = 24 * HOUR_S


def at(core: Focus, when: str) -> None:
    """Set the wall clock, as an administrator would; nothing wakes by that alone."""
    core.wall_ms = from_rfc3339(when)


def check_once(core: Focus, call_id: str = "k1", late_ms: int = 0) -> None:
    assert core.outcome(call_id) == ("completed", None)
    assert len(core.results(call_id)) == 1
    (row,) = [o for o in core.operations() if o.source_call_id == call_id]
    assert row.late_ms == late_ms
    assert row.ended_ms == row.ends_ms + late_ms
    assert len([a for a in core.audited("operation.completed") if row.operation_id in a.subjects]) == 1


# jumps


@pytest.mark.conformance("04-6.5")
def test_an_hour_back_makes_it_an_hour_longer_in_the_room_and_exact_on_the_wall(core: Focus) -> None:
    operation = core.begin(60)
    core.advance(30)
    core.advance(0, wall=-HOUR_S)
    core.advance(HOUR_S)
    assert core.operation() == operation
    core.advance(29)
    assert core.operation() == operation
    core.advance(1)
    check_once(core)


def test_an_hour_forward_ends_it_at_once_and_says_how_late(core: Focus) -> None:
    core.begin(60)
    core.advance(0, wall=HOUR_S)
    check_once(core, late_ms=(HOUR_S - 60) * 1000)
    assert core.query("operation", operation_id=core.operation().operation_id)["late_ms"] == (HOUR_S - 60) * 1000
    core.advance(0, wall=-HOUR_S)
    core.advance(2 * HOUR_S)
    assert len(core.results("k1")) == 1


def test_a_forward_jump_fires_each_of_many_once_and_nothing_twice(core: Focus) -> None:
    """No burst: what is due ends once, in bounded steps, and what is not due stays."""
    for n in range(30):
        core.begin(60 * (n + 1), call_id=f"k{n}", conversation=f"c{n}")
    core.advance(0, wall=20 * 60 + 30)
    ended = [f"k{n}" for n in range(30) if core.result(f"k{n}") is not None]
    assert ended == [f"k{n}" for n in range(20)]
    assert len(core.audited("operation.completed")) == 20
    core.advance(0, wall=-20 * 60)
    assert len(core.audited("operation.completed")) == 20


def test_8_of_10_minutes_asleep_leave_2(core: Focus) -> None:
    """The steady clock stood still, the wall went on."""
    operation = core.begin(600)
    core.advance(0, wall=480)
    assert core.operation() == operation
    left = operation.ends_ms - core.wall_ms
    assert left == 120_000
    core.advance(119.999)
    assert core.operation() == operation
    core.advance(0.001)
    check_once(core)


def test_asleep_beyond_the_end_it_is_settled_on_waking(core: Focus) -> None:
    core.begin(600)
    core.advance(0, wall=7 * DAY_S)
    check_once(core, late_ms=(7 * DAY_S - 600) * 1000)


def test_a_strobing_clock_makes_no_burst_and_no_silence(core: Focus) -> None:
    """±5 minutes every second for a minute, then calm: one end, never before its time had been on the clock."""
    core.begin(900)
    before = core.operation()
    real_ms = core.wall_ms
    for second in range(60):
        core.steady_ms += 1000
        real_ms += 1000
        core.wall_ms = real_ms + (300_000 if second % 2 else -300_000)
        core.wake()
    assert core.operation() == before, "its time was never on the clock"
    core.wall_ms = real_ms
    core.advance(840)
    check_once(core)


def test_a_strobe_that_shows_its_time_ends_it_once(core: Focus) -> None:
    core.begin(120)
    real_ms = core.wall_ms
    for second in range(60):
        core.steady_ms += 1000
        real_ms += 1000
        core.wall_ms = real_ms + (300_000 if second % 2 else -300_000)
        core.wake()
    assert core.outcome() == ("completed", None)
    assert len(core.audited("operation.completed")) == 1
    assert core.operation().ended_ms >= core.operation().ends_ms


# dates


@pytest.mark.parametrize(
    ("start", "seconds", "ends"),
    [
        ("2026-10-24T23:30:00.000Z", HOUR_S, "2026-10-25T00:30:00.000Z"),  # 02:30 summer time, the first of two
        ("2026-10-25T00:30:00.000Z", HOUR_S, "2026-10-25T01:30:00.000Z"),  # from the first 02:30 to the second
        ("2038-01-19T03:13:08.000Z", 60, "2038-01-19T03:14:08.000Z"),  # one second beyond 31 bits
        ("2038-01-19T03:14:07.000Z", 1, "2038-01-19T03:14:08.000Z"),
        ("1970-01-01T00:00:00.000Z", 1, "1970-01-01T00:00:01.000Z"),
        ("9999-12-31T23:59:58.000Z", 1, "9999-12-31T23:59:59.000Z"),
        ("2027-02-28T23:59:59.000Z", DAY_S, "2027-03-01T23:59:59.000Z"),
        ("2028-02-28T12:00:00.000Z", 365 * DAY_S, "2029-02-27T12:00:00.000Z"),
    ],
)
def test_dates_are_utc_and_exact(core: Focus, start: str, seconds: int, ends: str) -> None:
    at(core, start)
    operation = core.begin(seconds)
    assert (to_rfc3339(operation.started_ms), to_rfc3339(operation.ends_ms)) == (start, ends)
    core.advance(seconds - 0.001)
    assert core.operation() == operation
    core.advance(0.001)
    check_once(core)
    result = core.result()["result"]  # type: ignore[index]
    assert (result["started_at"], result["ends_at"], result["ended_at"]) == (start, ends, ends)


def test_the_two_half_past_twos_of_a_long_night_are_two_moments(core: Focus) -> None:
    """2026-10-25 02:30 in Berlin comes twice; a session that ends at the second one does not end at the first."""
    berlin = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1))
    assert (second.astimezone(UTC) - first.astimezone(UTC)).total_seconds() == HOUR_S
    core.wall_ms = round(first.timestamp() * 1000) - 60_000
    operation = core.begin(60 + HOUR_S)
    core.advance(60)
    assert core.operation() == operation, "the first half past two"
    core.advance(HOUR_S)
    check_once(core)
    assert core.operation().ended_ms == round(second.timestamp() * 1000)


def test_nothing_ends_after_the_last_year(core: Focus) -> None:
    core.wall_ms = WALL_MS_MAX - 1000
    assert core.call("pomodoro.start", {"duration_seconds": 2})["detail"]["path"] == "/duration_seconds"
    core.begin(1, call_id="k2")
    core.advance(1)
    assert core.outcome("k2") == ("completed", None)


@pytest.mark.parametrize("days", [60, 365])
def test_a_wait_of_many_days_survives_restarts(core: Focus, days: int) -> None:
    operation = core.begin(days * DAY_S)
    for _ in range(5):
        core.advance(1, wall=days * DAY_S / 6)
        core.restart(seconds_down=60, link=core.new_id())
        assert core.operation() == operation
    core.advance((operation.ends_ms - core.wall_ms) / 1000)
    check_once(core)


def test_one_second_is_one_second(core: Focus) -> None:
    core.begin(1)
    core.advance(0.999)
    assert core.result() is None
    core.advance(0.001)
    check_once(core)


IMPOSSIBLE = [
    0,
    -1,
    1.5,
    "60",
    1e18,
    10**18,
    float("nan"),
    float("inf"),
    -float("inf"),
    True,
    False,
    None,
    [60],
    {"s": 60},
]
IMPOSSIBLE += [2**53, 3660 * DAY_S + 1]


@pytest.mark.parametrize("duration", IMPOSSIBLE, ids=str)
@pytest.mark.conformance("04-4.5.2")
def test_a_duration_that_cannot_be_kept_is_refused_with_its_path(core: Focus, duration: Any) -> None:
    before = core.dump(*OF_A_REFUSAL)
    receipt = core.call("pomodoro.start", {"duration_seconds": duration})
    assert receipt["code"] in ("tool_input_invalid", "message_invalid")
    assert receipt["detail"]["path"].endswith("/duration_seconds"), receipt
    assert core.dump(*OF_A_REFUSAL) == before


@pytest.mark.parametrize("duration", [1, 60.0, 365 * DAY_S, 3660 * DAY_S], ids=str)
def test_a_whole_number_of_seconds_is_taken(core: Focus, duration: Any) -> None:
    operation = core.begin(duration)
    assert operation.ends_ms - operation.started_ms == int(duration) * 1000
    assert isinstance(operation.duration_seconds, int)


# recovery


@pytest.mark.parametrize("down_s", [0, 1, 59])
@pytest.mark.conformance("04-4.5.4")
@pytest.mark.conformance("04-6.8")
def test_before_its_time_a_restart_goes_on_by_ends_at(core: Focus, down_s: int) -> None:
    operation = core.begin(60)
    core.restart(seconds_down=down_s)
    assert core.operation() == operation, "the duration does not begin anew"
    assert core.front() == "pomodoro"
    core.advance(60 - down_s - 0.001)
    assert core.operation() == operation
    core.advance(0.001)
    check_once(core)


@pytest.mark.parametrize("down_s", [60, 61, 60 * DAY_S])
@pytest.mark.parametrize("kills", [0, 1, 3])
@pytest.mark.conformance("04-4.5.4")
@pytest.mark.conformance("04-6.8")
def test_after_its_time_the_start_of_the_runtime_settles_it_once(core: Focus, down_s: int, kills: int) -> None:
    core.begin(60)
    core.hang_up()
    core.wall_ms += down_s * 1000
    for _ in range(kills):
        core.boot(lose_effects=True)
    core.boot()
    assert core.operation().state == "completed", "settled by the first event of the run"
    core.connect("a1", "l2")
    check_once(core, late_ms=(down_s - 60) * 1000)
    assert core.front() == "chat"


@pytest.mark.conformance("04-6.8")
def test_what_is_due_at_recovery_is_settled_before_anything_new(core: Focus, monkeypatch: pytest.MonkeyPatch) -> None:
    """More are due than one event settles; whatever a new call meets is decided first, by its deadline."""
    monkeypatch.setattr(step_module, "TIMERS_PER_EVENT_MAX", 4)
    for n in range(10):
        core.begin(60 + n, call_id=f"k{n}", conversation=f"c{n}")
    core.wall_ms += HOUR_S * 1000
    core.boot()
    core.connect("a1", "l2")
    assert sum(row.state == "completed" for _, row in core.scan(OPERATIONS)) == 4
    late = core.interrupt("k-stop", conversation="c9", link="l2")
    assert late["status"] == "operation_already_final"
    assert core.outcome("k9") == ("completed", None)
    core.call_accepted("pomodoro.start", {"duration_seconds": 60}, call_id="k-new", conversation="c8", link="l2")
    assert core.outcome("k8") == ("completed", None)
    assert core.result("k-new") is None
    core.did("conversation.home", conversation_id="c7")
    core.did("instance.close", instance_id=core.instance("pomodoro", "c6").instance_id)
    assert core.outcome("k7") == core.outcome("k6") == ("completed", None)
    core.advance(0)
    assert [core.outcome(f"k{n}") for n in range(10)] == [("completed", None)] * 10
    assert [len(core.results(f"k{n}")) for n in range(10)] == [1] * 10
    assert core.operation("c8").state == "focusing"


@pytest.mark.conformance("04-4.5.5")
def test_who_wins_does_not_hang_on_how_late_the_timer_is(core: Focus) -> None:
    """An interruption one millisecond before ``ends_at`` wins; at ``ends_at`` it is too late, timer or not."""
    first = core.begin(60, conversation="c1", call_id="k1")
    core.begin(60, conversation="c2", call_id="k2")
    core.wall_ms = first.ends_ms - 1
    assert core.interrupt("s1", conversation="c1")["status"] == "interrupted"
    core.wall_ms = first.ends_ms
    assert core.interrupt("s2", conversation="c2")["status"] == "operation_already_final"
    assert core.outcome("k1") == ("interrupted", "interrupted_by_agent")
    assert core.outcome("k2") == ("completed", None)
    core.assert_over("c2")
    assert core.front("c2") == "chat"


def test_recovery_is_idempotent_at_every_kill(core: Focus) -> None:
    """Dead before the commit of the first event, again and again: nothing moves, and then it is settled once."""
    core.begin(60)
    core.hang_up()
    core.wall_ms += HOUR_S * 1000
    before = core.store.dump()
    for n in range(3):
        boot = ev.Boot(
            event_id=f"dead{n}", boot_id=f"dead{n}", isolation="S3", bundles=core.bundles, policy=core.policy
        )
        core.do_without_commit(boot)
        assert core.store.dump() == before
    core.boot()
    core.connect("a1", "l2")
    check_once(core, late_ms=(HOUR_S - 60) * 1000)
