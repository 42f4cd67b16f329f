"""The inventory: what agents may call, under a revision that is a digest of what they can see.

Owns ``Meta.inventory_revision`` and the index from tool ids to descriptors.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from lineup_protocol.schema import Validator, compile_schema
from lineup_protocol.strict_json import canonical_json
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.envelopes import runtime_frame
from lineup_supervisor.core.schema import (
    AGENT_LINKS,
    APPS,
    BUNDLES,
    DESCRIPTORS,
    App,
    BundleRow,
    Descriptor,
)
from lineup_supervisor.core.txn import Txn

# The Runtime keeps these descriptor fields to itself: they bind tools to its own services.
_PRIVATE = ("deadline",)


class Tool(NamedTuple):
    """A declared tool: who declares it, and whether calls may go there just now."""

    app: App
    bundle: BundleRow
    descriptor: dict[str, Any]
    digest: str
    input: Validator

    @property
    def open(self) -> bool:
        return self.app.enabled and not self.app.quarantined


# Derived from rows that are named by their digest, so that an entry can never be stale; bounded.
_index_cache: dict[tuple[App, ...], dict[str, Tool]] = {}
_INDEX_CACHE_ENTRIES_MAX = 32
_output_cache: dict[str, Validator] = {}
_OUTPUT_CACHE_ENTRIES_MAX = 1024


def tool_index(txn: Txn) -> dict[str, Tool]:
    """Every declared tool by its id, those of disabled and quarantined MiniApps included."""
    apps = tuple(app for _, app in txn.scan(APPS))
    index = _index_cache.get(apps)
    if index is None:
        index = {}
        for app in apps:
            bundle = txn.get(BUNDLES, (app.digest,))
            assert bundle is not None, f"bundle {app.digest} of {app.app_scope} is missing"
            for tool in bundle.manifest["tools"]:
                index[tool["id"]] = Tool(app, bundle, tool, _digest(tool), compile_schema(tool["input_schema"]))
        if len(_index_cache) >= _INDEX_CACHE_ENTRIES_MAX:
            _index_cache.clear()
        _index_cache[apps] = index
    return index


def visible_tools(txn: Txn) -> list[dict[str, Any]]:
    """Descriptors of every tool that may be called, by tool id."""
    index = tool_index(txn)
    return [public_descriptor(index[name].descriptor) for name in sorted(index) if index[name].open]


def public_descriptor(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name not in _PRIVATE and value is not None}


def revision_of(tools: list[dict[str, Any]]) -> str:
    return "r-" + hashlib.sha256(canonical_json(tools)).hexdigest()[:16]


def refresh(ctx: Ctx) -> None:
    """Compute the revision anew; if it changed, tell every link.

    The revision changes if and only if the content does.
    """
    tools = visible_tools(ctx.txn)
    revision = revision_of(tools)
    if revision == ctx.meta.inventory_revision:
        return
    audit(ctx, "inventory.changed", revision, before=ctx.meta.inventory_revision or None, tools=len(tools))
    ctx.set_meta(inventory_revision=revision)
    for key, _ in ctx.txn.scan(AGENT_LINKS):
        ctx.send_agent(str(key[0]), inventory_frame(ctx, tools))


def inventory_frame(ctx: Ctx, tools: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    payload = {
        "revision": ctx.meta.inventory_revision,
        "tools": visible_tools(ctx.txn) if tools is None else tools,
    }
    return runtime_frame(ctx, "lineup.v1.client.inventory", payload)


def keep_descriptor(ctx: Ctx, tool: Tool) -> str:
    """Store the descriptor that a call is made under; returns its digest."""
    if ctx.get(DESCRIPTORS, (tool.digest,)) is None:
        ctx.put(DESCRIPTORS, (tool.digest,), Descriptor(descriptor=tool.descriptor))
    return tool.digest


def takes_screen(descriptor: dict[str, Any]) -> bool:
    """Whether calls of this tool bring their instance to the front."""
    return bool(descriptor["handling"] == "foreground" or descriptor["target"]["requires_foreground"])


def output_validator(ctx: Ctx, digest: str) -> Validator:
    """Checks results of calls that were made under this descriptor, whatever has become of its MiniApp."""
    validator = _output_cache.get(digest)
    if validator is None:
        validator = compile_schema(ctx.need(DESCRIPTORS, (digest,)).descriptor["output_schema"])
        if len(_output_cache) >= _OUTPUT_CACHE_ENTRIES_MAX:
            _output_cache.clear()
        _output_cache[digest] = validator
    return validator


def _digest(tool: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(tool)).hexdigest()[:32]
