"""What a life cycle is: an enum of states, an enum of events, and a total table between them.

Laws of every machine here:
    1. Each pair of state and event has exactly one entry: a next state, ``IGNORE`` or a typed refusal.
    2. A final state has no entry that leads out of it.
    3. Nothing but ``Machine.next`` decides a next state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from lineup_protocol.errors import LineUpError

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True)
class Refuse:
    """The event is refused with this code; nothing changes."""

    code: str


class Ignore:
    """The event changes nothing and nobody needs to hear of it."""


IGNORE = Ignore()
# Tests and the simulation set this to learn which transitions they exercised: (machine, state, event).
recorder: Callable[[str, str, str], None] | None = None


class Machine(Generic[S, E]):
    """One life cycle. ``rules`` lists moves; ``otherwise`` fills the rest of a state's row."""

    def __init__(
        self,
        name: str,
        states: type[S],
        events: type[E],
        *,
        initial: S,
        final: Iterable[S],
        rules: Mapping[S, Mapping[E, S | Ignore | Refuse]],
        otherwise: Mapping[S, Refuse | Ignore],
    ) -> None:
        self.name = name
        self.states = states
        self.events = events
        self.initial = initial
        self.final = frozenset(final)
        self.table: dict[tuple[S, E], S | Ignore | Refuse] = {
            (state, event): rules.get(state, {}).get(event, otherwise[state]) for state in states for event in events
        }
        for (state, _), entry in self.table.items():
            assert state not in self.final or not isinstance(entry, states), f"{name}: {state} is final"

    def next(self, state: S, event: E) -> S:
        """The state after ``event``; the same state if it is ignored.

        Raises:
            LineUpError: with the table's code if the event is refused in this state.
        """
        entry = self.table[state, event]
        if recorder is not None:
            recorder(self.name, state, event)
        if isinstance(entry, Refuse):
            raise LineUpError(entry.code, f"{self.name} is {state}; {event} is not possible")
        return state if isinstance(entry, Ignore) else entry

    def allows(self, state: S, event: E) -> bool:
        """True if ``next`` would not refuse."""
        return not isinstance(self.table[state, event], Refuse)

    def is_final(self, state: S) -> bool:
        return state in self.final
