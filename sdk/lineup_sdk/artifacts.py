"""``sdk.artifacts``: results that are files, kept by the Runtime under their digest."""

from __future__ import annotations

from lineup_sdk.link import Link
from lineup_sdk.receipts import CommandReceipt


class ArtifactsAPI:
    """Artifacts count against the MiniApp's quota (``artifact_quota_exceeded``)."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def submit(self, title: str, media_type: str, content: bytes) -> CommandReceipt:
        """Hand over one artifact; when accepted, ``detail`` has its ``artifact_id`` and metadata."""
        body = {"title": title, "media_type": media_type, "content": bytes(content)}
        return await self._link.command("artifact.submit", body)
