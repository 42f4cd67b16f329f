"""The life cycles of the Runtime, as tables. Owns: which state may follow which. Knows nothing of rows or messages.

Laws:
    1. A tool call has one terminal state and gets there once; whoever comes later is told ``call_already_final``.
    2. An interaction takes the first answer; later ones are told ``interaction_already_final``.
    3. An operation is decided once, by what comes first: its deadline or an interruption.
    4. A closed instance stays closed.
The diagrams in docs/ are generated from these tables (scripts/draw-states).
"""

from __future__ import annotations

from enum import StrEnum

from lineup_supervisor.core.machine import IGNORE, Machine, Refuse


class CallState(StrEnum):
    RECEIVED = "received"
    ROUTING = "routing"
    WAITING = "waiting_for_app"
    RUNNING = "running"
    SUBMITTED = "submitted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REJECTED = "rejected"


class CallEvent(StrEnum):
    REFUSE = "refuse"  # a check failed before routing
    ROUTE = "route"  # every check passed
    QUEUE = "queue"  # in the instance's inbox, or waiting for a person's answer
    HOLD = "hold"  # the Runtime itself keeps it: a deadline operation
    CLAIM = "claim"  # the worker acknowledged the delivery: from here on it may have run
    REDELIVER = "redeliver"  # its worker died and the tool is retry_safe
    SUBMIT = "submit"  # a result came that satisfies the output schema
    SETTLE = "settle"  # the submitted result becomes the call's result
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"


_FINAL_CALL = Refuse("call_already_final")
_NOT_NOW = Refuse("conflict")

CALL = Machine(
    "call",
    CallState,
    CallEvent,
    initial=CallState.RECEIVED,
    final=(CallState.COMPLETED, CallState.FAILED, CallState.CANCELLED, CallState.EXPIRED, CallState.REJECTED),
    rules={
        CallState.RECEIVED: {CallEvent.REFUSE: CallState.REJECTED, CallEvent.ROUTE: CallState.ROUTING},
        CallState.ROUTING: {
            CallEvent.QUEUE: CallState.WAITING,
            CallEvent.HOLD: CallState.RUNNING,
            CallEvent.SUBMIT: CallState.SUBMITTED,
        },
        CallState.WAITING: {
            CallEvent.CLAIM: CallState.RUNNING,
            CallEvent.REDELIVER: IGNORE,
            CallEvent.SUBMIT: CallState.SUBMITTED,
            CallEvent.FAIL: CallState.FAILED,
            CallEvent.CANCEL: CallState.CANCELLED,
            CallEvent.EXPIRE: CallState.EXPIRED,
        },
        CallState.RUNNING: {
            CallEvent.CLAIM: IGNORE,
            CallEvent.REDELIVER: CallState.WAITING,
            CallEvent.SUBMIT: CallState.SUBMITTED,
            CallEvent.FAIL: CallState.FAILED,
            CallEvent.CANCEL: CallState.CANCELLED,
            CallEvent.EXPIRE: CallState.EXPIRED,
        },
        CallState.SUBMITTED: {CallEvent.SETTLE: CallState.COMPLETED},
    },
    otherwise={
        CallState.RECEIVED: _NOT_NOW,
        CallState.ROUTING: _NOT_NOW,
        CallState.WAITING: _NOT_NOW,
        CallState.RUNNING: _NOT_NOW,
        CallState.SUBMITTED: _FINAL_CALL,
        CallState.COMPLETED: _FINAL_CALL,
        CallState.FAILED: _FINAL_CALL,
        CallState.CANCELLED: _FINAL_CALL,
        CallState.EXPIRED: _FINAL_CALL,
        CallState.REJECTED: _FINAL_CALL,
    },
)


class InteractionState(StrEnum):
    PENDING = "pending"
    PRESENTED = "presented"
    SUBMITTED = "submitted"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"


class InteractionEvent(StrEnum):
    PRESENT = "present"  # a Host has shown it to a person
    ANSWER = "answer"  # a person's answer, durable
    DELIVER = "deliver"  # the owner has taken the answer over
    CANCEL = "cancel"
    EXPIRE = "expire"
    FAIL = "fail"


_FINAL_INTERACTION = Refuse("interaction_already_final")

INTERACTION = Machine(
    "interaction",
    InteractionState,
    InteractionEvent,
    initial=InteractionState.PENDING,
    final=(
        InteractionState.COMPLETED,
        InteractionState.CANCELLED,
        InteractionState.EXPIRED,
        InteractionState.FAILED,
    ),
    rules={
        InteractionState.PENDING: {
            InteractionEvent.PRESENT: InteractionState.PRESENTED,
            InteractionEvent.ANSWER: InteractionState.SUBMITTED,
            InteractionEvent.CANCEL: InteractionState.CANCELLED,
            InteractionEvent.EXPIRE: InteractionState.EXPIRED,
            InteractionEvent.FAIL: InteractionState.FAILED,
        },
        InteractionState.PRESENTED: {
            InteractionEvent.PRESENT: IGNORE,
            InteractionEvent.ANSWER: InteractionState.SUBMITTED,
            InteractionEvent.CANCEL: InteractionState.CANCELLED,
            InteractionEvent.EXPIRE: InteractionState.EXPIRED,
            InteractionEvent.FAIL: InteractionState.FAILED,
        },
        InteractionState.SUBMITTED: {
            InteractionEvent.DELIVER: InteractionState.COMPLETED,
            InteractionEvent.FAIL: InteractionState.FAILED,  # the owner was closed before it took the answer over
        },
    },
    otherwise={
        InteractionState.PENDING: _NOT_NOW,
        InteractionState.PRESENTED: _NOT_NOW,
        InteractionState.SUBMITTED: _FINAL_INTERACTION,
        InteractionState.COMPLETED: _FINAL_INTERACTION,
        InteractionState.CANCELLED: _FINAL_INTERACTION,
        InteractionState.EXPIRED: Refuse("interaction_expired"),
        InteractionState.FAILED: _FINAL_INTERACTION,
    },
)


class InstanceState(StrEnum):
    STARTING = "starting"
    FOREGROUND = "foreground"
    BACKGROUND = "background"
    SUSPENDED = "suspended"
    CLOSED = "closed"


class InstanceEvent(StrEnum):
    FRONT = "front"  # it is, or returns to, the top of the focus stack
    BACK = "back"  # something else is on top
    SUSPEND = "suspend"  # it is not on screen and its process was let go
    CLOSE = "close"


_CLOSED = Refuse("app_closed")

INSTANCE = Machine(
    "instance",
    InstanceState,
    InstanceEvent,
    initial=InstanceState.STARTING,
    final=(InstanceState.CLOSED,),
    rules={
        InstanceState.STARTING: {
            InstanceEvent.FRONT: InstanceState.FOREGROUND,
            InstanceEvent.BACK: InstanceState.BACKGROUND,
            InstanceEvent.SUSPEND: InstanceState.SUSPENDED,
            InstanceEvent.CLOSE: InstanceState.CLOSED,
        },
        InstanceState.FOREGROUND: {
            InstanceEvent.FRONT: IGNORE,
            InstanceEvent.BACK: InstanceState.BACKGROUND,
            InstanceEvent.CLOSE: InstanceState.CLOSED,
        },
        InstanceState.BACKGROUND: {
            InstanceEvent.FRONT: InstanceState.FOREGROUND,
            InstanceEvent.BACK: IGNORE,
            InstanceEvent.SUSPEND: InstanceState.SUSPENDED,
            InstanceEvent.CLOSE: InstanceState.CLOSED,
        },
        InstanceState.SUSPENDED: {
            InstanceEvent.FRONT: InstanceState.FOREGROUND,
            InstanceEvent.BACK: InstanceState.BACKGROUND,
            InstanceEvent.SUSPEND: IGNORE,
            InstanceEvent.CLOSE: InstanceState.CLOSED,
        },
    },
    otherwise={
        InstanceState.STARTING: _NOT_NOW,
        InstanceState.FOREGROUND: Refuse("lifecycle_denied"),  # on top it stays, with a process or without
        InstanceState.BACKGROUND: _NOT_NOW,
        InstanceState.SUSPENDED: _NOT_NOW,
        InstanceState.CLOSED: _CLOSED,
    },
)


class WorkerState(StrEnum):
    ABSENT = "absent"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"


class WorkerEvent(StrEnum):
    START = "start"
    READY = "ready"
    STOP = "stop"
    EXIT = "exit"


WORKER = Machine(
    "worker",
    WorkerState,
    WorkerEvent,
    initial=WorkerState.ABSENT,
    final=(),
    rules={
        WorkerState.ABSENT: {
            WorkerEvent.START: WorkerState.STARTING,
            WorkerEvent.EXIT: IGNORE,
            WorkerEvent.STOP: IGNORE,
        },
        WorkerState.STARTING: {
            WorkerEvent.START: IGNORE,
            WorkerEvent.READY: WorkerState.READY,
            WorkerEvent.STOP: WorkerState.STOPPING,
            WorkerEvent.EXIT: WorkerState.ABSENT,
        },
        WorkerState.READY: {
            WorkerEvent.START: IGNORE,
            WorkerEvent.STOP: WorkerState.STOPPING,
            WorkerEvent.EXIT: WorkerState.ABSENT,
        },
        WorkerState.STOPPING: {
            WorkerEvent.STOP: IGNORE,
            WorkerEvent.READY: IGNORE,
            WorkerEvent.EXIT: WorkerState.ABSENT,
        },
    },
    otherwise={
        WorkerState.ABSENT: _NOT_NOW,
        WorkerState.STARTING: _NOT_NOW,
        WorkerState.READY: Refuse("message_invalid"),  # a second worker.ready breaks the protocol
        WorkerState.STOPPING: _NOT_NOW,  # the next incarnation starts when this one is gone
    },
)


class SurfaceState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class SurfaceEvent(StrEnum):
    UPDATE = "update"
    INPUT = "input"  # a person's event or submission
    CLOSE = "close"


SURFACE = Machine(
    "surface",
    SurfaceState,
    SurfaceEvent,
    initial=SurfaceState.OPEN,
    final=(SurfaceState.CLOSED,),
    rules={
        SurfaceState.OPEN: {
            SurfaceEvent.UPDATE: IGNORE,
            SurfaceEvent.INPUT: IGNORE,
            SurfaceEvent.CLOSE: SurfaceState.CLOSED,
        },
    },
    otherwise={SurfaceState.OPEN: _NOT_NOW, SurfaceState.CLOSED: Refuse("surface_not_found")},
)


class OperationState(StrEnum):
    FOCUSING = "focusing"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"


class OperationEvent(StrEnum):
    DUE = "due"  # ends_at has passed
    INTERRUPT = "interrupt"  # a tool, a person's leaving, a close


OPERATION = Machine(
    "operation",
    OperationState,
    OperationEvent,
    initial=OperationState.FOCUSING,
    final=(OperationState.COMPLETED, OperationState.INTERRUPTED),
    rules={
        OperationState.FOCUSING: {
            OperationEvent.DUE: OperationState.COMPLETED,
            OperationEvent.INTERRUPT: OperationState.INTERRUPTED,
        },
    },
    otherwise={
        OperationState.FOCUSING: _NOT_NOW,
        OperationState.COMPLETED: IGNORE,
        OperationState.INTERRUPTED: IGNORE,
    },
)


class OutboxState(StrEnum):
    QUEUED = "queued"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"


class OutboxEvent(StrEnum):
    SEND = "send"
    COALESCE = "coalesce"  # a newer progress takes the place of one not yet sent
    ACKNOWLEDGE = "acknowledge"


OUTBOX = Machine(
    "outbox item",
    OutboxState,
    OutboxEvent,
    initial=OutboxState.QUEUED,
    final=(OutboxState.ACKNOWLEDGED,),
    rules={
        OutboxState.QUEUED: {OutboxEvent.SEND: OutboxState.SENT, OutboxEvent.COALESCE: IGNORE},
        OutboxState.SENT: {OutboxEvent.SEND: IGNORE, OutboxEvent.ACKNOWLEDGE: OutboxState.ACKNOWLEDGED},
    },
    otherwise={
        OutboxState.QUEUED: Refuse("message_invalid"),  # an agent cannot have taken over what was never sent
        OutboxState.SENT: _NOT_NOW,
        OutboxState.ACKNOWLEDGED: IGNORE,
    },
)


class SessionState(StrEnum):
    OPEN = "open"
    READ_ONLY = "read_only"


class SessionEvent(StrEnum):
    APPEND = "append"
    END = "end"


SESSION = Machine(
    "app session",
    SessionState,
    SessionEvent,
    initial=SessionState.OPEN,
    final=(SessionState.READ_ONLY,),
    rules={SessionState.OPEN: {SessionEvent.APPEND: IGNORE, SessionEvent.END: SessionState.READ_ONLY}},
    otherwise={SessionState.OPEN: _NOT_NOW, SessionState.READ_ONLY: IGNORE},
)

MACHINES = (CALL, INTERACTION, INSTANCE, WORKER, SURFACE, OPERATION, OUTBOX, SESSION)
