"""``sdk.capabilities``: requests for what a MiniApp has not by itself. Policy, consent and Host support decide."""

from __future__ import annotations

from typing import Any

from lineup_sdk.link import Link
from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import CapabilityResult


class CapabilityReceipt(CommandReceipt):
    """The receipt of a request, with the way to what came of it."""

    request_id: str | None = None
    _link: Link | None = None

    async def result(self) -> CapabilityResult:
        """Wait for the decision, a person's consent included.

        Raises:
            RequestRefused: if the request was not even accepted.
        """
        self.raise_if_refused()
        assert self._link is not None
        assert self.request_id is not None, "an accepted capability.request names itself"
        known = self._link.projection.capabilities.get(self.request_id)
        if known is not None:
            return known
        return await self._link.capabilities_awaited.wait(self.request_id)


class CapabilitiesAPI:
    """Only what the manifest lists under ``requested_capabilities`` can be asked for."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def request(self, capability: str, reason: str, arguments: dict[str, Any] | None = None) -> CapabilityReceipt:
        """Ask to use ``capability`` once; ``reason`` is shown to the person who is asked for consent."""
        body = {"capability": capability, "reason": reason, "arguments": arguments or {}}
        receipt = await self._link.command("capability.request", body)
        detail = receipt.detail if receipt.accepted and isinstance(receipt.detail, dict) else {}
        return CapabilityReceipt(
            receipt.accepted, receipt.code, receipt.message, receipt.detail, detail.get("request_id"), self._link
        )
