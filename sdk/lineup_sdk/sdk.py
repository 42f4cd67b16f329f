"""The object that every handler gets: a MiniApp's only way to anything outside itself."""

from __future__ import annotations

from lineup_sdk.artifacts import ArtifactsAPI
from lineup_sdk.capabilities import CapabilitiesAPI
from lineup_sdk.conversation import ConversationAPI
from lineup_sdk.inbox import InboxAPI
from lineup_sdk.lifecycle import LifecycleAPI
from lineup_sdk.link import Link
from lineup_sdk.operations import OperationsAPI
from lineup_sdk.records import MiniAppContext
from lineup_sdk.state import StateAPI
from lineup_sdk.surfaces import SurfacesAPI
from lineup_sdk.tools import ToolsAPI
from lineup_sdk.ui import UIAPI


class SDK:
    """Every write is a request and returns a receipt after the Runtime has committed; every read is a projection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.inbox = InboxAPI(link)
        self.tools = ToolsAPI(link)
        self.ui = UIAPI(link)
        self.lifecycle = LifecycleAPI(link)
        self.surfaces = SurfacesAPI(link)
        self.capabilities = CapabilitiesAPI(link)
        self.state = StateAPI(link)
        self.operations = OperationsAPI(link)
        self.artifacts = ArtifactsAPI(link)
        self.conversation = ConversationAPI(link)

    @property
    def context(self) -> MiniAppContext:
        """Who this instance is and where it stands just now."""
        return self._link.projection.context
