"""Deliberate bugs of the core, each caught by a checker from outside; the sound core by none."""

from __future__ import annotations

import pytest

from simulation.mutations import MUTATIONS, Patch, applied, caught_by
from simulation.run import run

# Those that many seeds find; ``scripts/mutate`` runs all of them over as many seeds as they take.
QUICK = (
    "settle-twice",
    "drop-dedupe",
    "pretend-completion",
    "unbind-answers",
    "acknowledge-outbox-early",
    "forget-unacknowledged",
    "skip-takeover",
    "send-before-commit",
    "skip-revision",
    "acknowledge-inbox-early",
    "keep-acknowledged",
    "answer-twice",
    "leak-focus",
    "close-without-settling",
    "never-reclaim",
    "leak-share",
    "fire-twice",
    "skip-audit",
    "break-chain",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_is_caught(name: str) -> None:
    assert caught_by(name, seeds=60, steps=250) is not None, MUTATIONS[name][0]


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_leaves_nothing_behind(name: str) -> None:
    patch = Patch()
    MUTATIONS[name][1](patch)
    assert patch._undo, "it changes something"
    patch.undo()
    with applied(name):
        pass
    assert run(1, 40).passed


def test_there_are_enough_of_them() -> None:
    assert len(MUTATIONS) >= 20
