"""The worker's half of the protocol, sans I/O: messages in, events out, messages to send.

Laws:
    1. Nothing is sent or awaited here; ``outgoing`` hands over what must be sent, in order.
    2. A delivery is reported once per worker, whatever is sent again; one that was acknowledged is acknowledged again.
    3. A call that is not ``retry_safe`` starts only after the Runtime has committed its acknowledgement, so no crash
       can make it run twice. A ``retry_safe`` one starts at once.
    4. At most ``handlers_max`` calls are started and not finished; the others wait, in order, unacknowledged.
    5. A ping is answered at once, in every phase.
    6. What the Runtime may not say is a ``ProtocolViolation``: the session is of no more use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.messages import PROTOCOL_VERSION, check_body, find
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
from lineup_sdk.projection import Projection
from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import InboxMessage, ToolCall

SDK_VERSION = "1.0"
HANDLERS_MAX = limits.CALLS_PER_INSTANCE_MAX  # fewer would let waiting calls fill the inbox's window
CLOSED_BY_PERSON = "lineup.closed"  # the event that tells of a surface's end
COMMANDS_MAX = 1024  # commands without a receipt; an app past it does not wait for its receipts

Message = dict[str, Any]


class ProtocolViolation(Exception):
    """The Runtime said what the protocol does not allow. Not the app's fault."""


class WorkerSession:
    """One worker's link to the Runtime. Not thread-safe; one driver owns it."""

    def __init__(self, *, handlers_max: int = HANDLERS_MAX) -> None:
        self.projection = Projection()
        self.phase = "new"  # new → greeting → loading → open; refused
        self.pings = 0  # how many have come: whoever has a clock can tell a silent Runtime from a live one
        self._handlers_max = handlers_max
        self._out: list[Message] = []
        self._next_command = 1
        self._commands: dict[str, tuple[str, dict[str, Any]]] = {}
        self._last_seq = 0
        self._unacknowledged: dict[int, str] = {}  # seq → message_id
        self._waiting: deque[tuple[int, ToolCall]] = deque()
        self._claims: dict[str, ToolCall] = {}  # command id of the acknowledgement → call
        self._withdrawn: set[str] = set()  # calls cancelled while their claim was on its way
        self._running: set[str] = set()
        self._deferred: list[int] = []  # acknowledgements that wait for company

    # -- towards the Runtime ------------------------------------------------------------------------------------

    def hello(self) -> None:
        """Say hello; the first message of all."""
        assert self.phase == "new"
        self.phase = "greeting"
        self.notify("worker.hello", {"protocols": [PROTOCOL_VERSION], "sdk_version": SDK_VERSION})

    def ready(self) -> None:
        """The app is loaded: deliveries may come."""
        assert self.phase == "loading"
        self.phase = "open"
        self.notify("worker.ready", {})

    def load_failed(self, code: str, message: str) -> None:
        """The app could not be loaded; the process will exit."""
        self.notify("worker.failed", {"code": code, "message": message})

    def notify(self, type_: str, body: dict[str, Any]) -> None:
        """Queue a message that wants no receipt."""
        self._out.append({"type": type_, "body": body})

    def command(self, type_: str, body: dict[str, Any]) -> str:
        """Queue a message that wants a receipt; its id. The receipt comes as ``Answered``.

        Raises:
            LineUpError: ``message_invalid`` for a body that breaks the table, ``rate_limited`` for too many at once.
        """
        row = find("worker", type_, from_runtime=False)
        assert row is not None, type_
        check_body(row, body)
        if len(self._commands) >= COMMANDS_MAX:
            raise LineUpError("rate_limited", f"{COMMANDS_MAX} commands wait for their receipts; wait for some of them")
        return self._command(type_, body)

    def _command(self, type_: str, body: dict[str, Any]) -> str:
        command_id = str(self._next_command)
        self._next_command += 1
        self._commands[command_id] = (type_, self.projection.keep(type_, body))
        self._out.append({"type": type_, "id": command_id, "body": body})
        return command_id

    def acknowledge(self, seq: int) -> None:
        """Tell the Runtime that a delivery has been taken over; wants no receipt, a lost one is sent again."""
        message_id = self._unacknowledged.pop(seq, None)
        if message_id is not None:
            self.projection.inbox.pop(message_id, None)
            self.notify("inbox.ack", {"seq": seq})

    def acknowledge_deferred(self) -> None:
        """Send the acknowledgements that waited for company: nothing else came in time."""
        deferred, self._deferred = self._deferred, []
        for seq in deferred:
            self.acknowledge(seq)

    def finished(self, call_id: str) -> list[SessionEvent]:
        """The handler of a started call has ended (the call itself may stay open)."""
        self._running.discard(call_id)
        self.acknowledge_deferred()
        return self._admit()

    def refuse(self, command_id: str, fault: LineUpError) -> list[SessionEvent]:
        """A queued command could not be sent: it is answered here, as the Runtime would."""
        type_, _ = self._commands[command_id]
        return self._answer(command_id, _in_words_of_the_app(type_, fault))

    def outgoing(self) -> list[Message]:
        """What must be sent now, in order; each message is handed over once."""
        out, self._out = self._out, []
        if out and self._deferred:
            self.acknowledge_deferred()
            acknowledgements, self._out = self._out, []
            return acknowledgements + out
        return out

    @property
    def deferring(self) -> bool:
        """True while acknowledgements wait for company; call ``acknowledge_deferred`` soon."""
        return bool(self._deferred)

    @property
    def busy(self) -> bool:
        """True while a handler runs, waits for its turn, or a command waits for its receipt."""
        return bool(self._running or self._waiting or self._commands)

    # -- from the Runtime ---------------------------------------------------------------------------------------

    def receive(self, type_: str, id_: str | None, body: Any) -> list[SessionEvent]:
        """Take one message of the Runtime; what follows from it.

        Raises:
            ProtocolViolation: for anything that the table of messages does not allow just now.
        """
        row = find("worker", type_, from_runtime=True)
        if row is None:
            raise ProtocolViolation(f"unknown message type {type_!r}")
        try:
            check_body(row, body)
            return self._dispatch(type_, body)
        except LineUpError as fault:
            raise ProtocolViolation(f"{type_}: {fault.message}") from fault
        except (KeyError, TypeError, AttributeError) as fault:
            raise ProtocolViolation(f"{type_}: a field is missing or of another kind: {fault!r}") from fault

    def _dispatch(self, type_: str, body: dict[str, Any]) -> list[SessionEvent]:
        match type_:
            case "worker.ping":
                self.pings += 1
                self.notify("worker.pong", {"nonce": body["nonce"]})
                return []
            case "worker.stop":
                return [StopAsked(body["reason"], body["grace_ms"])]
            case "worker.refuse":
                self.phase = "refused"
                return [Refused(body["code"], body["message"])]
            case "worker.welcome":
                return self._welcome(body)
        if self.phase not in ("loading", "open"):
            raise ProtocolViolation(f"{type_} before worker.welcome")
        match type_:
            case "inbox.deliver":
                return self._deliver(body)
            case "receipt":
                receipt = CommandReceipt(body["accepted"], body.get("code"), body.get("message"), body.get("detail"))
                return self._answer(body["re"], receipt)
            case "context.changed":
                return [ContextChanged(self.projection.change_context(body["state"]))]
            case "operation.changed":
                return [OperationChanged(self.projection.put_operation(body["operation"]))]
            case "interaction.changed":
                return [InteractionChanged(self.projection.put_interaction(body["interaction"]))]
            case "surface.changed":
                surface = self.projection.patch_surface(body["surface_id"], body["patch"], body["revision"])
                return [SurfaceChanged(surface)] if surface is not None else []
        raise AssertionError(f"{type_} is in the table and has no rule here")

    def _welcome(self, body: dict[str, Any]) -> list[SessionEvent]:
        if self.phase != "greeting":
            raise ProtocolViolation("worker.welcome out of turn")
        if body["protocol"] != PROTOCOL_VERSION:
            raise ProtocolViolation(f"protocol {body['protocol']} was not offered")
        self.projection.load(body)
        self.phase = "loading"
        return [Welcomed(body["entry"])]

    def _answer(self, command_id: str, receipt: CommandReceipt) -> list[SessionEvent]:
        pending = self._commands.pop(command_id, None)
        if pending is None:
            raise ProtocolViolation(f"a receipt for {command_id!r}, which waits for none")
        type_, body = pending
        if type_ == "inbox.ack" and receipt.accepted:
            message_id = self._unacknowledged.pop(body["seq"], None)
            if message_id is not None:
                self.projection.inbox.pop(message_id, None)
        self.projection.settle(type_, body, receipt)
        events: list[SessionEvent] = [Answered(command_id, receipt)]
        call = self._claims.pop(command_id, None)
        if call is not None:
            events += self._claimed(call, receipt)
        return events

    # -- deliveries ---------------------------------------------------------------------------------------------

    def _deliver(self, body: dict[str, Any]) -> list[SessionEvent]:
        seq, kind, item = body["seq"], body["kind"], body["body"]
        if seq <= self._last_seq:
            if seq not in self._unacknowledged:
                self.notify("inbox.ack", {"seq": seq})
            return []
        self._last_seq = seq
        self._unacknowledged[seq] = body["message_id"]
        if kind == "tool.call":
            return self._deliver_call(seq, item)
        if kind == "tool.cancel":
            return self._deliver_cancel(seq, item)
        message = InboxMessage(seq, body["message_id"], kind, item)
        self.projection.inbox[message.message_id] = message
        events: list[SessionEvent] = []
        if kind == "surface.event" and item.get("name") == CLOSED_BY_PERSON:
            self.projection.surfaces.pop(item.get("surface_id", ""), None)
        if kind == "interaction.result":
            events.append(InteractionChanged(self.projection.put_interaction(item["interaction"])))
        return [*events, MessageDelivered(message)]

    def _deliver_call(self, seq: int, item: Mapping[str, Any]) -> list[SessionEvent]:
        call = ToolCall.from_body(item)
        if call.call_id in self._running:
            self.acknowledge(seq)  # this very worker runs it already
            return []
        self.projection.put_call(call, item)
        self._waiting.append((seq, call))
        return self._admit()

    def _deliver_cancel(self, seq: int, item: Mapping[str, Any]) -> list[SessionEvent]:
        call = self.projection.calls.get(item["call_id"])
        if call is None:
            self.acknowledge(seq)  # it has ended meanwhile
            return []
        started = True
        for waiting in self._waiting:
            if waiting[1].call_id == call.call_id:
                self._waiting.remove(waiting)
                self.acknowledge(waiting[0])
                started = False
                break
        if any(claimed.call_id == call.call_id for claimed in self._claims.values()):
            self._withdrawn.add(call.call_id)
            started = False
        return [CancelAsked(call, seq, item.get("reason"), started)]

    def _admit(self) -> list[SessionEvent]:
        """Start waiting calls as far as there is room."""
        events: list[SessionEvent] = []
        while self._waiting and len(self._running) < self._handlers_max:
            seq, call = self._waiting.popleft()
            self._running.add(call.call_id)
            if call.retry_safe:
                # A quick handler's result shares a transaction, and so a sync, with the acknowledgement.
                self._deferred.append(seq)
                events.append(CallStarted(call))
            else:
                self._claims[self._command("inbox.ack", {"seq": seq})] = call  # not held up by the app's own commands
        return events

    def _claimed(self, call: ToolCall, receipt: CommandReceipt) -> list[SessionEvent]:
        if receipt.accepted and call.call_id not in self._withdrawn:
            return [CallStarted(call)]
        self._withdrawn.discard(call.call_id)
        self._running.discard(call.call_id)
        if receipt.accepted:
            return self._admit()
        self.projection.calls.pop(call.call_id, None)
        return [ClaimRefused(call, receipt), *self._admit()]


def _in_words_of_the_app(type_: str, fault: LineUpError) -> CommandReceipt:
    """What is wrong with a message, said of what the app has handed over: it has never seen the message around it."""
    detail, rule = fault.detail, fault.message
    path = str(detail["path"]) if isinstance(detail, dict) and "path" in detail else ""
    if path:
        rule = rule.removeprefix(f"{path}: ")
    inside = path.removeprefix("/body") if path.startswith("/body/") else ""
    if not inside and type_ == "tool.complete":
        inside = "/result"  # of the whole message, nothing else can be too large or of no known form
    if not inside:
        return CommandReceipt(False, fault.code, fault.message, detail)
    kept = detail if isinstance(detail, dict) else {}
    return CommandReceipt(False, fault.code, f"{inside}: {rule}", {**kept, "path": inside})
