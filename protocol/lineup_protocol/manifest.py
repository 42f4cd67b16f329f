"""``miniapp.json``: what a bundle says about itself, as strict models, with every fault named at once.

The only module that imports pydantic; the SDK and workers never load it. It must not read files (see ``bundle``) and
must not know which bundles are installed: what concerns several (two tools with one id) is the core's to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.pointers import join, pointer
from lineup_protocol.schema import Fault, check_schema, refusal
from lineup_protocol.shown_text import is_prose, is_title
from lineup_protocol.strict_json import canonical_json, copy_json

HOST_VERSION = (1, 0)
CHAT_SCOPE = "chat"
# Names that the Runtime's own parts go by, in its logs, its files and on the command line.
RESERVED_SCOPES = frozenset(
    (
        CHAT_SCOPE,
        "audit",
        "cli",
        "detached",
        "host",
        "hostshell",
        "interact",
        "lineup",
        "operator",
        "runtime",
        "supervisor",
        "system",
    )
)
CHAT_PRIMITIVES = ("notice", "choice", "confirm", "input")
TRUSTED_KINDS = ("system", "bundled", "bundled-reference")
HANDLINGS = ("direct", "interactive", "launch", "foreground", "operation")
INSTANCE_STATE = "app.instance-state.v1"

_SCOPE = r"[a-z][a-z0-9-]{0,62}"
_DOTTED = r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*"


def _pattern(pattern: str, length_max: int, words: str) -> BeforeValidator:
    """A check of a string; ``words`` say what is wanted, since a regular expression helps nobody."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: object) -> object:
        if not isinstance(value, str):
            raise PydanticCustomError("lineup", "must be a string")
        if len(value) > length_max or compiled.fullmatch(value) is None:
            raise PydanticCustomError("lineup", "{words}", {"words": words})
        return value

    return BeforeValidator(check)


def _schema(value: object, *, root: bool) -> object:
    faults = check_schema(value)
    if not faults and root and isinstance(value, dict) and value.get("type") != "object":
        faults = [Fault("/type", "must be object: inputs and results are objects")]
    if faults:
        raise PydanticCustomError("lineup_schema", "is outside the schema subset", {"faults": faults})
    return value


def _number(value: Any) -> Any:
    """A literal would take ``true`` for 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def _title(value: str) -> str:
    if not is_title(value, limits.TITLE_LENGTH_MAX):
        words = f"must be one line of 1 to {limits.TITLE_LENGTH_MAX} printable characters"
        raise PydanticCustomError("lineup", "{words}", {"words": words})
    return value


def _description(value: str) -> str:
    if not is_prose(value):
        raise PydanticCustomError("lineup", "must have no control characters and no marks that reorder text")
    return value


def _root_schema(value: object) -> object:
    return _schema(value, root=True)


def _any_schema(value: object) -> object:
    return _schema(value, root=False)


Scope = Annotated[str, _pattern(_SCOPE, 63, "must be 1 to 63 characters of a-z 0-9 -, a letter first")]
Version = Annotated[
    str,
    _pattern(
        r"[0-9]+\.[0-9]+\.[0-9]+([.+-][0-9A-Za-z.+-]+)?", 64, "must be a version with three numbers, for example 1.0.0"
    ),
]
Entry = Annotated[
    str,
    _pattern(
        r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*",
        128,
        "must be module:attribute, for example app:app",
    ),
]
ToolId = Annotated[str, _pattern(_DOTTED, 128, "must be <app_scope>.<name> in a-z 0-9 . _ -")]
Name = Annotated[str, _pattern(_DOTTED, 64, "must be a dotted name in a-z 0-9 . _ -")]
FieldName = Annotated[str, _pattern(r"[A-Za-z_][A-Za-z0-9_]*", 64, "must be the name of an input field")]
MinVersion = Annotated[
    str, _pattern(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?", 16, "must be a Host version, for example 1.0")
]
SurfaceEntry = Annotated[
    str,
    _pattern(
        r"(?!.*(^|/)\.)[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*\.html",
        limits.BUNDLE_PATH_BYTES_MAX,
        "must be the path of an HTML file in the bundle, for example surface/index.html",
    ),
]
Title = Annotated[str, AfterValidator(_title)]
Description = Annotated[
    str, StringConstraints(min_length=1, max_length=limits.DESCRIPTION_LENGTH_MAX), AfterValidator(_description)
]
RootSchema = Annotated[dict[str, Any], BeforeValidator(_root_schema)]
AnySchema = Annotated[dict[str, Any], BeforeValidator(_any_schema)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ToolTarget(_Model):
    """Where a call goes and what it does to the focus."""

    app_scope: Scope
    requires_foreground: bool
    restore_previous_focus: bool


class DeadlineStart(_Model):
    """The call starts an operation that the Runtime keeps; ``duration_field`` names the input that has its seconds."""

    role: Literal["start"]
    duration_field: FieldName = "duration_seconds"
    label_field: FieldName | None = None


class DeadlineInterrupt(_Model):
    """The call ends the conversation's running operation of this MiniApp."""

    role: Literal["interrupt"]


class ToolDescriptor(_Model):
    """One tool."""

    id: ToolId
    version: Annotated[Literal[1], BeforeValidator(_number)]
    title: Title
    description: Description
    handling: Literal["direct", "interactive", "launch", "foreground", "operation"]
    target: ToolTarget
    input_schema: RootSchema
    output_schema: RootSchema
    permissions: list[Name] = []
    timeout_ms: int | None = Field(default=None, ge=1, le=limits.TOOL_TIMEOUT_MS_MAX)
    retry_safe: bool = False
    deadline: Annotated[DeadlineStart | DeadlineInterrupt, Field(discriminator="role")] | None = None


class HostNeeds(_Model):
    min_version: MinVersion
    surface_required: bool


class SurfacePage(_Model):
    """One page of the bundle that ``surface.open`` may show."""

    entry: SurfaceEntry
    title: Title
    state_schema: AnySchema | None = None


class InstanceState(_Model):
    state_schema_version: int = Field(ge=1, le=limits.INTEGER_ABS_MAX)
    state_schema: AnySchema
    max_bytes: int = Field(ge=1, le=limits.STATE_BYTES_MAX)
    retention: Literal["retain_readonly", "delete"]


class Limits(_Model):
    """What one worker may use. The operator's config may lower each."""

    memory_mb: int = Field(default=limits.WORKER_MEMORY_MB_DEFAULT, ge=64, le=limits.WORKER_MEMORY_MB_MAX)
    cpu_share: float = Field(default=limits.WORKER_CPU_SHARE_DEFAULT, ge=0.05, le=limits.WORKER_CPU_SHARE_MAX)
    processes: int = Field(default=limits.WORKER_PROCESSES_DEFAULT, ge=8, le=limits.WORKER_PROCESSES_MAX)
    open_files: int = Field(default=limits.WORKER_OPEN_FILES_DEFAULT, ge=32, le=limits.WORKER_OPEN_FILES_MAX)
    file_size_mb: int = Field(default=limits.WORKER_FILE_SIZE_MB_DEFAULT, ge=1, le=limits.WORKER_FILE_SIZE_MB_MAX)
    tmp_mb: int = Field(default=limits.WORKER_TMP_MB_DEFAULT, ge=1, le=limits.WORKER_TMP_MB_MAX)
    state_mb: int = Field(default=limits.WORKER_STATE_MB_DEFAULT, ge=1, le=limits.WORKER_STATE_MB_MAX)
    artifacts_mb: int = Field(default=limits.WORKER_ARTIFACTS_MB_DEFAULT, ge=1, le=limits.WORKER_ARTIFACTS_MB_MAX)
    stdout_kb_per_second: int = Field(
        default=limits.WORKER_STDOUT_KB_PER_SECOND_DEFAULT, ge=1, le=limits.WORKER_STDOUT_KB_PER_SECOND_MAX
    )


class Manifest(_Model):
    """A valid ``miniapp.json``."""

    app_scope: Scope
    version: Version
    kind: Literal["system", "bundled", "bundled-reference", "installed"]
    entry: Entry
    title: Title | None = None
    description: Description | None = None
    tools: list[ToolDescriptor] = Field(max_length=limits.TOOLS_PER_BUNDLE_MAX)
    subscriptions: list[Literal["message.text"]] = []
    requested_capabilities: list[Name] = Field(default=[], max_length=64)
    host: HostNeeds
    surfaces: list[SurfacePage] = Field(default=[], max_length=limits.SURFACES_PER_BUNDLE_MAX)
    limits: Limits = Limits()
    min_isolation: Literal["S1", "S2", "S3"] = "S3"
    features: list[Literal["app.instance-state.v1", "app.confirm-close.v1"]] = []
    instance_state: InstanceState | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-compatible, with defaults filled in and what is absent left out."""
        return self.model_dump(mode="json", exclude_none=True)


def parse_manifest(data: object, *, trusted: bool) -> Manifest:
    """A decoded ``miniapp.json``. ``trusted`` is True only for the Runtime's own distribution.

    Raises:
        LineUpError: ``manifest_invalid`` with ``detail = {faults: [{path, rule}, …]}``, every fault at once.
    """
    if not isinstance(data, dict):
        raise refusal([Fault("/", "must be an object")])
    try:
        size = len(canonical_json(copy_json(data)))
    except LineUpError as error:
        detail = error.detail if isinstance(error.detail, dict) else {}
        raise refusal([Fault(detail.get("path", "/"), detail.get("rule", error.message))]) from None
    if size > limits.MANIFEST_BYTES_MAX:
        raise refusal([Fault("/", f"has {size} bytes, at most {limits.MANIFEST_BYTES_MAX} are allowed")])
    faults: list[Fault] = []
    manifest: Manifest | None = None
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            faults.extend(_faults_of(each))
    faults.extend(_cross_faults(data, trusted))
    if faults or manifest is None:
        raise refusal(faults)
    return manifest


def _faults_of(error: ErrorDetails) -> Iterator[Fault]:
    location = [part for part in error["loc"] if part not in ("start", "interrupt")]
    path = join(location)
    if error["type"] == "lineup_schema":
        for fault in error["ctx"]["faults"]:
            yield Fault(path if fault.path == "/" else path + fault.path, fault.rule)
    elif error["type"] == "missing":
        yield Fault(path, "is required")
    elif error["type"] == "extra_forbidden":
        yield Fault(path, "unknown field")
    elif error["type"] == "lineup":
        yield Fault(path, error["msg"])
    else:
        yield Fault(path, error["msg"][:1].lower() + error["msg"][1:])


# --- rules that span several fields, on raw data so that they are told beside the structural faults -------------------


def _cross_faults(data: dict[str, Any], trusted: bool) -> Iterator[Fault]:
    scope = data.get("app_scope")
    if not trusted and data.get("kind") in TRUSTED_KINDS:
        yield Fault("/kind", "must be installed: the other kinds are for the Runtime's own distribution")
    if not trusted and isinstance(scope, str) and scope in RESERVED_SCOPES:
        yield Fault("/app_scope", "is reserved for the Runtime's own distribution")
    if not trusted and data.get("min_isolation") == "S1":
        yield Fault("/min_isolation", "must be S2 or S3: S1 is for the Runtime's own distribution")
    if data.get("subscriptions") and data.get("kind") != "system":
        yield Fault("/subscriptions", "must be empty: only system MiniApps may subscribe")
    yield from _host_faults(data)
    yield from _state_faults(data)
    for name in ("subscriptions", "requested_capabilities", "features"):
        yield from _repeats(data.get(name), f"/{name}")
    surfaces = data.get("surfaces")
    if isinstance(surfaces, list):
        yield from _repeats([s.get("entry") for s in surfaces if isinstance(s, dict)], "/surfaces")
    yield from _tools_faults(data, scope)


def _host_faults(data: dict[str, Any]) -> Iterator[Fault]:
    host = data.get("host")
    if not isinstance(host, dict):
        return
    wanted = host.get("min_version")
    if isinstance(wanted, str) and _is_newer(wanted):
        have = ".".join(map(str, HOST_VERSION))
        yield Fault("/host/min_version", f"asks for Host {wanted}, this Runtime is Host {have}")
    if host.get("surface_required") is True and not data.get("surfaces"):
        yield Fault("/surfaces", "must name a page, since host.surface_required is true")


def _is_newer(version: str) -> bool:
    """True if this Runtime is too old for it; a malformed one is told elsewhere."""
    if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}", version, re.ASCII) is None:
        return False
    return tuple(int(part) for part in version.split("."))[:2] > HOST_VERSION


def _state_faults(data: dict[str, Any]) -> Iterator[Fault]:
    features = data.get("features")
    declared = isinstance(features, list) and INSTANCE_STATE in features
    if declared and data.get("instance_state") is None:
        yield Fault("/instance_state", f"is required by the feature {INSTANCE_STATE}")
    if not declared and data.get("instance_state") is not None:
        yield Fault("/features", f"must have {INSTANCE_STATE}, since there is an instance_state")


def _repeats(values: object, path: str) -> Iterator[Fault]:
    seen: list[object] = []
    for index, value in enumerate(values if isinstance(values, list) else []):
        if value is not None and value in seen:
            yield Fault(pointer(path, index), "is there twice")
        seen.append(value)


def _tools_faults(data: dict[str, Any], scope: object) -> Iterator[Fault]:
    raw = data.get("tools")
    tools = [(i, tool) for i, tool in enumerate(raw if isinstance(raw, list) else []) if isinstance(tool, dict)]
    tools = tools[: limits.TOOLS_PER_BUNDLE_MAX + 1]
    wanted = data.get("requested_capabilities", [])
    roles = [tool["deadline"].get("role") for _, tool in tools if isinstance(tool.get("deadline"), dict)]
    seen: list[object] = []
    for index, tool in tools:
        path = f"/tools/{index}"
        tool_id = tool.get("id")
        if tool_id in seen:
            yield Fault(f"{path}/id", "another tool has this id")
        seen.append(tool_id)
        if isinstance(tool_id, str) and isinstance(scope, str) and not _belongs(tool_id, scope):
            yield Fault(f"{path}/id", f"must start with {scope}.")
        target = tool.get("target")
        if isinstance(target, dict) and isinstance(scope, str) and target.get("app_scope") != scope:
            yield Fault(f"{path}/target/app_scope", "must be the bundle's own app_scope")
        permissions = tool.get("permissions")
        for at, permission in enumerate(permissions if isinstance(permissions, list) else []):
            if not isinstance(wanted, list) or permission not in wanted:
                yield Fault(f"{path}/permissions/{at}", "is not among requested_capabilities")
        yield from _repeats(permissions, f"{path}/permissions")
        if tool.get("handling") == "interactive" and (scope != CHAT_SCOPE or tool_id not in CHAT_PRIMITIVES):
            yield Fault(f"{path}/handling", "must not be interactive: only Interact's own four tools ask the person")
        yield from _deadline_faults(tool, path, roles)


def _belongs(tool_id: str, scope: str) -> bool:
    if scope == CHAT_SCOPE and tool_id in CHAT_PRIMITIVES:
        return True
    return tool_id.startswith(f"{scope}.")


def _deadline_faults(tool: dict[str, Any], path: str, roles: list[object]) -> Iterator[Fault]:
    deadline = tool.get("deadline")
    if not isinstance(deadline, dict):
        return
    if deadline.get("role") == "interrupt":
        if "start" not in roles:
            yield Fault(f"{path}/deadline", "interrupts nothing: no tool of this bundle has the role start")
        if tool.get("handling") not in ("operation", "direct"):
            yield Fault(f"{path}/handling", "must be operation or direct, since the tool interrupts an operation")
        return
    if deadline.get("role") != "start":
        return
    if tool.get("handling") != "operation":
        yield Fault(f"{path}/handling", "must be operation, since the tool starts one")
    if roles.count("start") > 1:
        yield Fault(f"{path}/deadline", "another tool of this bundle has the role start")
    schema = tool.get("input_schema")
    schema = schema if isinstance(schema, dict) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    duration = deadline.get("duration_field", "duration_seconds")
    if not isinstance(duration, str) or _type_of(properties.get(duration)) != "integer":
        yield Fault(f"{path}/deadline/duration_field", "must name an integer of the input schema, in seconds")
    elif not isinstance(schema.get("required"), list) or duration not in schema["required"]:
        yield Fault(f"{path}/deadline/duration_field", "must be required by the input schema")
    elif not _begins_at_one(properties[duration]):
        place = pointer(pointer(f"{path}/input_schema/properties", duration), "minimum")
        yield Fault(place, "must be there, and at least 1: nothing ends before it begins")
    label = deadline.get("label_field")
    if label is not None and (not isinstance(label, str) or _type_of(properties.get(label)) != "string"):
        yield Fault(f"{path}/deadline/label_field", "must name a string of the input schema")


def _type_of(schema: object) -> object:
    return schema.get("type") if isinstance(schema, dict) else None


def _begins_at_one(schema: dict[str, Any]) -> bool:
    """What such a schema takes is 1 or more."""
    minimum = schema.get("minimum")
    return isinstance(minimum, int | float) and not isinstance(minimum, bool) and minimum >= 1
