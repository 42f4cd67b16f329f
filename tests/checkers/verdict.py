"""All checkers over one history."""

from __future__ import annotations

from checkers import agents, audit, causes, comparison, operations, people, places, refusals, remains, restarts, workers
from checkers.history import Fault, History

CHECKERS = (
    agents.check_outbox,
    agents.check_results,
    agents.check_receipts,
    causes.check_causes,
    workers.check_inbox,
    workers.check_claims,
    workers.check_scope,
    people.check_answers,
    people.check_actions,
    people.check_said_once,
    people.check_focus,
    operations.check_operations,
    refusals.check_refused,
    refusals.check_nothing_changed,
    refusals.check_schemas,
    refusals.check_links,
    refusals.check_attempts,
    refusals.check_clock_of_questions,
    restarts.check_restarts,
    restarts.check_closed,
    restarts.check_late_starts,
    restarts.check_share,
    places.check_places,
    places.check_who_goes,
    places.check_who_waits,
    places.check_room,
    audit.check_chain,
    audit.check_refusals,
    remains.check_rest,
    comparison.check_model,
)


def judge(history: History) -> list[Fault]:
    """Every broken promise, in the order of the checkers."""
    return [fault for check in CHECKERS for fault in check(history)]
