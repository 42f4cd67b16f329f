"""Runs seeds: one verdict line each; a failing one is made shorter and printed as a transcript."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from checkers.history import Fault, History
from checkers.verdict import judge
from lineup_protocol import limits
from lineup_supervisor.core import inbox, invariants, merge_patch, retention, surfaces
from lineup_supervisor.engine import EngineFailed
from simulation.mix import Mix
from simulation.world import CoreFault, World

INVARIANTS_EVERY = 50  # steps between two looks at the tables' own consistency
LOOK_EVERY = 125  # steps between two looks that the reference model is held against
PART_BYTES = 24  # of a row of a surface's state
ARCHIVE_ROWS = 40  # of one file; those of a real one are more than a run makes
SHRINK_RUNS_MAX = 400


@dataclass
class Verdict:
    """What came of one seed."""

    seed: int
    steps: int
    faults: list[Fault]
    history: History
    results: int = 0
    crashes: int = 0
    kept: list[int] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.faults

    def line(self) -> str:
        """The one line that a run prints."""
        what = f"{self.steps} steps, {self.results} results, {self.crashes} boots, {len(self.history.audit)} audit rows"
        return f"seed {self.seed}: {'ok' if self.passed else f'FAILED {self.faults[0]}'} ({what})"


@contextmanager
def small_files() -> Iterator[None]:
    """The audit's archive in files that a short run fills, and surfaces' states in rows that go in several sweeps."""
    small = [
        (retention, "ARCHIVE_ROWS", ARCHIVE_ROWS),
        (limits, "SURFACE_PART_BYTES", PART_BYTES),
        (surfaces, "ROWS_AT_ONCE", 1),
        (inbox, "ROWS_AT_ONCE", 0),
        (merge_patch, "LAID_OUT_MAX", 2),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in small]
    for owner, name, value in small:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def run(seed: int, steps: int, *, keep: Callable[[int], bool] = lambda index: True) -> Verdict:
    """One run of ``steps`` steps, of which those that ``keep`` refuses are left out."""
    world = World(seed)
    with small_files(), small_inboxes(world.mix):
        return _run(world, steps, keep)


@contextmanager
def small_inboxes(mix: Mix) -> Iterator[None]:
    """Inboxes, windows and a focus that a short run fills, if the mix says so."""
    wanted = {
        "INBOX_MESSAGES_PER_INSTANCE_MAX": mix.inbox_max,
        "INBOX_BYTES_PER_APP_MAX": mix.inbox_bytes_max,
        "FOCUS_DEPTH_MAX": mix.focus_max,
        "OUTBOX_WINDOW_MESSAGES_MAX": mix.window_max,
    }
    before = {name: getattr(limits, name) for name, value in wanted.items() if value}
    for name in before:
        setattr(limits, name, wanted[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(limits, name, value)


def _run(world: World, steps: int, keep: Callable[[int], bool]) -> Verdict:
    seed = world.seed
    faults: list[Fault] = []
    try:
        for index in range(steps):
            if keep(index):
                world.step(index)
            if index % INVARIANTS_EVERY == 0:
                faults += _inner(world)
            if index % LOOK_EVERY == LOOK_EVERY - 1:
                world.operator.look()
        world.rest()
        faults += _inner(world)
        faults += judge(world.history)
    except (CoreFault, EngineFailed, AssertionError) as error:
        faults.insert(0, Fault("core", f"{error}{_cause(error)}"))
    results = sum(len(agent.results) for agent in world.agents)
    boots = sum(1 for _ in world.history.host.of("boot"))
    return Verdict(seed, steps, faults, world.history, results, boots)


def _cause(error: BaseException) -> str:
    inner = error.__cause__ or error
    frames = []
    tb = inner.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        frames.append(f"{code.co_filename.rpartition('/')[2]}:{tb.tb_lineno} {code.co_name}")
        tb = tb.tb_next
    return " at " + " < ".join(reversed(frames[-4:]))


def _inner(world: World) -> list[Fault]:
    with world.store.read() as txn:
        return [Fault("invariants", words) for words in invariants.find_faults(txn)]


def shrink(seed: int, steps: int) -> list[int]:
    """The steps of a failing run that it takes to fail in the same checker, fewer and fewer of them."""
    checker = run(seed, steps).faults[0].checker
    kept = list(range(steps))
    runs, size = 0, max(1, steps // 2)
    while runs < SHRINK_RUNS_MAX:
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            runs += 1
            found = run(seed, steps, keep=set(rest).__contains__).faults
            if found and found[0].checker == checker:
                kept = rest
                break
            if runs >= SHRINK_RUNS_MAX:
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return kept


def transcript(history: History) -> Iterator[str]:
    """The run as its participants saw it, in order."""
    lines = [
        (e.at, f"{a.agent_id:>12} {e.what:<9} {_short(e.data)}") for a in history.agents.values() for e in a.entries
    ]
    lines += [
        (e.at, f"{f'{w.instance_id}/{w.incarnation}':>12} {e.what:<9} {_short(e.data)}")
        for w in history.workers.values()
        for e in w.entries
    ]
    lines += [(e.at, f"{'person':>12} {e.what:<9} {_short(e.data)}") for e in history.host.entries if e.what != "delta"]
    return (line for _, line in sorted(lines))


def _short(data: object) -> str:
    text = "" if data is None else str(data)
    return text if len(text) < 300 else f"{text[:297]}..."
