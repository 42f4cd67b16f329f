"""miniapp.json: every fault at once, each with its path."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineup_protocol.errors import LineUpError
from lineup_protocol.manifest import RESERVED_SCOPES, parse_manifest

ANY_OBJECT: dict[str, Any] = {"type": "object"}


def tool(name: str = "demo.open", **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "version": 1,
        "title": "Open",
        "description": "Opens a thing.",
        "handling": "launch",
        "target": {"app_scope": "demo", "requires_foreground": True, "restore_previous_focus": True},
        "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
        "output_schema": ANY_OBJECT,
        **changes,
    }


def manifest(**changes: Any) -> dict[str, Any]:
    made = {
        "app_scope": "demo",
        "version": "1.0.0",
        "kind": "installed",
        "entry": "app:app",
        "tools": [tool()],
        "subscriptions": [],
        "requested_capabilities": [],
        "host": {"min_version": "1.0", "surface_required": False},
        **changes,
    }
    return {name: value for name, value in made.items() if value is not ...}


def faults(data: object, *, trusted: bool = False) -> dict[str, str]:
    before = copy.deepcopy(data)
    with pytest.raises(LineUpError) as refused:
        parse_manifest(data, trusted=trusted)
    assert data == before or "nan" in repr(data)
    assert refused.value.code == "manifest_invalid"
    assert isinstance(refused.value.detail, dict)
    json.dumps(refused.value.detail)
    return {fault["path"]: fault["rule"] for fault in refused.value.detail["faults"]}


START = {
    "handling": "operation",
    "input_schema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["duration_seconds"],
        "properties": {"duration_seconds": {"type": "integer", "minimum": 1}, "activity": {"type": "string"}},
    },
    "deadline": {"role": "start", "duration_field": "duration_seconds", "label_field": "activity"},
}
SECONDS_MIN = "/tools/0/input_schema/properties/duration_seconds/minimum"


def lasting(seconds: dict[str, Any]) -> dict[str, Any]:
    """A start whose duration has this schema."""
    schema = START["input_schema"] | {"properties": {"duration_seconds": seconds, "activity": {"type": "string"}}}
    return {**START, "input_schema": schema}


INTERRUPT = {"handling": "operation", "input_schema": ANY_OBJECT, "deadline": {"role": "interrupt"}}


class TestAccepted:
    def test_the_smallest_one_with_its_defaults(self) -> None:
        made = parse_manifest(manifest(subscriptions=..., requested_capabilities=...), trusted=False)
        assert (made.min_isolation, made.features, made.instance_state, made.tools[0].retry_safe) == (
            "S3",
            [],
            None,
            False,
        )
        assert made.limits.memory_mb == 256

    def test_the_example_of_the_contract(self) -> None:
        state = {"state_schema_version": 1, "state_schema": {}, "max_bytes": 4096, "retention": "retain_readonly"}
        data = manifest(
            app_scope="task-dashboard",
            kind="bundled-reference",
            tools=[],
            features=["app.instance-state.v1"],
            instance_state=state,
        )
        made = parse_manifest(data, trusted=True)
        assert made.as_dict()["instance_state"] == state

    def test_as_dict_is_a_manifest_again(self) -> None:
        made = parse_manifest(
            manifest(tools=[tool("demo.start", **START), tool("demo.stop", **INTERRUPT)]), trusted=False
        )
        again = parse_manifest(json.loads(json.dumps(made.as_dict())), trusted=False)
        assert again == made

    def test_everything_optional(self) -> None:
        data = manifest(
            title="Demo",
            description="A demo.",
            requested_capabilities=["notification.show"],
            tools=[tool(permissions=["notification.show"], timeout_ms=1000, retry_safe=True)],
            surfaces=[{"entry": "surface/index.html", "title": "Board", "state_schema": {"type": "object"}}],
            host={"min_version": "1.0", "surface_required": True},
            limits={
                "memory_mb": 128,
                "cpu_share": 0.5,
                "processes": 8,
                "open_files": 64,
                "file_size_mb": 1,
                "tmp_mb": 1,
                "state_mb": 1,
                "artifacts_mb": 1,
                "stdout_kb_per_second": 1,
            },
            min_isolation="S2",
        )
        assert parse_manifest(data, trusted=False).limits.cpu_share == 0.5

    @pytest.mark.parametrize("name", ["notice", "choice", "confirm", "input", "chat.other"])
    def test_chat_has_the_four_primitives(self, name: str) -> None:
        target = {"app_scope": "chat", "requires_foreground": False, "restore_previous_focus": False}
        data = manifest(
            app_scope="chat",
            kind="system",
            min_isolation="S1",
            subscriptions=["message.text"],
            tools=[tool(name, target=target)],
        )
        assert parse_manifest(data, trusted=True).tools[0].id == name
        assert {"/app_scope", "/kind", "/min_isolation"} == set(faults(data))


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"app_scope": ...}, "/app_scope"),
            ({"version": ...}, "/version"),
            ({"kind": ...}, "/kind"),
            ({"entry": ...}, "/entry"),
            ({"tools": ...}, "/tools"),
            ({"host": ...}, "/host"),
            ({"extra": 1}, "/extra"),
            ({"version": "1"}, "/version"),
            ({"version": 1}, "/version"),
            ({"kind": "system"}, "/kind"),
            ({"kind": "bundled"}, "/kind"),
            ({"kind": "bundled-reference"}, "/kind"),
            ({"kind": "other"}, "/kind"),
            ({"entry": "app"}, "/entry"),
            ({"entry": "../app:app"}, "/entry"),
            ({"entry": "os:system('x')"}, "/entry"),
            ({"entry": "app:app\n"}, "/entry"),
            ({"entry": ".app:app"}, "/entry"),
            ({"tools": {}}, "/tools"),
            ({"tools": [1]}, "/tools/0"),
            ({"tools": [tool(f"demo.t{i}") for i in range(65)]}, "/tools"),
            ({"subscriptions": ["message.text"]}, "/subscriptions"),
            ({"requested_capabilities": ["A"]}, "/requested_capabilities/0"),
            ({"requested_capabilities": ["a", "a"]}, "/requested_capabilities/1"),
            ({"host": {"min_version": "1.0"}}, "/host/surface_required"),
            ({"host": {"min_version": "2.0", "surface_required": False}}, "/host/min_version"),
            ({"host": {"min_version": "1.1", "surface_required": False}}, "/host/min_version"),
            ({"host": {"min_version": "new", "surface_required": False}}, "/host/min_version"),
            ({"host": {"min_version": "1.0", "surface_required": 1}}, "/host/surface_required"),
            ({"host": {"min_version": "1.0", "surface_required": True}}, "/surfaces"),
            ({"surfaces": [{"entry": "../x.html", "title": "t"}]}, "/surfaces/0/entry"),
            ({"surfaces": [{"entry": "/x.html", "title": "t"}]}, "/surfaces/0/entry"),
            ({"surfaces": [{"entry": "a/.x.html", "title": "t"}]}, "/surfaces/0/entry"),
            ({"surfaces": [{"entry": "http://x/y.html", "title": "t"}]}, "/surfaces/0/entry"),
            ({"surfaces": [{"entry": "x.js", "title": "t"}]}, "/surfaces/0/entry"),
            ({"surfaces": [{"entry": "x.html", "title": ""}]}, "/surfaces/0/title"),
            ({"surfaces": [{"entry": "x.html", "title": "t"}] * 2}, "/surfaces/1"),
            (
                {"surfaces": [{"entry": "x.html", "title": "t", "state_schema": {"$ref": "#"}}]},
                "/surfaces/0/state_schema/$ref",
            ),
            ({"surfaces": [{"entry": "x.html", "title": "t", "sandbox": "allow-same-origin"}]}, "/surfaces/0/sandbox"),
            ({"limits": {"memory_mb": 10**9}}, "/limits/memory_mb"),
            ({"limits": {"memory_mb": 0}}, "/limits/memory_mb"),
            ({"limits": {"memory_mb": True}}, "/limits/memory_mb"),
            ({"limits": {"memory_mb": "64"}}, "/limits/memory_mb"),
            ({"limits": {"cpu_share": float("nan")}}, "/limits/cpu_share"),
            ({"limits": {"disk": 1}}, "/limits/disk"),
            ({"min_isolation": "S1"}, "/min_isolation"),
            ({"min_isolation": "S4"}, "/min_isolation"),
            ({"features": ["app.instance-state.v1"]}, "/instance_state"),
            ({"features": ["app.other.v1"]}, "/features/0"),
        ],
    )
    def test_with_its_path(self, change: dict[str, Any], path: str) -> None:
        assert set(faults(manifest(**change))) == {path}

    @pytest.mark.parametrize("scope", ["", "Demo", "1x", "a_b", "a b", "-a", "x" * 64, "é", "a/b", "..", 1, None])
    def test_scopes(self, scope: object) -> None:
        assert "/app_scope" in faults(manifest(app_scope=scope))

    @pytest.mark.parametrize("scope", sorted(RESERVED_SCOPES))
    def test_the_names_of_the_runtimes_own_parts(self, scope: str) -> None:
        target = {"app_scope": scope, "requires_foreground": True, "restore_previous_focus": True}
        data = manifest(app_scope=scope, tools=[tool(f"{scope}.open", target=target)])
        assert faults(data) == {"/app_scope": "is reserved for the Runtime's own distribution"}
        assert parse_manifest(data, trusted=True).app_scope == scope
        near = f"{scope}-2"
        target = {**target, "app_scope": near}
        parse_manifest(manifest(app_scope=near, tools=[tool(f"{near}.open", target=target)]), trusted=False)

    @pytest.mark.parametrize(
        "odd", ["White\u202eboard", "\x1b[31mred", "two\nlines", "a\u2028b", "a\u200bb", "   ", "\x00"]
    )
    @pytest.mark.parametrize(
        ("place", "path"),
        [
            (lambda odd: {"title": odd}, "/title"),
            (lambda odd: {"tools": [tool(title=odd)]}, "/tools/0/title"),
            (lambda odd: {"surfaces": [{"entry": "surface/index.html", "title": odd}]}, "/surfaces/0/title"),
        ],
    )
    def test_titles_that_do_not_look_like_what_they_are(self, place: Any, path: str, odd: str) -> None:
        assert faults(manifest(**place(odd))) == {path: "must be one line of 1 to 128 printable characters"}

    @pytest.mark.parametrize("odd", ["White\u202eboard", "\x1b[31mred", "a\rb", "a\u2029b", "a\u200bb", "\x85"])
    @pytest.mark.parametrize(
        ("place", "path"),
        [
            (lambda odd: {"description": odd}, "/description"),
            (lambda odd: {"tools": [tool(description=odd)]}, "/tools/0/description"),
            (
                lambda odd: {"tools": [tool(input_schema={"type": "object", "description": odd})]},
                "/tools/0/input_schema/description",
            ),
            (
                lambda odd: {"tools": [tool(output_schema={"type": "object", "title": odd})]},
                "/tools/0/output_schema/title",
            ),
        ],
    )
    def test_descriptions_that_do_not_look_like_what_they_are(self, place: Any, path: str, odd: str) -> None:
        assert faults(manifest(**place(odd))) == {
            path: "must have no control characters and no marks that reorder text"
        }

    def test_a_description_may_have_paragraphs_and_every_script(self) -> None:
        said = "One line.\n\n\tIndented\u00a0text\u3000任务，עברית, العربية, 👍🏽."
        made = parse_manifest(manifest(description=said, title="任务 · עברית 👍"), trusted=False)
        assert (made.description, made.title) == (said, "任务 · עברית 👍")

    @pytest.mark.conformance("03-9.3")
    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"id": "other.open"}, "/tools/0/id"),
            ({"id": "demo"}, "/tools/0/id"),
            ({"id": "demo."}, "/tools/0/id"),
            ({"id": "Demo.open"}, "/tools/0/id"),
            ({"id": "notice"}, "/tools/0/id"),
            ({"version": 2}, "/tools/0/version"),
            ({"version": "1"}, "/tools/0/version"),
            ({"version": True}, "/tools/0/version"),
            ({"title": ""}, "/tools/0/title"),
            ({"description": ""}, "/tools/0/description"),
            ({"description": "x" * 2049}, "/tools/0/description"),
            ({"handling": "magic"}, "/tools/0/handling"),
            ({"timeout_ms": 0}, "/tools/0/timeout_ms"),
            ({"timeout_ms": 10**12}, "/tools/0/timeout_ms"),
            ({"timeout_ms": 1.5}, "/tools/0/timeout_ms"),
            ({"retry_safe": 1}, "/tools/0/retry_safe"),
            ({"retry_safe": "yes"}, "/tools/0/retry_safe"),
            ({"permissions": ["camera.use"]}, "/tools/0/permissions/0"),
            ({"retrysafe": True}, "/tools/0/retrysafe"),
            ({"input_schema": {"type": "string"}}, "/tools/0/input_schema/type"),
            ({"input_schema": {}}, "/tools/0/input_schema/type"),
            ({"output_schema": {"type": "object", "pattern": "(a+)+$"}}, "/tools/0/output_schema/pattern"),
            ({"output_schema": {"$ref": "http://127.0.0.1/x"}}, "/tools/0/output_schema/$ref"),
            ({"input_schema": 1}, "/tools/0/input_schema"),
            (
                {"input_schema": {"type": "object", "properties": {"a": {"requried": []}}}},
                "/tools/0/input_schema/properties/a/requried",
            ),
            ({"target": {"app_scope": "demo", "requires_foreground": True}}, "/tools/0/target/restore_previous_focus"),
            (
                {"target": {"app_scope": "chat", "requires_foreground": True, "restore_previous_focus": True}},
                "/tools/0/target/app_scope",
            ),
            ({"deadline": {"role": "pause"}}, "/tools/0/deadline"),
            ({"deadline": 5}, "/tools/0/deadline"),
            ({"handling": "operation", "deadline": {"role": "interrupt"}}, "/tools/0/deadline"),
            ({**START, "handling": "direct"}, "/tools/0/handling"),
            (
                {**START, "deadline": {"role": "start", "duration_field": "activity"}},
                "/tools/0/deadline/duration_field",
            ),
            ({**START, "deadline": {"role": "start", "duration_field": "other"}}, "/tools/0/deadline/duration_field"),
            ({**START, "deadline": {**START["deadline"], "label_field": "other"}}, "/tools/0/deadline/label_field"),
            ({**START, "deadline": {**START["deadline"], "grace": 1}}, "/tools/0/deadline/grace"),
            ({**START, "input_schema": {**START["input_schema"], "required": []}}, "/tools/0/deadline/duration_field"),
            (lasting({"type": "integer"}), SECONDS_MIN),
            (lasting({"type": "integer", "minimum": 0}), SECONDS_MIN),
            (lasting({"type": "integer", "minimum": -5}), SECONDS_MIN),
            (lasting({"type": "integer", "minimum": 0.5}), SECONDS_MIN),
            (lasting({"type": "integer", "maximum": 60}), SECONDS_MIN),
            ({"handling": "interactive"}, "/tools/0/handling"),
        ],
    )
    def test_tools_with_their_path(self, change: dict[str, Any], path: str) -> None:
        assert set(faults(manifest(tools=[tool(**change)]))) == {path}

    @pytest.mark.conformance("03-9.3")
    @pytest.mark.parametrize("name", ["id", "version", "title", "description", "handling", "target", "input_schema"])
    def test_tools_lack_nothing(self, name: str) -> None:
        assert (
            "is required"
            in faults(manifest(tools=[{k: v for k, v in tool().items() if k != name}]))[f"/tools/0/{name}"]
        )

    def test_two_tools_with_one_id_and_two_that_start(self) -> None:
        assert set(faults(manifest(tools=[tool(), tool()]))) == {"/tools/1/id"}
        both = manifest(tools=[tool("demo.a", **START), tool("demo.b", **START)])
        assert set(faults(both)) == {"/tools/0/deadline", "/tools/1/deadline"}

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"state_schema_version": 0}, "/instance_state/state_schema_version"),
            ({"state_schema": {"default": {}}}, "/instance_state/state_schema/default"),
            ({"state_schema": ...}, "/instance_state/state_schema"),
            ({"max_bytes": 0}, "/instance_state/max_bytes"),
            ({"max_bytes": 10**9}, "/instance_state/max_bytes"),
            ({"retention": "forever"}, "/instance_state/retention"),
            ({"extra": 1}, "/instance_state/extra"),
        ],
    )
    def test_instance_state(self, change: dict[str, Any], path: str) -> None:
        state = {"state_schema_version": 1, "state_schema": {}, "max_bytes": 1, "retention": "delete", **change}
        state = {name: value for name, value in state.items() if value is not ...}
        assert set(faults(manifest(features=["app.instance-state.v1"], instance_state=state))) == {path}
        if change == {"extra": 1}:
            del state["extra"]
            assert set(faults(manifest(instance_state=state))) == {"/features"}

    def test_every_fault_at_once(self) -> None:
        bad = tool(
            "other.x",
            input_schema={"type": "object", "$ref": "#", "properties": {"a": {"type": "strin"}}},
            colour="red",
        )
        found = faults(manifest(version="one", kind="system", tools=[bad], limits={"tmp_mb": -1}, surprise=True))
        assert set(found) == {
            "/version",
            "/kind",
            "/tools/0/id",
            "/tools/0/colour",
            "/tools/0/input_schema/$ref",
            "/tools/0/input_schema/properties/a/type",
            "/limits/tmp_mb",
            "/surprise",
        }

    @pytest.mark.parametrize("data", [None, [], "x", 1, {}, {"a": b"x"}, {"a": float("inf")}, {"x": "y" * 300_000}])
    def test_what_is_no_manifest_at_all(self, data: object) -> None:
        assert faults(data)

    def test_many_faults_are_listed_up_to_a_bound(self) -> None:
        assert len(faults(manifest(**{f"x{i}": 1 for i in range(500)}))) == 100


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "demo", "start", "1.0"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*tool(), *manifest(), "role"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from([*manifest(), "surfaces", "limits", "features", "instance_state"]), junk, max_size=4
    ),
    junk,
)
@settings(max_examples=300, deadline=None)
def test_any_json_gives_a_manifest_or_a_typed_refusal(changes: dict[str, Any], in_tool: object) -> None:
    data = manifest(**changes)
    if isinstance(in_tool, dict) and isinstance(data.get("tools"), list):
        data["tools"] = [*data["tools"], {**tool("demo.other"), **in_tool}]
    try:
        parse_manifest(data, trusted=False)
    except LineUpError as error:
        code = error.code
    else:
        code = "manifest_invalid"
    assert code == "manifest_invalid"
