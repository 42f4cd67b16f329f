"""``sdk.conversation``: the system extension of Interact. Any other MiniApp is refused by the Runtime."""

from __future__ import annotations

from lineup_sdk.link import Link, given
from lineup_sdk.receipts import CommandReceipt


class ConversationAPI:
    """Speaks into the instance's conversation."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def send_text(self, text: str, *, key: str | None = None) -> CommandReceipt:
        """Send a text to the agent through its outbox. The same ``key`` again sends nothing twice."""
        return await self._link.command("conversation.send_text", given(text=text, key=key))
