"""The MiniApps of the simulation: the real Interact's manifest, one with a tool of every kind, one with a deadline."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from lineup_supervisor.core.events import Bundle

WORKERS = Path(__file__).parents[2] / "workers" / "lineup_workers"

_N = {
    "type": "object",
    "additionalProperties": False,
    "required": ["n"],
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 1_000_000}, "by": {"type": "string"}},
}


def _tool(
    scope: str, name: str, handling: str, *, front: bool = False, restore: bool = False, **more: Any
) -> dict[str, Any]:
    return {
        "id": f"{scope}.{name}",
        "version": 1,
        "title": name,
        "description": f"{name} of {scope}",
        "handling": handling,
        "target": {"app_scope": scope, "requires_foreground": front, "restore_previous_focus": restore},
        "input_schema": _N,
        "output_schema": _N,
        **more,
    }


def lab(scope: str = "lab", *, kind: str = "bundled", version: str = "1.0.0") -> dict[str, Any]:
    """One tool of every handling, with and without ``retry_safe`` and ``timeout_ms``."""
    return {
        "app_scope": scope,
        "version": version,
        "kind": kind,
        "title": scope,
        "entry": "app:app",
        "subscriptions": [],
        "requested_capabilities": ["notification.show", "artifact.export"],
        "host": {"min_version": "1.0", "surface_required": False},
        "min_isolation": "S3",
        "features": ["app.instance-state.v1", "app.confirm-close.v1"],
        "instance_state": {
            "state_schema_version": 1,
            "state_schema": {"type": "object"},
            "max_bytes": 4096,
            "retention": "retain_readonly",
        },
        "surfaces": [{"entry": "surface/index.html", "title": "Board"}],
        "tools": [
            _tool(scope, "direct", "direct"),
            _tool(scope, "safe", "direct", retry_safe=True),
            _tool(scope, "brief", "direct", timeout_ms=2_000),
            _tool(scope, "launch", "launch", front=True, restore=True, retry_safe=True),
            _tool(scope, "front", "foreground", front=True, timeout_ms=30_000),
            _tool(scope, "poke", "operation"),
        ],
    }


def timer() -> dict[str, Any]:
    """The two tools of a deadline operation, as a Pomodoro has them."""
    start = _tool("timer", "start", "operation", front=True, deadline={"role": "start", "label_field": "activity"})
    start["input_schema"] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["duration_seconds"],
        "properties": {"duration_seconds": {"type": "integer", "minimum": 1}, "activity": {"type": "string"}},
    }
    names = ("state", "operation_id", "started_at", "ends_at", "ended_at", "interruption_reason")
    start["output_schema"] = {
        "type": "object",
        "additionalProperties": False,
        "required": list(names[:-1]),
        "properties": {name: {"type": "string"} for name in names},
    }
    start["deadline"]["duration_field"] = "duration_seconds"
    interrupt = _tool("timer", "interrupt", "operation", deadline={"role": "interrupt"})
    interrupt["input_schema"] = {"type": "object", "additionalProperties": False, "properties": {}}
    interrupt["output_schema"] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["status"],
        "properties": {"status": {"type": "string"}, "operation_id": {"type": "string"}},
    }
    return {
        "app_scope": "timer",
        "version": "1.0.0",
        "kind": "bundled",
        "title": "Timer",
        "entry": "app:app",
        "subscriptions": [],
        "requested_capabilities": [],
        "host": {"min_version": "1.0", "surface_required": False},
        "min_isolation": "S3",
        "features": [],
        "tools": [start, interrupt],
    }


def chat() -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((WORKERS / "interact" / "miniapp.json").read_text())
    return manifest


def bundle(manifest: dict[str, Any]) -> Bundle:
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    return Bundle(digest=digest, path=f"/bundles/{digest[:8]}", manifest=manifest)


def guest(version: str) -> dict[str, Any]:
    """A stranger's MiniApp, which the operator installs, upgrades and removes. Its second version drops a tool."""
    manifest = lab("guest", kind="installed", version=version)
    if version != "1.0.0":
        kept = [tool for tool in manifest["tools"] if not tool["id"].endswith(".poke")]
        manifest["tools"] = [*kept, _tool("guest", "extra", "direct", retry_safe=True)]
    return manifest


BUNDLES = (bundle(chat()), bundle(lab()), bundle(lab("lab2")), bundle(timer()))
GUESTS = {version: bundle(guest(version)) for version in ("1.0.0", "2.0.0")}
TOOLS = {tool["id"]: tool for each in (*BUNDLES, *GUESTS.values()) for tool in each.manifest["tools"]}
