"""Runs one MiniApp over one channel: a worker process and the test kit's in-process worker are the same code.

Owns the tasks in which handlers run and what follows from how they end. The protocol's rules are in ``session``; how
messages travel is the channel's business; nothing here reads a clock but to bound the time of a stop.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_sdk.app import MiniApp
from lineup_sdk.channel import Channel, ChannelClosed, Message
from lineup_sdk.events import (
    Answered,
    CallStarted,
    CancelAsked,
    ClaimRefused,
    ContextChanged,
    InteractionChanged,
    MessageDelivered,
    OperationChanged,
    Refused,
    SessionEvent,
    StopAsked,
    SurfaceChanged,
    Welcomed,
)
from lineup_sdk.link import Awaited, Scope, Turn, current_scope, current_turn
from lineup_sdk.receipts import CommandReceipt, ToolError
from lineup_sdk.records import CapabilityResult, InboxMessage, Interaction, SurfaceEvent, TextMessage, ToolCall
from lineup_sdk.sdk import SDK
from lineup_sdk.session import ProtocolViolation, WorkerSession
from lineup_sdk.values import Value

START_S_MAX = (
    30.0  # for on_start: long enough to restore anything, short enough to tell a hanging start from a slow one
)
STOP_SHARE_OF_GRACE = 0.8  # the rest of the grace is for sending what is left and for exiting
ACKNOWLEDGE_WITHIN_S = 0.02  # how long the acknowledgement of a retry_safe call waits for its result

_RUNTIME_IS_GONE = CommandReceipt(
    False, "runtime_stopping", "the Runtime went away before it answered; the command may or may not have been taken"
)


class Exit(Value):
    """Why a run ended. ``reason``: ``stopped`` | ``refused`` | ``runtime_gone`` | ``load_failed`` | ``protocol``."""

    reason: str
    message: str = ""


class Runner:
    """One run of one app. ``load`` gets the bundle's entry (``module:attr``) and gives the app, or raises."""

    def __init__(self, channel: Channel, load: Callable[[str], MiniApp]) -> None:
        self.session = WorkerSession()
        self.projection = self.session.projection
        self.interactions_awaited: Awaited[Interaction] = Awaited()
        self.capabilities_awaited: Awaited[CapabilityResult] = Awaited()
        self.sdk = SDK(self)
        self.app = MiniApp()
        self._channel = channel
        self._load = load
        self._exit: asyncio.Future[Exit] | None = None
        self._started = asyncio.Event()
        self._stopping = False
        self._late: asyncio.TimerHandle | None = None
        self._gone = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[str, asyncio.Task[None]] = {}  # call_id → the task of its handler
        self._cancels: dict[str, CancelAsked] = {}  # call_id → a cancel that waits for the handler's end
        self._receipts: dict[str, asyncio.Future[CommandReceipt]] = {}
        self._lanes: dict[tuple[str, str], deque[InboxMessage]] = {}

    async def run(self) -> Exit:
        """Say hello, serve until there is a reason to end, and leave no task behind."""
        self._exit = asyncio.get_running_loop().create_future()
        self.session.hello()
        self._flush()
        self._spawn(self._pump())
        try:
            return await self._exit
        finally:
            tasks = [task for task in self._tasks if not task.done()]
            self._stopping = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._channel.close()

    def stop(self, reason: str, grace_ms: int) -> None:
        """End in an orderly way: cancel handlers (their calls stay open), run ``on_stop``, exit within the grace."""
        if not self._stopping:
            self._stopping = True
            self._spawn(self._stop(reason, grace_ms / 1000 * STOP_SHARE_OF_GRACE))

    def end(self, reason: str, message: str = "") -> None:
        """End at once, for this reason; the first one stands."""
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(Exit(reason, message))

    @property
    def idle(self) -> bool:
        """True when nothing is left to do until the Runtime sends something: no handler, no lane, no open command."""
        return not (self.session.busy or self._receipts or self._lanes or len(self._tasks) > 1)

    # -- Link, for the API objects ------------------------------------------------------------------------------

    async def command(self, type_: str, body: dict[str, Any]) -> CommandReceipt:
        """Send a command and wait for its receipt. Every refusal is a receipt, a local one too."""
        if self._gone:
            return _RUNTIME_IS_GONE
        try:
            command_id = self.session.command(type_, body)
        except LineUpError as fault:
            return CommandReceipt(False, fault.code, fault.message, fault.detail)
        receipt: asyncio.Future[CommandReceipt] = asyncio.get_running_loop().create_future()
        self._receipts[command_id] = receipt
        self._flush()
        try:
            return await receipt
        finally:
            self._receipts.pop(command_id, None)

    def acknowledge(self, seq: int) -> None:
        self.session.acknowledge(seq)
        self._flush()

    # -- the loop -----------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        """Take messages until the channel ends. Answers that need no handler are sent before the next are read."""
        try:
            while True:
                for message in await self._channel.receive():
                    for event in self._receive(message):
                        self._on(event)
                self._flush()
        except ChannelClosed:
            self._runtime_gone()
        except (ProtocolViolation, LineUpError) as fault:
            self.end("protocol", str(fault))

    def _receive(self, message: Message) -> list[SessionEvent]:
        if not isinstance(message, dict) or "type" not in message:
            raise ProtocolViolation("a message that is not a map {type, id?, body}")
        return self.session.receive(message["type"], message.get("id"), message.get("body"))

    def _acknowledge_late(self) -> None:
        self._late = None
        self.session.acknowledge_deferred()
        self._flush()

    def _flush(self) -> None:
        """Send what the session has to say. A message that cannot be sent is answered as the Runtime would."""
        if self.session.deferring and self._late is None:
            self._late = asyncio.get_running_loop().call_later(ACKNOWLEDGE_WITHIN_S, self._acknowledge_late)
        while out := self.session.outgoing():
            for message in out:
                try:
                    self._channel.send(message)
                except LineUpError as fault:
                    if "id" not in message:
                        _log(f"{message['type']} cannot be sent: {fault}")
                        continue
                    for event in self.session.refuse(message["id"], fault):
                        self._on(event)
                except ChannelClosed:
                    self._runtime_gone()
                    return

    def _runtime_gone(self) -> None:
        self._gone = True
        for receipt in self._receipts.values():
            if not receipt.done():
                receipt.set_result(_RUNTIME_IS_GONE)
        self.end("runtime_gone", "the Runtime closed the connection")

    def _on(self, event: SessionEvent) -> None:
        match event:
            case Answered(command_id, receipt):
                future = self._receipts.get(command_id)
                if future is not None and not future.done():
                    future.set_result(receipt)
            case CallStarted(call):
                self._start_handler(call)
            case CancelAsked():
                self._cancel(event)
            case MessageDelivered(message):
                self._delivered(message)
            case InteractionChanged(interaction):
                if interaction.settled:
                    self.interactions_awaited.settle(interaction.interaction_id, interaction)
                self.sdk.ui._listeners.tell(interaction)
            case ContextChanged(context):
                self.sdk.lifecycle._listeners.tell(context)
            case OperationChanged(operation):
                self.sdk.operations._listeners.tell(operation)
            case SurfaceChanged(surface):
                self.sdk.surfaces._listeners.tell(surface)
            case Welcomed(entry):
                self._spawn(self._start(entry))
            case StopAsked(reason, grace_ms):
                self.stop(reason, grace_ms)
            case Refused(code, message):
                self.end("refused", f"{code}: {message}")
            case ClaimRefused(call, receipt):
                _log(f"call {call.call_id} was taken back before it started: {receipt.code}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        bug = None if task.cancelled() else task.exception()
        if bug is not None and self._exit is not None and not self._exit.done():
            self._exit.set_exception(bug)

    # -- start and stop -----------------------------------------------------------------------------------------

    async def _start(self, entry: str) -> None:
        """Load the app and say so; what is delivered from then on waits until ``on_start`` has ended."""
        try:
            self.app = self._load(entry)
            if self._stopping:
                return
            self.session.ready()
            self._flush()
            if self.app.start_handler is not None:
                await self._bounded_start(self.app.start_handler)
        except (Exception, asyncio.CancelledError) as fault:
            if isinstance(fault, asyncio.CancelledError) and _is_cancelled():
                raise
            _log(traceback.format_exc().rstrip())
            reason = _words(fault)[: limits.REASON_LENGTH_MAX]
            self.session.load_failed("app_start_failed", reason)
            self._flush()
            self.end("load_failed", reason)
        else:
            self._started.set()

    async def _bounded_start(self, handler: Callable[[SDK], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(START_S_MAX) as limit:
                await handler(self.sdk)
        except TimeoutError as fault:
            if limit.expired():
                raise TimeoutError(f"on_start did not end within {START_S_MAX:g} s") from fault
            raise

    async def _stop(self, reason: str, seconds: float) -> None:
        for handler in tuple(self._handlers.values()):
            handler.cancel()
        try:
            async with asyncio.timeout(seconds):
                if self._handlers:
                    await asyncio.wait(tuple(self._handlers.values()))
                if self.app.stop_handler is not None:
                    await self.app.stop_handler(self.sdk)
        except TimeoutError:
            _log(f"stop ({reason}): the app did not end within {seconds:.1f} s")
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            _log(f"stop ({reason}): on_stop awaited something that was cancelled")
        except Exception:
            _log(traceback.format_exc().rstrip())
        self._flush()
        self.end("stopped", reason)

    # -- tool calls ---------------------------------------------------------------------------------------------

    def _start_handler(self, call: ToolCall) -> None:
        if self._stopping:
            return
        self.sdk.tools._listeners.tell(call)
        task = self._spawn(self._run_handler(call))
        self._handlers[call.call_id] = task
        task.add_done_callback(lambda done: self._handler_done(call, done))

    async def _run_handler(self, call: ToolCall) -> None:
        await self._started.wait()
        handler = self.app.tools.get(call.tool_id)
        if handler is None:
            await self._fail(call, ToolError("tool_failed", f"the MiniApp has no handler for {call.tool_id}"))
            return
        current_scope.set(Scope(call.call_id, call))
        try:
            result = await handler(call, self.sdk)
        except ToolError as failure:
            await self._fail(call, failure)
        except MemoryError:
            raise  # nothing can be relied on any more: the process ends, and the Runtime names the limit
        except asyncio.CancelledError as fault:
            if _is_cancelled():
                raise
            _log(f"the handler of {call.tool_id} awaited something that was cancelled, on call {call.call_id}")
            await self._fail(call, ToolError("tool_failed", _words(fault)))
        except Exception as fault:
            _log(f"the handler of {call.tool_id} raised on call {call.call_id}:")
            _log(traceback.format_exc().rstrip())
            await self._fail(call, ToolError("tool_failed", _words(fault)))
        else:
            await self._returned(call, result)

    async def _returned(self, call: ToolCall, result: object) -> None:
        if result is None:
            return
        if not isinstance(result, dict):
            message = f"the handler of {call.tool_id} returned {type(result).__name__}; it must return a dict or None"
            _log(message)
            await self._fail(call, ToolError("tool_failed", message))
            return
        receipt = await self.sdk.tools.complete(call.call_id, result)
        if not receipt.accepted and call.call_id in self.projection.calls and not self._gone:
            # The call would stay open for ever: nobody else is going to end it.
            _log(f"the result of call {call.call_id} was refused: {receipt.code}: {receipt.message}")
            message = receipt.message or "the result was refused"
            await self._fail(call, ToolError(receipt.code or "tool_failed", message, receipt.detail))

    async def _fail(self, call: ToolCall, failure: ToolError) -> None:
        """End the call, if need be with less than the app has said: nobody else is going to."""
        message = _sendable(failure.message)[: limits.REASON_LENGTH_MAX]
        plain = "the MiniApp failed, and what it said of it cannot be sent"
        for code, words, detail in (
            (failure.code, message, failure.detail),
            (failure.code, message, None),
            ("tool_failed", plain, None),
        ):
            receipt = await self.sdk.tools.fail(call.call_id, code, words, detail)
            if receipt.accepted or self._gone or call.call_id not in self.projection.calls:
                return

    def _handler_done(self, call: ToolCall, task: asyncio.Task[None]) -> None:
        del self._handlers[call.call_id]
        asked = self._cancels.pop(call.call_id, None)
        if self._stopping:
            return
        if asked is not None:
            self._spawn(self._confirm(asked))
        for event in self.session.finished(call.call_id):
            self._on(event)
        self._flush()

    def _cancel(self, asked: CancelAsked) -> None:
        handler = self._handlers.get(asked.call.call_id)
        if handler is not None:
            self._cancels[asked.call.call_id] = asked
            handler.cancel()
        elif not self._stopping:
            self._spawn(self._cancel_open(asked))

    async def _cancel_open(self, asked: CancelAsked) -> None:
        """Cancel a call whose handler is not running: it was left open, or never started."""
        await self._started.wait()
        if asked.started and self.app.cancel_handler is not None:
            try:
                await self.app.cancel_handler(asked.call, asked.reason, self.sdk)
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                _log(f"on_cancel awaited something that was cancelled, on call {asked.call.call_id}")
            except Exception:
                _log(f"on_cancel raised on call {asked.call.call_id}:")
                _log(traceback.format_exc().rstrip())
        await self._confirm(asked)

    async def _confirm(self, asked: CancelAsked) -> None:
        """Confirm unless the app has ended the call itself, then take the cancel over."""
        if asked.call.call_id in self.projection.calls:
            await self.sdk.tools.cancel(asked.call.call_id, asked.reason)
        self.acknowledge(asked.seq)

    # -- messages -----------------------------------------------------------------------------------------------

    def _delivered(self, message: InboxMessage) -> None:
        """Hand a message to whoever waits for it, else queue it for its handler; one that nobody wants is done."""
        if message.kind == "interaction.result":
            interaction_id = message.body["interaction"]["interaction_id"]
            taken = self.interactions_awaited.settle(interaction_id, self.projection.interactions[interaction_id])
        elif message.kind == "capability.result":
            result = self.projection.put_capability(message.body)
            taken = self.capabilities_awaited.settle(result.request_id, result)
        else:
            taken = False
        self.sdk.inbox._listeners.tell(message)
        if not taken and self._handler_of(message) is not None:
            self._queue(message)
        elif taken or not self.sdk.inbox._listeners:
            self.session.acknowledge(message.seq)

    def _queue(self, message: InboxMessage) -> None:
        """Messages of one kind (and one surface, one interaction) take turns, in order."""
        body = message.body
        subject = body.get("surface_id") or body.get("interaction", {}).get("interaction_id") or ""
        lane = (message.kind, subject)
        queue = self._lanes.get(lane)
        if queue is not None:
            queue.append(message)
            return
        self._lanes[lane] = deque((message,))
        self._spawn(self._run_lane(lane))

    async def _run_lane(self, lane: tuple[str, str]) -> None:
        queue = self._lanes[lane]
        try:
            while queue and not self._stopping:
                turn = Turn()
                self._spawn(self._handle(queue.popleft(), turn))
                await turn.wait()
        finally:
            del self._lanes[lane]

    async def _handle(self, message: InboxMessage, turn: Turn) -> None:
        handler = self._handler_of(message)
        assert handler is not None
        await self._started.wait()
        current_turn.set(turn)
        current_scope.set(Scope(message.message_id))
        try:
            await handler()
        except MemoryError:
            raise
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            _log(f"the handler of {message.kind} awaited something that was cancelled, on message {message.message_id}")
        except Exception:
            # The same code would raise again: a message is not a reason to stop the inbox for ever.
            _log(f"the handler of {message.kind} raised on message {message.message_id}:")
            _log(traceback.format_exc().rstrip())
        finally:
            turn.end()
        self.acknowledge(message.seq)

    def _handler_of(self, message: InboxMessage) -> Callable[[], Awaitable[None]] | None:
        """The app's handler of this message, ready to be awaited, or None."""
        handler: Callable[[Any, SDK], Awaitable[None]] | None
        argument: Any
        match message.kind:
            case "message.text":
                handler, argument = self.app.message_handler, TextMessage.from_message(message)
            case "interaction.result":
                handler, argument = self.app.interaction_handler, Interaction.from_body(message.body["interaction"])
            case "surface.event":
                handler, argument = self.app.surface_event_handler, SurfaceEvent.from_message(message)
            case "surface.submit":
                handler, argument = self.app.surface_submit_handler, SurfaceEvent.from_message(message)
            case "capability.result":
                handler, argument = self.app.capability_handler, CapabilityResult.from_body(message.body)
            case "close.request":
                handler, argument = self.app.close_handler, message.body.get("reason", "")
            case _:
                return None
        return None if handler is None else partial(handler, argument, self.sdk)


def _is_cancelled() -> bool:
    """Whether somebody cancelled the running handler itself, and not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _words(fault: BaseException) -> str:
    """The exception's class and what it says, if it can say anything."""
    try:
        said = str(fault)
    except Exception:
        said = ""
    return _sendable(f"{type(fault).__name__}: {said}" if said else type(fault).__name__)


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _log(line: str) -> None:
    print(_sendable(line), file=sys.stderr, flush=True)  # whatever takes it: a test's stream takes less than the log
