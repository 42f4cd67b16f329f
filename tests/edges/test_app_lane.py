"""One MiniApp's lane: in order, a long message alone; all instances together pay for what is dear by waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lineup_supervisor.app_lane import AT_ONCE_S, CHEAP_S, PAID, UNIT_BYTES, UNITS_MAX, AppLane


class Clock:
    """A loop's clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        self.calls.append((when, callback))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [callback for when, callback in self.calls if when <= self.now]
        self.calls = [(when, callback) for when, callback in self.calls if when > self.now]
        for callback in due:
            callback()


class Stage:
    def __init__(self) -> None:
        self.clock = Clock()
        self.lane = AppLane(lambda: self.clock.now, self.clock.call_at)
        self.gone: list[str] = []

    def enter(self, name: str, size: int = 100, owner: str = "w", comes_to_something: bool = True) -> None:
        def go() -> bool:
            self.gone.append(name)
            return comes_to_something

        self.lane.enter(owner, size, go)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_short_messages_go_at_once_until_many_are_undecided(stage: Stage) -> None:
    names = [str(n) for n in range(UNITS_MAX + 10)]
    for name in names:
        stage.enter(name)
    assert stage.gone == names[:UNITS_MAX]
    stage.lane.decided(100, 0.0002)
    assert stage.gone == names[: UNITS_MAX + 1]
    for _ in names:
        stage.lane.decided(100, 0.0002)
    assert stage.gone == names, "in the order in which they came"
    assert stage.clock.calls == [], "cheap ones wait for nothing"


def test_a_long_one_goes_alone(stage: Stage) -> None:
    long = UNITS_MAX * UNIT_BYTES * 10
    stage.enter("short")
    stage.enter("long", long)
    stage.enter("another", long, owner="of the same MiniApp")
    stage.enter("last")
    assert stage.gone == ["short"]
    stage.lane.decided(100, 0.0)
    assert stage.gone == ["short", "long"]
    stage.lane.decided(long, 0.0)
    assert stage.gone == ["short", "long", "another"]
    stage.lane.decided(long, 0.0)
    assert stage.gone[-1] == "last"


def test_as_many_go_at_once_as_the_last_ones_let_expect(stage: Stage) -> None:
    stage.enter("a")
    stage.lane.decided(100, AT_ONCE_S / 4)
    stage.clock.advance(1)
    for n in range(40):
        stage.enter(str(n))
    assert stage.gone == ["a", "0", "1", "2", "3"]
    for _ in range(4):
        stage.lane.decided(100, 0.0)
    assert len(stage.gone) - 5 > 4, "the next ones were cheap"
    while stage.lane.waiting:
        stage.lane.decided(100, 0.0)
    assert stage.gone == ["a", *map(str, range(40))]


def test_what_is_dear_is_paid_for_by_waiting(stage: Stage) -> None:
    stage.enter("dear")
    stage.lane.decided(100, 0.1 + CHEAP_S)
    stage.enter("next")
    stage.enter("after it", owner="another instance")
    stage.clock.advance(0.1 * PAID - 0.01)
    assert stage.gone == ["dear"]
    stage.clock.advance(0.02)
    assert stage.gone == ["dear", "next"], "the next one may be as dear"
    stage.lane.decided(100, 0.0)
    assert stage.gone == ["dear", "next", "after it"]
    assert stage.clock.calls == []


def test_debts_add_up_and_one_timer_waits_for_them(stage: Stage) -> None:
    for name in "abc":
        stage.enter(name)
    for _ in "abc":
        stage.lane.decided(100, 0.1 + CHEAP_S)
    stage.enter("d")
    stage.enter("e")
    assert len(stage.clock.calls) == 1
    stage.clock.advance(0.3 * PAID - 0.01)
    assert stage.gone == ["a", "b", "c"]
    stage.clock.advance(0.02)
    assert stage.gone == ["a", "b", "c", "d"]


def test_a_charge_while_another_waits_is_waited_for_too(stage: Stage) -> None:
    """Decoding a long message is charged before it is known what the core takes for it."""
    stage.enter("a")
    stage.enter("b")
    stage.lane.decided(100, 0.1 + CHEAP_S)
    stage.enter("c")
    stage.lane.decided(100, 0.1 + CHEAP_S)
    stage.clock.advance(0.1 * PAID + 0.01)
    assert stage.gone == ["a", "b"]
    stage.clock.advance(0.1 * PAID)
    assert stage.gone == ["a", "b", "c"]


def test_a_timer_that_comes_a_little_early_is_set_again(stage: Stage) -> None:
    """A loop runs what is due within the resolution of its clock."""
    stage.enter("dear")
    stage.lane.decided(100, 0.1 + CHEAP_S)
    stage.enter("next")
    ((when, wake),) = stage.clock.calls
    stage.clock.calls.clear()
    stage.clock.now = when - 1e-9
    wake()
    assert (stage.gone, [at for at, _ in stage.clock.calls]) == (["dear"], [when])
    stage.clock.advance(1e-6)
    assert stage.gone == ["dear", "next"]


def test_what_came_to_nothing_takes_no_room_and_who_has_ended_is_forgotten(stage: Stage) -> None:
    long = UNITS_MAX * UNIT_BYTES
    stage.enter("no message", long, comes_to_something=False)
    stage.enter("a", long)
    stage.enter("of the dead", long, owner="dead")
    stage.enter("b", 1)
    assert stage.gone == ["no message", "a"]
    stage.lane.forget("dead")
    assert stage.gone == ["no message", "a"]
    stage.lane.decided(long, 0.0)
    assert stage.gone == ["no message", "a", "b"]
    assert stage.lane.waiting == 0
