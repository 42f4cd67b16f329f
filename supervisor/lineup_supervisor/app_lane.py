"""The way of one MiniApp's messages to the core: many at once if they cost little; what costs much is paid by waiting.

This file owns when a message of a worker is handed on; all instances of one MiniApp share a lane, so that many of them
take no more than one. It must not know what a message means. Decision record 0016 has the reason for each number.

Laws:
    * Messages of one MiniApp are handed on in the order in which they came.
    * A message that is long goes alone: what it costs is known before the next one goes.
    * What the last ones cost, the next ones may cost: as many go at once as then take ``AT_ONCE_S``, one at least.
    * Whoever costs more than ``CHEAP_S`` for a message waits ``PAID`` times the rest before the next one. Time is that
      of the processor, so that a busy machine makes nobody wait.
    * A MiniApp whose messages are short and cheap is never held up beyond ``UNITS_MAX`` of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

UNIT_BYTES = 256
UNITS_MAX = 128  # handed on and not decided, of one MiniApp: at most so much of everybody's time at once
CHEAP_S = 0.0005  # an ordinary message takes less than half of it
PAID = 3  # so that others have three quarters of the time
AT_ONCE_S = 0.01
FORGETS = 0.9  # of what the dearest of the last messages has cost, with each one that costs less


@dataclass
class _Waiting:
    owner: object
    units: int
    go: Callable[[], bool]


class AppLane:
    """One MiniApp's. Use from the loop's thread only.

    ``now()`` in seconds, ``call_at(when, callback)`` of the loop. ``enter(owner, size, go)`` runs ``go`` now or later;
    it hands the message on and says True, or False if nothing came of it. ``decided(size, cost_s)`` comes once for each
    True.
    """

    def __init__(self, now: Callable[[], float], call_at: Callable[[float, Callable[[], None]], object]) -> None:
        self._now = now
        self._call_at = call_at
        self._waiting: deque[_Waiting] = deque()
        self._units = 0
        self._undecided = 0
        self._usual_s = 0.0
        self._paid_at = 0.0
        self._is_to_wake = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def enter(self, owner: object, size: int, go: Callable[[], bool]) -> None:
        self._waiting.append(_Waiting(owner, _units(size), go))
        self._hand_on()

    def decided(self, size: int, cost_s: float) -> None:
        """The core has dealt with a message of ``size`` bytes in ``cost_s`` seconds of processor time."""
        self._units -= _units(size)
        self._undecided -= 1
        self._usual_s *= FORGETS
        self.charge(cost_s)
        self._hand_on()

    def charge(self, cost_s: float) -> None:
        """What a message has cost, here or there, or what was sent to its MiniApp."""
        if cost_s > CHEAP_S:
            self._usual_s = max(self._usual_s, cost_s)
            self._paid_at = max(self._paid_at, self._now()) + PAID * (cost_s - CHEAP_S)

    def forget(self, owner: object) -> None:
        """The worker has ended: what of it was not handed on is as if its end had come before."""
        self._waiting = deque(each for each in self._waiting if each.owner is not owner)
        self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting and not self._must_wait(self._waiting[0].units):
            first = self._waiting.popleft()
            if first.go():
                self._units += first.units
                self._undecided += 1

    def _must_wait(self, units: int) -> bool:
        if self._undecided and (self._units + units > UNITS_MAX or (self._undecided + 1) * self._usual_s > AT_ONCE_S):
            return True
        if self._now() >= self._paid_at:
            return False
        if not self._is_to_wake:
            self._is_to_wake = True
            self._call_at(self._paid_at, self._wake)
        return True

    def _wake(self) -> None:
        """A little early, perhaps, or too early for what was charged meanwhile: then once more."""
        self._is_to_wake = False
        self._hand_on()


def _units(size: int) -> int:
    return min(UNITS_MAX, 1 + size // UNIT_BYTES)
