"""``MiniApp``: what a bundle registers. Owns the table of handlers and its mistakes; runs nothing (see ``runner``)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from lineup_protocol.ids import is_id
from lineup_sdk.records import CapabilityResult, Interaction, SurfaceEvent, TextMessage, ToolCall
from lineup_sdk.sdk import SDK

ToolHandler = Callable[[ToolCall, SDK], Awaitable[dict[str, Any] | None]]
LifeHandler = Callable[[SDK], Awaitable[None]]
CancelHandler = Callable[[ToolCall, str | None, SDK], Awaitable[None]]
TextHandler = Callable[[TextMessage, SDK], Awaitable[None]]
InteractionHandler = Callable[[Interaction, SDK], Awaitable[None]]
SurfaceHandler = Callable[[SurfaceEvent, SDK], Awaitable[None]]
CapabilityHandler = Callable[[CapabilityResult, SDK], Awaitable[None]]
CloseHandler = Callable[[str, SDK], Awaitable[None]]

T = TypeVar("T", bound=ToolHandler)
L = TypeVar("L", bound=LifeHandler)
X = TypeVar("X", bound=CancelHandler)
M = TypeVar("M", bound=TextHandler)
N = TypeVar("N", bound=InteractionHandler)
S = TypeVar("S", bound=SurfaceHandler)
C = TypeVar("C", bound=CapabilityHandler)
R = TypeVar("R", bound=CloseHandler)


class RegistrationError(Exception):
    """A handler cannot be registered like this; the message says what to write instead."""


class MiniApp:
    """One bundle's app. Make one at module level and decorate coroutines with its methods.

    ::

        app = MiniApp()

        @app.tool("greeter.hello")
        async def hello(call: ToolCall, sdk: SDK) -> dict:
            return {"greeting": f"Hello, {call.input['name']}"}
    """

    def __init__(self) -> None:
        self.tools: dict[str, ToolHandler] = {}
        self.start_handler: LifeHandler | None = None
        self.stop_handler: LifeHandler | None = None
        self.message_handler: TextHandler | None = None
        self.cancel_handler: CancelHandler | None = None
        self.interaction_handler: InteractionHandler | None = None
        self.surface_event_handler: SurfaceHandler | None = None
        self.surface_submit_handler: SurfaceHandler | None = None
        self.capability_handler: CapabilityHandler | None = None
        self.close_handler: CloseHandler | None = None

    def tool(self, tool_id: str) -> Callable[[T], T]:
        """Handle the calls of one tool: ``async def handler(call, sdk)``.

        A returned dict completes the call, None leaves it open, ``ToolError`` fails it with the app's code, any other
        exception fails it with ``tool_failed``. When the agent cancels, the handler gets ``asyncio.CancelledError``.
        """
        if callable(tool_id):
            raise RegistrationError("@app.tool needs the tool's id: @app.tool('my-app.open')")
        if not is_id(tool_id):
            raise RegistrationError(f"{tool_id!r} is not a tool id: use letters, digits, '.', '_', ':', '-'")

        def register(handler: T) -> T:
            _check(handler, f"@app.tool({tool_id!r})", ("call", "sdk"))
            if tool_id in self.tools:
                raise RegistrationError(f"@app.tool({tool_id!r}) is registered twice; a tool has one handler")
            self.tools[tool_id] = handler
            return handler

        return register

    def on_start(self, handler: L) -> L:
        """``async def handler(sdk)``: before any other handler, in every worker: restore from ``sdk.state``. If it
        raises or takes longer than 30 s, the app cannot be started."""
        self.start_handler = self._hook("on_start", handler, self.start_handler, ("sdk",))
        return handler

    def on_stop(self, handler: L) -> L:
        """``async def handler(sdk)``: the worker is asked to end; a little time is left. Never the place to save what
        must not be lost: a killed worker does not get here."""
        self.stop_handler = self._hook("on_stop", handler, self.stop_handler, ("sdk",))
        return handler

    def on_message(self, handler: M) -> M:
        """``async def handler(message, sdk)``: a text of the conversation, one after the other."""
        self.message_handler = self._hook("on_message", handler, self.message_handler, ("message", "sdk"))
        return handler

    def on_cancel(self, handler: X) -> X:
        """``async def handler(call, reason, sdk)``: the agent cancels a call that was left open. The SDK confirms after
        it, unless the handler has ended the call itself."""
        self.cancel_handler = self._hook("on_cancel", handler, self.cancel_handler, ("call", "reason", "sdk"))
        return handler

    def on_interaction(self, handler: N) -> N:
        """``async def handler(interaction, sdk)``: an interaction is settled and nobody waits for its ``result()``."""
        self.interaction_handler = self._hook(
            "on_interaction", handler, self.interaction_handler, ("interaction", "sdk")
        )
        return handler

    def on_surface_event(self, handler: S) -> S:
        """``async def handler(event, sdk)``: a named event of a surface, one after the other per surface. The event
        ``lineup.closed`` says that the person has closed it."""
        self.surface_event_handler = self._hook(
            "on_surface_event", handler, self.surface_event_handler, ("event", "sdk")
        )
        return handler

    def on_surface_submit(self, handler: S) -> S:
        """``async def handler(event, sdk)``: a surface submitted ``event.payload``."""
        self.surface_submit_handler = self._hook(
            "on_surface_submit", handler, self.surface_submit_handler, ("event", "sdk")
        )
        return handler

    def on_close_request(self, handler: R) -> R:
        """``async def handler(reason, sdk)``: the person wants to close the MiniApp while calls of it are open (feature
        ``app.confirm-close.v1``). Ask them, then end the calls and ``sdk.lifecycle.request_close``, or just return."""
        self.close_handler = self._hook("on_close_request", handler, self.close_handler, ("reason", "sdk"))
        return handler

    def on_capability(self, handler: C) -> C:
        """``async def handler(result, sdk)``: a capability request is decided and nobody waits for its ``result()``."""
        self.capability_handler = self._hook("on_capability", handler, self.capability_handler, ("result", "sdk"))
        return handler

    @staticmethod
    def _hook(name: str, handler: Any, present: Any, parameters: tuple[str, ...]) -> Any:
        _check(handler, f"@app.{name}", parameters)
        if present is not None:
            raise RegistrationError(f"@app.{name} is registered twice; register one handler and branch in it")
        return handler


def _check(handler: object, where: str, parameters: tuple[str, ...]) -> None:
    """Refuse what would only fail at the first delivery."""
    wanted = f"async def handler({', '.join(parameters)})"
    if not inspect.iscoroutinefunction(handler):
        raise RegistrationError(f"{where} needs a coroutine function: {wanted}")
    try:
        inspect.signature(handler).bind(*parameters)
    except TypeError as fault:
        raise RegistrationError(f"{where} needs {wanted}: {fault}") from None
