"""``sdk.surfaces``: the pages of this instance. Their state lives in the Runtime; this side and the page patch it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lineup_sdk.link import Link, Listeners, Unsubscribe, given
from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import Surface


class SurfacesAPI:
    """A surface's state is a JSON object with a revision that counts its patches."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listeners: Listeners[Surface] = Listeners()

    async def request_open(
        self, entry: str, *, title: str | None = None, state: dict[str, Any] | None = None
    ) -> CommandReceipt:
        """Ask for a surface that shows the bundle's page ``entry``. Once accepted, ``detail`` has a ``surface_id``."""
        return await self._link.command("surface.open", given(entry=entry, title=title, state=state))

    async def update(
        self, surface_id: str, patch: dict[str, Any], *, base_revision: int | None = None
    ) -> CommandReceipt:
        """Apply a JSON Merge Patch; ``detail`` has the new ``revision``. With ``base_revision`` the patch is refused
        (``patch_conflict``) if the state has moved on since."""
        body = given(surface_id=surface_id, patch=patch, base_revision=base_revision)
        return await self._link.command("surface.update", body)

    async def request_close(self, surface_id: str) -> CommandReceipt:
        """Ask for the end of one surface."""
        return await self._link.command("surface.close", {"surface_id": surface_id})

    def get(self, surface_id: str) -> Surface | None:
        """One open surface. Its state is shared: read it, do not change it."""
        return self._link.projection.surfaces.get(surface_id)

    def list(self) -> list[Surface]:
        """The open surfaces, those opened by an earlier worker of this instance included."""
        return list(self._link.projection.surfaces.values())

    def subscribe(self, listener: Callable[[Surface], None]) -> Unsubscribe:
        """Hear of every patch that the page made."""
        return self._listeners.subscribe(listener)
