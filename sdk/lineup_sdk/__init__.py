"""LineUp's MiniApp SDK: everything that a MiniApp may import.

::

    from lineup_sdk import SDK, MiniApp, ToolCall

    app = MiniApp()

    @app.tool("greeter.hello")
    async def hello(call: ToolCall, sdk: SDK) -> dict:
        return {"greeting": f"Hello, {call.input['name']}"}
"""

from lineup_sdk.app import MiniApp, RegistrationError
from lineup_sdk.capabilities import CapabilityReceipt
from lineup_sdk.receipts import CommandReceipt, RequestRefused, ToolError
from lineup_sdk.records import (
    CapabilityResult,
    InboxMessage,
    Interaction,
    MiniAppContext,
    Operation,
    Surface,
    SurfaceEvent,
    TextMessage,
    ToolCall,
)
from lineup_sdk.sdk import SDK
from lineup_sdk.ui import Action, Choice, Confirm, Input, InputField, InteractionReceipt, Notice

__all__ = [
    "SDK",
    "Action",
    "CapabilityReceipt",
    "CapabilityResult",
    "Choice",
    "CommandReceipt",
    "Confirm",
    "InboxMessage",
    "Input",
    "InputField",
    "Interaction",
    "InteractionReceipt",
    "MiniApp",
    "MiniAppContext",
    "Notice",
    "Operation",
    "RegistrationError",
    "RequestRefused",
    "Surface",
    "SurfaceEvent",
    "TextMessage",
    "ToolCall",
    "ToolError",
]
