"""The one thread that writes the store: drains everything that is ready into one batch, and hands the outcome back.

This file owns the queue between the loop and the engine, its bound, and the back-off of what must be tried again. It
must not know what events or effects mean. One fsync serves everybody who was waiting; the loop does I/O meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from lineup_supervisor.core.events import AnyEvent, Now
from lineup_supervisor.engine import Engine, Outcome

BATCH_EVENTS_MAX = 512  # per transaction, so that the first one's answer does not wait for a flood
QUEUED_EVENTS_MAX = 8_192  # beyond it requests are refused as rate_limited; what happened to us is always taken


class StoreThread:
    """``deliver(batch, outcome)`` and ``on_fatal(error)`` are called in this thread; they must only hand over."""

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], Now],
        *,
        deliver: Callable[[Sequence[AnyEvent], Outcome], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._now = now
        self._deliver = deliver
        self._on_fatal = on_fatal
        self._queue: deque[AnyEvent] = deque()
        self._wakeup = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._main, name="store", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, event: AnyEvent) -> None:
        with self._wakeup:
            self._queue.append(event)
            self._wakeup.notify()

    @property
    def is_crowded(self) -> bool:
        return len(self._queue) >= QUEUED_EVENTS_MAX

    def stop(self, timeout_s: float) -> bool:
        """End after the batch in work; what is still queued is dropped. False if it did not end in time."""
        with self._wakeup:
            self._ending = True
            self._wakeup.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _main(self) -> None:
        retry_s: float | None = None
        try:
            while (batch := self._next_batch(retry_s)) is not None:
                outcome = self._engine.run(batch, self._now())
                retry_s = None if outcome.retry_in_ms is None else outcome.retry_in_ms / 1000
                self._deliver(batch, outcome)
        except BaseException as error:
            self._on_fatal(error)

    def _next_batch(self, retry_s: float | None) -> list[AnyEvent] | None:
        """What is ready; an empty list when it is time to try again; None at the end."""
        with self._wakeup:
            self._wakeup.wait_for(lambda: self._ending or self._queue, retry_s)
            if self._ending:
                return None
            return [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_EVENTS_MAX))]
