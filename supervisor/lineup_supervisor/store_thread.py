"""The one thread that writes the store: drains everything that is ready into one batch, and hands the outcome back.

This file owns the queue between the loop and the engine, its bounds, and the back-off of what must be tried again. It
must not know what events or effects mean. One fsync serves everybody who was waiting; the loop does I/O meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from lineup_supervisor.core.events import AnyEvent, Now
from lineup_supervisor.engine import Engine, Outcome

BATCH_EVENTS_MAX = 512  # per transaction, so that the first one's answer does not wait for a flood
QUEUED_EVENTS_MAX = 8_192  # beyond it requests are refused as rate_limited; what happened to us is always taken
QUEUED_BYTES_MAX = 32 << 20  # of what came over the host link: as much as its largest message; then it is read no more


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
        self._queue: SimpleQueue[tuple[AnyEvent, int] | None] = SimpleQueue()  # None only wakes the thread up
        self._bytes_taken = 0  # written by whoever submits
        self._bytes_decided = 0  # written by the thread
        self._ending = False
        self._thread = threading.Thread(target=self._main, name="store", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, event: AnyEvent, size: int = 0) -> None:
        """``size``: of the message that it came in, if whoever sent that can be made to wait. One caller at a time."""
        self._bytes_taken += size
        self._queue.put((event, size))

    @property
    def is_crowded(self) -> bool:
        return self._queue.qsize() >= QUEUED_EVENTS_MAX

    @property
    def is_full(self) -> bool:
        """So much waits, or is just being decided, that no more should be read. Over it is room for what was read."""
        return self._bytes_taken - self._bytes_decided >= QUEUED_BYTES_MAX

    def stop(self, timeout_s: float) -> bool:
        """End after the batch in work; what is still queued is dropped. False if it did not end in time."""
        self._ending = True
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _main(self) -> None:
        retry_s: float | None = None
        try:
            while (taken := self._next_batch(retry_s)) is not None:
                batch = [event for event, _ in taken]
                outcome = self._engine.run(batch, self._now())
                retry_s = None if outcome.retry_in_ms is None else outcome.retry_in_ms / 1000
                self._bytes_decided += sum(size for _, size in taken)
                self._deliver(batch, outcome)
        except BaseException as error:
            self._on_fatal(error)

    def _next_batch(self, retry_s: float | None) -> list[tuple[AnyEvent, int]] | None:
        """What is ready; an empty list when it is time to try again; None at the end."""
        batch: list[tuple[AnyEvent, int] | None] = []
        with contextlib.suppress(Empty):
            batch.append(self._queue.get(timeout=retry_s))
            while len(batch) < BATCH_EVENTS_MAX:
                batch.append(self._queue.get_nowait())
        return None if self._ending else [each for each in batch if each is not None]
