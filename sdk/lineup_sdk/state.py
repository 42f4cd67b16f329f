"""``sdk.state``: the instance's snapshot (feature ``app.instance-state.v1``). It outlives the worker."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from lineup_sdk.link import Link, given
from lineup_sdk.receipts import CommandReceipt


class StateAPI:
    """One JSON object that satisfies the manifest's ``state_schema`` within ``max_bytes``.

    Handlers run side by side: hold ``lock`` from ``get`` to ``save`` to change what was saved. It is granted in the
    order in which it was asked for, so changes are made in the order of the deliveries.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.lock = asyncio.Lock()

    @property
    def revision(self) -> int:
        """Counts the saves; 0 if nothing was saved yet."""
        return self._link.projection.state_revision

    def get(self) -> dict[str, Any] | None:
        """A copy of what was saved last, or None."""
        return copy.deepcopy(self._link.projection.state)

    async def save(self, state: dict[str, Any], *, base_revision: int | None = None) -> CommandReceipt:
        """Replace the snapshot; durable once accepted. With ``base_revision`` it is refused (``state_conflict``) if
        another save came between."""
        body = given(state=state, base_revision=base_revision)
        return await self._link.command("state.save", body)
