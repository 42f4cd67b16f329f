"""A MiniApp that dies as soon as it is ready, asked for every second of an hour: bounded starts, then quarantine."""

from __future__ import annotations

from core.harness import Core
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import APPS, CALLS, OPEN_CALLS
from simulation import bundles

HOUR_S = 3_600


class Quiet(Core):
    """Looks at the rules between the tables every ten minutes; after each of twenty thousand events takes long."""

    looks_at = True

    def check(self) -> None:
        if self.looks_at:
            super().check()


def an_hour_of_crashes(core: Quiet) -> list[int]:
    """Every worker that is started dies; the agent asks again whenever it may. The seconds at which one was started."""
    started: list[int] = []
    number = 0
    for second in range(HOUR_S):
        core.looks_at = second % 600 == 0
        if heard := [frame["seq"] for frame in core.frames["a1"] if "seq" in frame]:
            core.send("ack", {"seq": heard[-1]})
        del core.frames["a1"][1:]
        if not any(True for _ in core.scan(OPEN_CALLS)):
            number += 1
            core.call("lab.safe", call_id=f"k{number}")
        while core.unstarted:
            core.unstarted.pop().run().exit("killed")
            started.append(second)
        core.advance(1)
    core.looks_at = True
    return started


def test_e6_a_crash_every_second_for_an_hour_is_quarantined_and_stays_so() -> None:
    core = Quiet()
    core.connect("a1")
    policy = Policy()
    started = an_hour_of_crashes(core)
    assert len(started) == (policy.restarts_max + 1) * policy.quarantine_closures_max, "each closure has its restarts"
    assert started[-1] < 120, "and then no process is started any more"
    row = core.row(APPS, "lab")
    assert row.quarantined
    assert "its process ended 6 times" in row.quarantine_reason
    codes = [call.error["code"] for _, call in core.scan(CALLS)]
    assert codes.count("app_crashed") == policy.quarantine_closures_max
    assert set(codes) - {"inventory_revision_mismatch"} == {"app_crashed", "app_quarantined"}
    assert len(codes) > HOUR_S - 200, "every call since was refused at once"
    core.boot()
    assert core.row(APPS, "lab").quarantined, "a restart of the Runtime does not lift it"
    core.connect("a1", "l2")
    assert core.call("lab.safe", call_id="after", link="l2")["code"] == "app_quarantined"


def test_e6_the_operators_own_bounds_hold() -> None:
    core = Quiet(policy=Policy(restarts_max=1, quarantine_closures_max=7))
    core.connect("a1")
    assert len(an_hour_of_crashes(core)) == 2 * 7


def test_the_crashes_of_an_old_version_say_nothing_against_the_new_one() -> None:
    core = Core(policy=Policy(restarts_max=0))
    core.connect("a1")
    core.did("apps.add", actor="operator", bundle=bundles.GUESTS["1.0.0"])
    old = []
    for n in range(core.policy.quarantine_closures_max):
        core.call_accepted("guest.launch", call_id=f"k{n}", conversation=f"c{n}")
        old.append(core.start("guest"))
    core.did("apps.add", actor="operator", bundle=bundles.GUESTS["2.0.0"])
    for worker in old:
        worker.exit("killed")
    row = core.row(APPS, "guest")
    assert (row.version, row.quarantined, row.crashes) == ("2.0.0", False, ())
    for n in range(core.policy.quarantine_closures_max):
        core.call_accepted("guest.launch", call_id=f"n{n}", conversation=f"c{n}")
        core.start("guest").exit("killed")
    assert core.row(APPS, "guest").quarantined
