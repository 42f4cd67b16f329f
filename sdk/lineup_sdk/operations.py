"""``sdk.operations``: the deadlines that the Runtime keeps for this instance, to look at."""

from __future__ import annotations

from collections.abc import Callable

from lineup_sdk.link import Link, Listeners, Unsubscribe
from lineup_sdk.records import Operation


class OperationsAPI:
    """A read-only projection: only the Runtime starts and ends an operation."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listeners: Listeners[Operation] = Listeners()

    def get(self, operation_id: str) -> Operation | None:
        return self._link.projection.operations.get(operation_id)

    def list(self) -> list[Operation]:
        return list(self._link.projection.operations.values())

    def subscribe(self, listener: Callable[[Operation], None]) -> Unsubscribe:
        """Hear of every change."""
        return self._listeners.subscribe(listener)
