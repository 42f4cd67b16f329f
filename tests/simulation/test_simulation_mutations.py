"""Deliberate bugs of the core, each caught by a checker from outside; the sound core by none."""

from __future__ import annotations

import pytest

from simulation.mutations import MUTATIONS, Patch, all_that_catch, applied, caught_by
from simulation.run import run

# Those that many seeds find; ``scripts/mutate`` runs all of them over as many seeds as they take.
QUICK = (
    "settle-twice",
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
    "keep-refused",
    "close-without-settling",
    "take-every-start",
    "take-every-place",
    "keep-places",
    "end-calls-for-places",
    "never-reclaim",
    "leak-share",
    "fire-twice",
    "skip-audit",
    "break-chain",
    "forget-said",
)
# Those that few seeds find, with where to look for one.
RARE = {"drop-dedupe": 130, "keep-questions-of-lost-attempts": 205, "keep-receipts-bare": 485}
# The records say otherwise than what was decided: no participant notices, the reference model does.
ONLY_THE_MODEL = ("change-record", "shuffle-focus", "forget-drafts", "forget-states")


@pytest.mark.parametrize("name", ONLY_THE_MODEL)
def test_only_the_reference_model_sees_it(name: str) -> None:
    found = all_that_catch(name, seeds=150, steps=300)
    assert found is not None, MUTATIONS[name][0]
    assert found[0] == ["model"]


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_is_caught(name: str) -> None:
    assert caught_by(name, seeds=60, steps=300) is not None, MUTATIONS[name][0]


@pytest.mark.parametrize("name", RARE)
def test_a_rare_bug_is_caught(name: str) -> None:
    assert all_that_catch(name, seeds=40, steps=300, first=RARE[name]) is not None, MUTATIONS[name][0]


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
