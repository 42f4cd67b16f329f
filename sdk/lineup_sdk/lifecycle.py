"""``sdk.lifecycle``: requests about this instance's place on the screen. The Runtime decides."""

from __future__ import annotations

from collections.abc import Callable

from lineup_sdk.link import Link, Listeners, Unsubscribe, given
from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import MiniAppContext


class LifecycleAPI:
    """Each request is answered by a receipt: accepted, or a refusal such as ``lifecycle_denied`` with its reason."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listeners: Listeners[MiniAppContext] = Listeners()

    async def request_foreground(self) -> CommandReceipt:
        """Ask to be what the person sees."""
        return await self._link.command("lifecycle.foreground", {})

    async def request_background(self) -> CommandReceipt:
        """Ask to let the instance below come to the front."""
        return await self._link.command("lifecycle.background", {})

    async def request_close(self, reason: str | None = None) -> CommandReceipt:
        """Ask for the end of this instance. Denied while a tool call, a surface or an operation is open."""
        return await self._link.command("lifecycle.close", given(reason=reason))

    def subscribe(self, listener: Callable[[MiniAppContext], None]) -> Unsubscribe:
        """Hear of every change of ``sdk.context.state``."""
        return self._listeners.subscribe(listener)
