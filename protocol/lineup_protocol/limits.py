"""Every cap that the protocol or the core keeps to, in one place: a named constant, its unit last, and a reason.

The string under each constant is its reason; ``protocol/SPEC.md`` prints this file as a table and a test holds the two
together. What an operator may tune lives in ``config.toml`` and can only tighten these. Nothing here is computed from
the machine, so that two runs of one trace meet the same limits.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
SECOND_MS = 1_000
DAY_MS = 86_400 * SECOND_MS

# --- values on every link -------------------------------------------------------------------------------------------

DEPTH_MAX = 32
"""containers inside one another, the message included; far above any real payload, far below any parser's stack"""

INCOMING_DEPTH_MAX = 26
"""of them in a message of a worker or a page; what the Runtime hands on has up to six more around the same"""

AGENT_DEPTH_MAX = 28
"""of them in a frame of an agent; more than an input may have, so that one that is too deep is refused by name"""

INTEGER_ABS_MAX = 2**53 - 1
"""the largest integer that JavaScript, JSON and Python all read as the same number; bigger ones travel as strings"""

VALUE_DEPTH_MAX = 24
"""of them in what is kept and handed on: an input, a snapshot, a surface's state or payload; its message adds two"""

ARRAY_LENGTH_MAX = 65_536
"""items in one array; a header must not be able to reserve more memory than the message is worth"""

MAP_LENGTH_MAX = 65_536
"""keys in one map; as for arrays"""

KEY_BYTES_MAX = 1_024
"""bytes of one key; keys are names, not data"""

STRING_BYTES_MAX = 3 * MIB
"""bytes of one string as UTF-8; a 2 MiB picture in base64 fits"""

NODES_MAX = 32_768
"""values in one message of a worker or an agent; each is looked at several times, and everybody else waits meanwhile"""

HOST_NODES_MAX = 1_048_576
"""values in one message of the Runtime; a workspace snapshot is the largest"""

HOST_WRAP_NODES = 32
"""values that carry an agent's frame or a page's request over the host link, beside its own"""

HOST_WRAP_DEPTH = 2
"""containers around them there"""

# --- messages -------------------------------------------------------------------------------------------------------

WORKER_MESSAGE_BYTES_MAX = 4 * MIB
"""one message on the worker link, artifacts included; the gate holds one such message per worker in memory"""

RUNTIME_MESSAGE_BYTES_MAX = 32 * MIB
"""one message from the Runtime to a worker; a welcome carries all that an instance has open"""

HOST_MESSAGE_BYTES_MAX = 32 * MIB
"""one message on the host link; a full workspace snapshot is the largest"""

ANSWER_ROWS_BYTES_MAX = 1 * MIB
"""rows in one answer to a query that lists; the rest comes in further pages, and nobody waits long for one of them"""

AGENT_FRAME_BYTES_MAX = 1 * MIB
"""one WebSocket frame from an agent; it is also the default of common WebSocket clients"""

AGENT_ENVELOPE_BYTES_MAX = 4 * KIB
"""what surrounds a payload in a frame to an agent: a handful of ids and times, a refusal's sentence"""

INVENTORY_BYTES_MAX = AGENT_FRAME_BYTES_MAX - AGENT_ENVELOPE_BYTES_MAX
"""all tools of one inventory; a client with default settings must be able to read it"""

TOOL_INPUT_BYTES_MAX = 512 * KIB
"""a call's input as canonical JSON; it is stored, audited by digest and delivered again after a crash"""

TOOL_INPUT_NODES_MAX = 32_000
"""values and keys in a call's input; below a frame's, so that it is refused by name and fits all that carries it on"""

TOOL_RESULT_BYTES_MAX = 512 * KIB
"""a call's result as canonical JSON; bigger things are artifacts"""

TEXT_LENGTH_MAX = 65_536
"""characters of one conversation text; a long chapter, not a file"""

NAME_LENGTH_MAX = 128
"""characters of a name that is no id: of a tool, a revision, a capability, a media type; as long as an id"""

REASON_LENGTH_MAX = 1_024
"""characters of a reason, title, progress message or failure message"""

DETAIL_BYTES_MAX = 16 * KIB
"""an error's detail as canonical JSON; what a worker says in it lands in the audit"""

AUDIT_TEXT_LENGTH_MAX = 2_048
"""characters of one value in an audit row's detail; a longer one is cut and carries its digest, whoever wrote it"""

HELLO_VERSIONS_MAX = 16
"""protocol versions that one hello may offer"""

# --- agent link -----------------------------------------------------------------------------------------------------

IN_FLIGHT_CALLS_PER_AGENT_MAX = 1_024
"""open calls of one agent; beyond it rate_limited"""

OUTBOX_WINDOW_MESSAGES_MAX = 256
"""durable messages sent to one agent and not acknowledged; the rest waits in the outbox"""

OUTBOX_WINDOW_BYTES_MAX = 8 * MIB
"""of them in bytes of payload; half of what hostshell buffers for one link, so that a full window never cuts it"""

OUTBOX_MESSAGES_PER_AGENT_MAX = 100_000
"""kept messages of one agent that does not acknowledge; beyond it that agent's new calls are rate_limited"""

AGENT_LINKS_MAX = 256
"""agent WebSockets open at once"""

CONVERSATIONS_MAX = 100_000
"""conversations of one Runtime"""

# --- worker link ----------------------------------------------------------------------------------------------------

INBOX_WINDOW_MESSAGES_MAX = 64
"""items sent to one worker and not acknowledged (its credit); the rest waits in the inbox"""

INBOX_WINDOW_BYTES_MAX = 8 * MIB
"""of them in bytes, one item at least; with all that a welcome says far below what the gate keeps for a slow reader"""

INBOX_MESSAGES_PER_INSTANCE_MAX = 10_000
"""waiting items of one instance; beyond it rate_limited, but for outcomes and cancels, which are owed"""

INBOX_BYTES_PER_APP_MAX = 64 * MIB
"""of them in bytes for one MiniApp's instances together; a hundred full-size calls wait, a page cannot fill the disk"""

INBOX_ITEM_OVERHEAD_BYTES = 256
"""what a waiting item counts beside its body; so that thousands of tiny ones are not free"""

WORKER_MESSAGES_PER_SECOND_MAX = 2_000
"""sustained messages of one worker; one worker must not take the Runtime's time from the others"""

WORKER_MESSAGES_BURST_MAX = 4_000
"""messages of one worker at once"""

WORKER_BYTES_PER_SECOND_MAX = 16 * MIB
"""sustained bytes of one worker"""

WORKER_RECORDS_PER_MINUTE_MAX = 12_000
"""requests of one instance that leave records for ever (questions, snapshots, artifacts, texts); then rate_limited"""

PROGRESS_PER_SECOND_MAX = 100
"""progress reports of one instance that reach the store; more is accepted and dropped, only the newest counts"""

WORKER_REFUSALS_PER_MINUTE_MAX = 3_000
"""refused messages of one instance; each leaves an audit row, so beyond it the worker is ended as a violation"""

CALLS_PER_INSTANCE_MAX = 256
"""handlers that one worker runs at once; further calls wait in its inbox"""

INTERACTIONS_PENDING_PER_INSTANCE_MAX = 64
"""questions of one instance that wait for a person"""

INTERACTION_BYTES_MAX = 448 * KIB
"""one interaction's request or answer as canonical JSON; a text fits in every script, an answer fits a call's result"""

INTERACTIONS_PENDING_BYTES_PER_APP_MAX = 2 * MIB
"""requests of one MiniApp's waiting questions together; a person cannot read more, and everybody's lists carry them"""

INTERACTIONS_PENDING_BYTES_PER_CONVERSATION_MAX = 8 * MIB
"""requests of one conversation's agent that wait together; they travel in one message when its Interact starts"""

INTERACTION_OVERHEAD_BYTES = 512
"""what a waiting question counts beside its request; so that thousands of tiny ones are not free"""

INTERACTION_ACTIONS_MAX = 64
"""actions of one choice; a person has to read them"""

INTERACTION_FIELDS_MAX = 32
"""fields of one input form"""

OPERATIONS_PENDING_MAX = 200_000
"""deadlines that wait at once in one Runtime"""

OPERATION_DURATION_SECONDS_MAX = 3_660 * 86_400
"""the longest operation, ten years and some days; its end stays far inside RFC 3339"""

# --- surfaces, state, artifacts -------------------------------------------------------------------------------------

SURFACES_PER_INSTANCE_MAX = 4
"""open surfaces of one instance"""

PAGES_SHOWN_MAX = 1_024
"""surfaces that a Host may have before people at once; every tab of hostshell with all of its loads"""

SURFACE_STATE_BYTES_MAX = 2 * MIB
"""one surface's state as JSON; 10,000 drawn elements fit"""

SURFACE_STATE_NODES_MAX = 230_000
"""values and keys in the states of one instance's surfaces; they travel in one worker message when a worker starts"""

SURFACE_PART_BYTES = 4 * KIB
"""a larger object in a surface's state is kept in rows of about this size; what a patch reads beside itself is one"""

SURFACE_PART_LEVELS_MAX = 8
"""how deep objects are kept as rows of their own; a row's key has to fit the store"""

SURFACE_PARTS_MAX = 3_072
"""rows in which the states of one instance's surfaces are kept; full ones of an ordinary shape take a thousand"""

SURFACE_PARTS_PER_PATCH_MAX = 160
"""of them in which one patch changes something; each is read and written, and everybody else waits meanwhile"""

SURFACE_EVENT_NAME_LENGTH_MAX = 128
"""characters of the name of a surface's event"""

SURFACE_PATCH_BYTES_MAX = 512 * KIB
"""one patch as JSON"""

SURFACE_PAYLOAD_BYTES_MAX = 3 * MIB
"""one submit or event of a surface; a 2 MiB picture in base64 fits"""

SURFACE_PATCHES_PER_SECOND_MAX = 120
"""patches of one surface by its MiniApp, and as many patches and events by the page; two per frame of a 60 Hz screen"""

SURFACE_MESSAGE_NODES_MAX = 16_384
"""values and keys of one patch, opening state, event or submit of a surface; more is said in several patches"""

SURFACE_NODES_PER_PATCH = 256
"""values and keys that one of them may have; a larger one counts as several"""

STATE_BYTES_MAX = 1 * MIB
"""the largest max_bytes that a manifest may ask for its instance snapshot"""

STATE_NODES_MAX = 20_000
"""values and keys in one instance snapshot; it travels in one message with the surfaces when a worker starts"""

ARTIFACT_BYTES_MAX = 2 * MIB
"""one artifact; it travels in one worker message, in base64 when it comes from a surface"""

ARTIFACT_TITLE_LENGTH_MAX = 256
"""characters of an artifact's title"""

NOTIFICATIONS_PER_APP_MAX = 32
"""notifications of one MiniApp that are kept; the oldest makes room"""

NOTIFICATION_BODY_LENGTH_MAX = 1_024
"""characters of a notification's text"""

CONSENT_MS_MAX = DAY_MS
"""how long a request for a person's consent waits; what was meant yesterday is no consent today"""

SESSION_GRANT_MS_MAX = DAY_MS
"""the longest that a consent for this session lasts, should the Runtime run on for weeks"""

ALWAYS_GRANT_MS_MAX = 365 * DAY_MS
"""after a year even a standing consent is asked for again"""

DENIED_GRANT_MS = 60 * SECOND_MS
"""after a refusal by a person the same question is not put again for so long"""

FOCUS_DEPTH_MAX = 64
"""instances in one conversation's focus stack"""

# --- bundles and manifests ------------------------------------------------------------------------------------------

BUNDLES_MAX = 256
"""installed bundles"""

TOOLS_PER_BUNDLE_MAX = 64
"""tools of one bundle; an agent has to read them"""

SURFACES_PER_BUNDLE_MAX = 8
"""pages that a manifest may declare"""

SCHEMA_BYTES_MAX = 16 * KIB
"""one schema as canonical JSON; all of an inventory has to fit its frame"""

SCHEMA_DEPTH_MAX = 16
"""schemas inside one another"""

SCHEMA_PROPERTIES_MAX = 256
"""properties of one object schema"""

SCHEMA_ENUM_MAX = 256
"""values of one enum"""

SCHEMA_VALIDATORS_CACHED_MAX = 1_024
"""compiled validators kept in memory, least recently used dropped"""

MANIFEST_BYTES_MAX = 256 * KIB
"""miniapp.json"""

MANIFEST_FAULTS_MAX = 100
"""faults that one refusal lists"""

BUNDLE_BYTES_MAX = 32 * MIB
"""all files of a bundle together; they are read into memory once"""

BUNDLE_FILES_MAX = 1_000
"""files and folders of a bundle"""

BUNDLE_PATH_BYTES_MAX = 240
"""one file's path inside its bundle"""

TOOL_TIMEOUT_MS_MAX = 30 * DAY_MS
"""the longest timeout_ms that a manifest may ask"""

DESCRIPTION_LENGTH_MAX = 2_048
"""characters of a description in a manifest or schema"""

TITLE_LENGTH_MAX = 128
"""characters of a title in a manifest or schema"""

# --- what a manifest may ask of the machine -------------------------------------------------------------------------

WORKER_MEMORY_MB_DEFAULT = 256
"""memory of one worker; the interpreter with the SDK takes about 30"""

WORKER_MEMORY_MB_MAX = 4_096
"""the most that a manifest may ask"""

WORKER_CPU_SHARE_DEFAULT = 1.0
"""cores' worth of time of one worker"""

WORKER_CPU_SHARE_MAX = 8.0
"""the most that a manifest may ask"""

WORKER_PROCESSES_DEFAULT = 16
"""processes and threads of one worker; the SDK and libzmq take four"""

WORKER_PROCESSES_MAX = 256
"""the most that a manifest may ask"""

WORKER_OPEN_FILES_DEFAULT = 128
"""open descriptors of one worker"""

WORKER_OPEN_FILES_MAX = 1_024
"""the most that a manifest may ask"""

WORKER_TREE_OPEN_FILES_MAX = 8_192
"""open descriptors of a worker's processes together; they take what all programs of a person share (watches, pipes)"""

WORKER_PENDING_SIGNALS_MAX = 64
"""POSIX timers and queued signals of one worker; all of a person's programs share them"""

WORKER_FILE_SIZE_MB_DEFAULT = 16
"""one file that a worker writes into its tmp"""

WORKER_FILE_SIZE_MB_MAX = 1_024
"""the most that a manifest may ask"""

WORKER_TMP_MB_DEFAULT = 32
"""a worker's private tmp, which lives in memory"""

WORKER_TMP_MB_MAX = 1_024
"""the most that a manifest may ask"""

WORKER_STATE_MB_DEFAULT = 16
"""state and surfaces of one MiniApp's live instances together"""

WORKER_STATE_MB_MAX = 1_024
"""the most that a manifest may ask"""

WORKER_ARTIFACTS_MB_DEFAULT = 128
"""artifacts of one MiniApp together"""

WORKER_ARTIFACTS_MB_MAX = 16_384
"""the most that a manifest may ask"""

WORKER_STDOUT_KB_PER_SECOND_DEFAULT = 64
"""output of one worker that is kept; what goes beyond is counted and dropped"""

WORKER_STDOUT_KB_PER_SECOND_MAX = 4_096
"""the most that a manifest may ask"""
