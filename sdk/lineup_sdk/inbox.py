"""``sdk.inbox``: the deliveries that are not tool calls, kept by the Runtime until they are acknowledged."""

from __future__ import annotations

from collections.abc import Callable

from lineup_sdk.link import Link, Listeners, Unsubscribe
from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import InboxMessage


class InboxAPI:
    """What has not been acknowledged comes again after a crash, a restart or a reconnection.

    A message that an ``@app.on_…`` handler takes is acknowledged when the handler has ended. With a subscriber
    but no such handler, the app itself acknowledges. If there is neither, nobody is interested and the SDK does it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listeners: Listeners[InboxMessage] = Listeners()

    def list(self, after_message_id: str | None = None) -> list[InboxMessage]:
        """What is not acknowledged, in order; with ``after_message_id`` what came after that one (everything if it is
        not, or no longer, in the inbox)."""
        messages = list(self._link.projection.inbox.values())
        for index, message in enumerate(messages):
            if message.message_id == after_message_id:
                return messages[index + 1 :]
        return messages

    def subscribe(self, listener: Callable[[InboxMessage], None]) -> Unsubscribe:
        """Hear of every message from now on; see ``list`` for those that are there already."""
        return self._listeners.subscribe(listener)

    async def acknowledge(self, message_id: str) -> CommandReceipt:
        """The message has been taken over: it is never delivered again. Refused with ``not_found`` if it is not in the
        inbox."""
        message = self._link.projection.inbox.get(message_id)
        if message is None:
            return CommandReceipt(False, "not_found", f"{message_id!r} is not in the inbox")
        return await self._link.command("inbox.ack", {"seq": message.seq})
