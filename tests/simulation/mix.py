"""Which faults a run has, and how often: drawn from the seed; some runs are calm, some have a few loud faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields


@dataclass
class Mix:
    """Probabilities and weights; 0 is off. Those of processes are per message, those of the world per step."""

    # agents
    resend: float = 0.0
    conflict: float = 0.0
    stale: float = 0.0
    invalid: float = 0.0
    cut: float = 0.0
    two_links: float = 0.0
    lost_ack: float = 0.0
    foreign: float = 0.0
    malformed: float = 0.0
    cancel: float = 0.0
    # workers
    crash: float = 0.0
    hang: float = 0.0
    hostile: float = 0.0
    double: float = 0.0
    slow: float = 0.0
    bad_output: float = 0.0
    spawn_failure: float = 0.0
    load_failure: float = 0.0
    ask: float = 0.0
    leave_open: float = 0.0
    # person
    ponder: float = 0.0  # time goes by while a question is in front of them
    double_answer: float = 0.0
    invalid_answer: float = 0.0
    close: float = 0.0
    switch: float = 0.0
    operator: float = 0.0
    look: float = 0.0  # the pages that are before them change
    eager: float = 0.0  # a page says much at once
    # clock and store
    wall_jump: float = 0.0
    long_wait: float = 0.0
    crash_before_commit: float = 0.0
    crash_after_commit: float = 0.0
    torn_effects: float = 0.0
    full: float = 0.0
    write_failure: float = 0.0  # EIO on one of the next writes
    suspend: float = 0.0  # the machine sleeps: the wall clock goes on, the steady one does not
    strobe: float = 0.0  # the wall clock goes five minutes to and fro every second
    stop: float = 0.0
    reclaim: float = 0.0
    # host
    freeze: float = 0.0
    replace_host: float = 0.0
    # audit's archive
    archive_failure: float = 0.0
    archive_loss: float = 0.0
    archive_late: float = 0.0
    # sizes
    agents: int = 2
    workers_max: int = 64
    starting_max: int = 4
    restarts_max: int = 5
    inbox_max: int = 0  # items that wait for one instance; 0 leaves the protocol's own bound
    inbox_bytes_max: int = 0  # bytes that wait for one MiniApp; likewise
    window_max: int = 0  # messages under way to one agent; likewise
    focus_max: int = 0  # MiniApps in the focus of one conversation; likewise
    kept_max: int = 0  # of each kind that retention bounds; 0 leaves the policy's own bounds
    audit_rows_max: int = 0


# The largest value that each fault gets; most runs have about half of them, at a random share of it.
_LOUDEST = {
    "resend": 0.3, "conflict": 0.15, "stale": 0.2, "invalid": 0.2, "cut": 0.06, "two_links": 0.05, "lost_ack": 0.6,
    "foreign": 0.15, "malformed": 0.1, "cancel": 0.3, "crash": 0.12, "hang": 0.03, "hostile": 0.2, "double": 0.3,
    "slow": 0.8, "bad_output": 0.2, "spawn_failure": 0.3, "load_failure": 0.1, "ask": 1.0, "leave_open": 0.5,
    "double_answer": 0.4, "invalid_answer": 0.3, "close": 0.25, "switch": 0.5, "operator": 0.6, "wall_jump": 0.03,
    "long_wait": 0.05, "crash_before_commit": 0.02, "crash_after_commit": 0.02, "torn_effects": 0.02, "full": 0.02,
    "write_failure": 0.03, "suspend": 0.02, "strobe": 0.02, "stop": 0.01, "reclaim": 0.03, "freeze": 0.02,
    "replace_host": 0.3, "archive_failure": 0.5, "archive_loss": 0.3, "archive_late": 0.5, "ponder": 0.6,
    "look": 0.2, "eager": 0.2,
}  # fmt: skip


def draw(rng: random.Random) -> Mix:
    """A mix for one run."""
    mix = Mix()
    eagerness = rng.choice((0.2, 0.5, 0.8))
    for name, loudest in _LOUDEST.items():
        if rng.random() < eagerness:
            setattr(mix, name, loudest * rng.choice((0.25, 0.5, 1.0)))
    mix.agents = rng.choice((1, 2, 2, 3))
    mix.workers_max = rng.choice((64, 64, 3, 2, 8))
    mix.starting_max = rng.choice((4, 4, 1))
    mix.restarts_max = rng.choice((5, 5, 2, 20))
    mix.kept_max = rng.choice((0, 0, 1, 4, 12))
    mix.audit_rows_max = rng.choice((0, 0, 10, 100))
    mix.inbox_max = rng.choice((0, 0, 3, 8))
    mix.inbox_bytes_max = rng.choice((0, 0, 3_000))
    mix.focus_max = rng.choice((0, 0, 2))
    mix.window_max = rng.choice((0, 0, 1, 4))
    return mix


def calm(mix: Mix) -> Mix:
    """The same sizes without any fault but those of the archive, which may take as long as it wants: how a run comes
    to rest."""
    kept = (f.name for f in fields(Mix) if f.type == "int" or f.name.startswith("archive"))
    return Mix(**{name: getattr(mix, name) for name in kept})
