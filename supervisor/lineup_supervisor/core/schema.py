"""The typed tables: every durable row of the Runtime. Owns shapes and keys, no rules.

Rows are immutable values; a change puts a new one (``msgspec.structs.replace``). Times ending in ``_ms`` are
wall clock unless the name says steady. Fields may be added with a default; they are never renamed or reused.
"""

from __future__ import annotations

from typing import Any

from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.rows import ActionResult, AuditRow, Row, Said
from lineup_supervisor.core.tables import (
    CallState,
    InstanceState,
    InteractionState,
    OperationState,
    SessionState,
    SurfaceState,
    WorkerState,
)
from lineup_supervisor.core.txn import Table


class Mark(Row, frozen=True, kw_only=True):
    """An index entry: its key says everything."""


class Meta(Row, frozen=True, kw_only=True):
    """The one row of the Runtime itself; key ``("runtime",)``."""

    boot_id: str = ""
    isolation: str = ""
    stopping: bool = False
    steady_ms: int = 0  # the newest moment that was committed; the next run goes on from there
    projection_revision: int = 0
    audit_seq: int = 0
    audit_hash: str = ""
    inventory_revision: str = ""
    workers_starting: int = 0
    starts_queued: int = 0  # rows of ``START_QUEUE``
    workers_live: int = 0
    boots: int = 0
    conversations: int = 0
    operations_pending: int = 0
    sweep_due_ms: int = 0  # steady: when retention looks again; 0 if nothing will ever grow too old
    sweep_rests_ms: int = 0  # steady: until then events do not sweep beside the timer, because all is held
    calls_over: int = 0  # rows of ``RETIRED``, by kind; what they take in bytes stands in those called ``_bytes``
    interactions_over: int = 0
    instances_over: int = 0
    surfaces_over: int = 0
    states_over: int = 0
    backlogs_over: int = 0
    calls_over_bytes: int = 0
    interactions_over_bytes: int = 0
    instances_over_bytes: int = 0
    surfaces_over_bytes: int = 0
    states_over_bytes: int = 0
    backlogs_over_bytes: int = 0
    audit_anchor_seq: int = 0  # the last row that was archived and deleted: where the chain in the store begins
    audit_anchor_hash: str = ""
    audit_asked_ms: int = 0  # steady: when the edges were last asked to archive rows
    audit_archived_seq: int = 0  # up to here rows are in an archive file for certain and may be deleted
    policy: Policy = Policy()


class Agent(Row, frozen=True, kw_only=True):
    """Key ``(agent_id,)``. ``sent_seq`` counts for the present link, ``max_sent_seq`` for ever."""

    agent_id: str
    next_seq: int = 1
    acked_seq: int = 0
    sent_seq: int = 0
    sent_bytes: int = 0  # of what was sent on the present link and is not acknowledged
    max_sent_seq: int = 0
    link_id: str | None = None
    in_flight: int = 0
    last_hello_ms: int = 0
    next_receipt: int = 0


class AgentLink(Row, frozen=True, kw_only=True):
    """Key ``(link_id,)``: a link that said hello."""

    agent_id: str


class Receipt(Row, frozen=True, kw_only=True):
    """Key ``(agent_id, message_id)``: what was answered, so that the same message gets the same answer.

    ``call_id`` if a call's record belongs to the answer, which is kept with the call.
    """

    body: dict[str, Any]
    call_id: str = ""


class OutboxItem(Row, frozen=True, kw_only=True):
    """Key ``(agent_id, seq)``: a durable message to an agent that it has not acknowledged."""

    type: str
    message_id: str
    conversation_id: str
    payload: dict[str, Any]
    at_ms: int
    cause: str
    bytes: int = 0


class Conversation(Row, frozen=True, kw_only=True):
    """Key ``(conversation_id,)``. ``focus``: instance ids, bottom to top; the last one is in the foreground."""

    conversation_id: str
    agent_id: str
    title: str = ""
    opened_by: str = "agent"
    created_ms: int = 0
    updated_ms: int = 0
    focus: tuple[str, ...] = ()
    chat_instance_id: str = ""
    next_entry: int = 1
    apart: int = 0  # entries so far that stand for a question or a session, and go with it alone
    trimmed: int = 0  # the last entry that went, or was passed over, because there were too many
    archived: bool = False
    chosen: str = ""  # the instance that a person has brought to the front, or left there by sending another away
    chosen_ms: int = 0


class Entry(Row, frozen=True, kw_only=True):
    """Key ``(conversation_id, n)``: one line of the conversation's timeline."""

    conversation_id: str
    n: int
    kind: str  # text | interaction | session | call
    author: str  # person | agent | runtime | app
    at_ms: int
    text: str = ""
    format: str = "plain"
    ref: str = ""
    session_id: str = ""
    action_id: str = ""
    cause: str = ""
    apart: int = 0  # of the entries before it, those that are counted apart


class BundleRow(Row, frozen=True, kw_only=True):
    """Key ``(digest,)``: one version of one bundle; instances stay on the digest that they started with."""

    digest: str
    path: str
    manifest: dict[str, Any]


class App(Row, frozen=True, kw_only=True):
    """Key ``(app_scope,)``: an installed MiniApp."""

    app_scope: str
    digest: str
    kind: str
    enabled: bool = True
    quarantined: bool = False
    quarantine_reason: str = ""
    installed_ms: int = 0
    crashes: tuple[int, ...] = ()  # steady times of instances that ended by restart intensity
    # What people see of the current bundle, so that no list of MiniApps has to read manifests.
    version: str = ""
    title: str = ""
    tools: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    min_isolation: str = ""


class Descriptor(Row, frozen=True, kw_only=True):
    """Key ``(digest,)``: a tool descriptor that an open call was made under."""

    descriptor: dict[str, Any]


class Call(Row, frozen=True, kw_only=True):
    """Key ``(agent_id, call_id)``: the one record of a tool call."""

    agent_id: str
    call_id: str
    tool_id: str
    inventory_revision: str
    app_scope: str
    conversation_id: str
    status: CallState
    input: Any
    input_digest: str
    created_ms: int
    updated_ms: int
    cause: str
    instance_id: str | None = None
    handling: str = "direct"
    retry_safe: bool = False
    restore_previous_focus: bool = False
    descriptor_digest: str = ""
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    attempt: int = 1
    inbox_seq: int = 0  # the delivery of the present attempt, 0 if there is none
    timeout_ms: int | None = None
    timeout_left_ms: int | None = None  # kept while a person is asked
    questions: int = 0  # pending interactions with this call as their parent
    cancel_requested: bool = False
    cancel_reason: str = ""
    progress: float | None = None
    progress_message: str = ""
    progress_seq: int = 0
    operation_id: str | None = None
    interaction_id: str | None = None
    legacy: bool = False


class Instance(Row, frozen=True, kw_only=True):
    """Key ``(instance_id,)``: a durable MiniApp instance in one conversation."""

    instance_id: str
    app_scope: str
    conversation_id: str
    digest: str
    kind: str
    state: InstanceState
    created_ms: int
    cause: str
    closed_ms: int | None = None
    close_code: str = ""
    close_reason: str = ""
    session_id: str = ""
    incarnation: int = 0
    next_inbox: int = 1
    crashes: tuple[
        int, ...
    ] = ()  # its worker's unexpected ends within the restart window: steady, less ``starting_ms``
    late_starts: int = 0  # in a row that were not ready in time
    starting_ms: int = 0  # that all of its starts have taken; no part of the time in which its crashes are counted
    unstarted: int = 0  # starts in a row that failed before any of its code ran
    rests: bool = False  # its process was let go while it only waited for a person: it is started when one comes
    last_used_ms: int = 0  # steady
    close_asked: bool = False
    borrowed: bool = False  # its place in the focus: a call took it, to give it back at its end
    began: bool = False  # its code has run: a worker of it was ready


class Worker(Row, frozen=True, kw_only=True):
    """Key ``(instance_id,)``: the process that embodies an instance just now."""

    instance_id: str
    incarnation: int
    state: WorkerState
    started_ms: int  # steady
    pid: int | None = None
    sent_seq: int = 0
    sent_bytes: int = 0  # of what was sent to it and waits for its word, see ``inbox.weight``
    stop_reason: str = ""  # with ``condemned``: the sentence of its violation; ``start_timeout`` while it starts
    condemned: bool = False  # it broke a rule of the link and is being killed; nothing it says counts any more
    welcomed: bool = False  # it has been told everything, so that changes must follow it from now on


class Wish(Row, frozen=True, kw_only=True):
    """Key ``(instance_id,)``: the instance needs a worker; ``queued_ms`` (steady) is its place in ``START_QUEUE``."""

    queued_ms: int | None = None
    app_scope: str = ""  # set with ``queued_ms``: the instance itself may be gone when it leaves the queue


class Starts(Row, frozen=True, kw_only=True):
    """Key ``(app_scope,)``: a MiniApp that has workers, or starts that wait; others have no row."""

    under_way: int = 0  # workers in ``STARTING``
    waiting: int = 0  # rows of ``START_QUEUE``
    places: int = 0  # workers in whatever state
    going: int = 0  # of them in ``STOPPING``


class Spare(Row, frozen=True, kw_only=True):
    """Key ``(app_scope, instance_id)``: a ready worker that may be let go of when there is no place, or no memory."""

    waits: bool = False  # for a person; else nobody needs it
    last_used_ms: int = 0  # steady


class InboxItem(Row, frozen=True, kw_only=True):
    """Key ``(instance_id, seq)``: a delivery that the instance has not acknowledged."""

    kind: str
    message_id: str
    body: dict[str, Any]
    cause: str
    at_ms: int
    agent_id: str = ""
    call_id: str = ""
    interaction_id: str = ""
    bytes: int = 0  # of its body as JSON, which count against its MiniApp's quota while it waits


class Interaction(Row, frozen=True, kw_only=True):
    """Key ``(interaction_id,)``: one standard interaction. The owner fields are stamped by the Runtime alone."""

    interaction_id: str
    app_scope: str
    instance_id: str
    conversation_id: str
    source: str  # agent_tool | miniapp_tool | runtime_policy
    kind: str
    request: dict[str, Any]
    status: InteractionState
    created_ms: int
    updated_ms: int
    cause: str
    parent_agent_id: str | None = None
    parent_call_id: str | None = None
    surface_id: str | None = None
    presentation: str = "default"
    expires_ms: int | None = None
    result: dict[str, Any] | None = None
    draft: dict[str, Any] | None = None
    reason: str = ""
    key: str = ""
    session_id: str = ""
    entry: int = 0  # its place in the timeline, 0 if it has none
    purpose: dict[str, Any] | None = None  # runtime_policy: what the answer decides
    charged: int = 0  # bytes that it counts against its MiniApp's quota while it waits for a person
    told_seq: int | None = None  # the delivery of its outcome, 0 if there is none; None in rows of version 0.1.0


class Session(Row, frozen=True, kw_only=True):
    """Key ``(session_id,)``: the sub-conversation of one instance."""

    session_id: str
    instance_id: str
    app_scope: str
    conversation_id: str
    state: SessionState
    title: str
    created_ms: int
    ended_ms: int | None = None
    continues: str = ""
    outcome: str = ""
    entry: int = 0  # its place in the timeline


class Operation(Row, frozen=True, kw_only=True):
    """Key ``(operation_id,)``: a deadline kept by the Runtime."""

    operation_id: str
    source_agent_id: str
    source_call_id: str
    instance_id: str
    conversation_id: str
    app_scope: str
    duration_seconds: int
    started_ms: int
    ends_ms: int
    state: OperationState
    cause: str
    activity: str | None = None
    ended_ms: int | None = None
    interruption_reason: str | None = None
    late_ms: int = 0


class Surface(Row, frozen=True, kw_only=True):
    """Key ``(surface_id,)``. Its state lives in ``SURFACE_PARTS``, so that a small patch touches little."""

    surface_id: str
    instance_id: str
    conversation_id: str
    app_scope: str
    digest: str
    entry: str
    title: str
    state: SurfaceState
    revision: int = 0
    bytes: int = 2
    created_ms: int = 0
    closed_ms: int | None = None
    cause: str = ""
    app_budget: int = 0  # token buckets in thousandths of a message, one for each side
    app_budget_ms: int = 0  # steady time of the last charge
    person_budget: int = 0
    person_budget_ms: int = 0


class SurfacePart(Row, frozen=True, kw_only=True):
    """Key ``(surface_id, *names)`` (see ``merge_patch.part_key``): small members of an object, or a large one."""

    name: str = ""  # of a split object
    value: Any = None  # the members
    split: bool = False  # an object whose members lie in rows of their own; it has no value here
    count: int = 0  # members
    bytes: int = 0  # of the whole object as JSON, or of one with these members alone
    nodes: int = 0  # values and keys, as the codec counts them
    direct: int = 0  # rows that a split object's members lie in
    rows: int = 0  # this one and all below it


class Snapshot(Row, frozen=True, kw_only=True):
    """Key ``(instance_id,)``: the instance's saved state."""

    instance_id: str
    state: dict[str, Any]
    revision: int
    schema_version: int
    saved_ms: int
    bytes: int
    read_only: bool = False


class Artifact(Row, frozen=True, kw_only=True):
    """Key ``(artifact_id,)``: metadata; the bytes are the blob of ``sha256``."""

    artifact_id: str
    sha256: str
    media_type: str
    bytes: int
    title: str
    app_scope: str
    instance_id: str
    conversation_id: str
    agent_id: str
    created_ms: int
    cause: str
    exported_ms: int | None = None  # when a person let it be put into the folder of artifacts


class Blob(Row, frozen=True, kw_only=True):
    """Key ``(sha256,)``: the bytes of every artifact that has this digest; written with the first of them."""

    content: bytes


class BlobRefs(Row, frozen=True, kw_only=True):
    """Key ``(sha256,)``: how many artifacts share the blob; apart from it, so that a count never rewrites the bytes."""

    count: int


class Notification(Row, frozen=True, kw_only=True):
    """Key ``(notification_id,)``: what a MiniApp showed to the person; ``count`` says how many fell into one."""

    notification_id: str
    app_scope: str
    instance_id: str
    conversation_id: str
    title: str
    body: str
    at_ms: int
    cause: str
    count: int = 1


class Usage(Row, frozen=True, kw_only=True):
    """Key ``(app_scope, what)``: bytes in use against a quota."""

    bytes: int = 0


class Budget(Row, frozen=True, kw_only=True):
    """Key ``(instance_id,)``: what its workers have asked for, and been refused, in the minute since ``since_ms``."""

    since_ms: int  # steady
    taken: int = 0
    refused: int = 0
    reports: int = 0  # of progress, in the second since ``reports_since_ms``
    reports_since_ms: int = 0


class Grant(Row, frozen=True, kw_only=True):
    """Key ``(app_scope, capability)``: a person's standing consent, or their refusal for a while."""

    app_scope: str
    capability: str
    scope: str  # session | always | denied
    boot_id: str = ""
    granted_ms: int = 0
    expires_ms: int | None = None


class TimerRow(Row, frozen=True, kw_only=True):
    """Key ``(clock, due_ms, kind, *ref)``; ``TIMER_DUE`` finds it by ``(kind, *ref)``."""

    clock: str = ""
    due_ms: int = 0


class Request(Row, frozen=True, kw_only=True):
    """Key ``(instance_id, key)``: finds the object that an earlier identical request made."""

    ref: str
    digest: str


class Retired(Row, frozen=True, kw_only=True):
    """Key ``(kind, owner, steady_ms, *ref)``: over since then. ``bytes`` are what it takes, where they are counted."""

    bytes: int = 0


class Over(Row, frozen=True, kw_only=True):
    """Key ``(kind, owner)``: how much of what is over is this owner's; who has nothing has no row."""

    rows: int = 0
    bytes: int = 0


class Ref(Row, frozen=True, kw_only=True):
    """Points to one object."""

    ref: str


META = Table("meta", Meta)
AGENTS = Table("agents", Agent, "agent")
AGENT_LINKS = Table("agent_links", AgentLink)
RECEIPTS = Table("receipts", Receipt)
RECEIPT_RING = Table("receipt_ring", Receipt)  # (agent_id, n) → {"message_id": …}, bounds RECEIPTS
OUTBOX_ITEMS = Table("outbox", OutboxItem)
CONVERSATIONS = Table("conversations", Conversation, "conversation")
TIMELINE = Table("timeline", Entry, "entry")
BUNDLES = Table("bundles", BundleRow)
APPS = Table("apps", App, "app")
DESCRIPTORS = Table("descriptors", Descriptor)
CALLS = Table("calls", Call, "call")
CALLS_BY_ID = Table("calls_by_id", Mark)  # (call_id, agent_id)
CALLS_BY_TIME = Table("calls_by_time", Mark)  # (created_ms, agent_id, call_id)
OPEN_CALLS = Table("open_calls", Mark)  # (instance_id, agent_id, call_id)
INSTANCES = Table("instances", Instance, "instance")
LIVE_INSTANCES = Table("live_instances", Mark)  # (conversation_id, app_scope, instance_id)
WORKERS = Table("workers", Worker, "worker")
WANTED = Table("wanted", Wish)
START_QUEUE = Table("start_queue", Mark)  # (app_scope, steady_ms, instance_id): wanted, waits for its turn
STARTS = Table("starts", Starts)
SPARE = Table("spare", Spare)
SHOWN = Table("shown", Mark)  # (instance_id,): a person has a page of it before them
INBOX = Table("inbox", InboxItem)
INTERACTIONS = Table("interactions", Interaction, "interaction")
OPEN_INTERACTIONS = Table("open_interactions", Mark)  # (instance_id, interaction_id): not final
INTERACTIONS_BY_CALL = Table("interactions_by_call", Mark)  # (agent_id, call_id, interaction_id): not final
SESSIONS = Table("sessions", Session, "session")
SESSION_ENTRIES = Table("session_entries", Mark)  # (session_id, n): the timeline's entries that belong to it
OPERATIONS = Table("operations", Operation, "operation")
FOCUSING = Table("focusing", Mark)  # (conversation_id, app_scope, operation_id)
OPERATIONS_OF = Table("operations_of", Mark)  # (instance_id, operation_id)
LAST_OPERATION = Table("last_operation", Ref)  # (conversation_id, app_scope)
SURFACES = Table("surfaces", Surface, "surface")
OPEN_SURFACES = Table("open_surfaces", Mark)  # (instance_id, surface_id)
SURFACE_PARTS = Table("surface_parts", SurfacePart)
SNAPSHOTS = Table("snapshots", Snapshot, "snapshot")
ARTIFACTS = Table("artifacts", Artifact, "artifact")
ARTIFACTS_BY_CONTENT = Table("artifacts_by_content", Ref)  # (instance_id, digest of title, media type and sha256)
EXPORTED_ARTIFACTS = Table("exported_artifacts", Mark)  # (artifact_id,): their bytes belong into the artifacts folder
BLOBS = Table("blobs", Blob)
BLOB_REFS = Table("blob_refs", BlobRefs)
NOTIFICATIONS = Table("notifications", Notification, "notification")
NOTIFICATIONS_OF = Table("notifications_of", Mark)  # (app_scope, at_ms, notification_id)
PENDING_CONSENT = Table("pending_consent", Ref)  # (instance_id, capability) → the interaction that asks
USAGE = Table("usage", Usage)
BUDGETS = Table("budgets", Budget)
GRANTS = Table("grants", Grant, "grant")
TIMERS = Table("timers", TimerRow)
TIMER_DUE = Table("timer_due", TimerRow)
AUDIT = Table("audit", AuditRow)
AUDIT_BY_SUBJECT = Table("audit_by_subject", Mark)  # (subject, seq)
ACTION_RESULTS = Table("action_results", ActionResult)
SAID = Table("said", Said)
REQUESTS = Table("requests", Request)
RETIRED = Table("retired", Retired)
OVER = Table("over", Over)

TABLES: tuple[Table[Any], ...] = tuple(value for value in list(globals().values()) if isinstance(value, Table))
SCHEMA_VERSION = 2
