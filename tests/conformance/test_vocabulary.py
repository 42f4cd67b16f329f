"""What cannot be said on any link cannot be done: who one is, and where MiniApps would come from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conformance.support.stages import BUNDLE
from lineup_protocol.errors import LineUpError
from lineup_protocol.messages import AGENT_LINK, HOST_LINK, WORKER_LINK
from lineup_sdk import MiniApp, MiniAppContext
from lineup_supervisor.core import actions, queries
from lineup_supervisor.edges.bundles import keep_bundle
from lineup_testkit import StubRuntime

IDENTITY = {"app_scope", "instance_id", "conversation_id", "session_id", "agent_id", "owner", "source", "context"}
MARKET = re.compile(r"catalog|download|install|market|store|publish|update_app|upgrade|purchase|rating|account", re.I)


@pytest.mark.conformance("03-9.1")
@pytest.mark.conformance("03-9.7")
def test_no_worker_can_say_who_it_is() -> None:
    """Identity belongs to the connection: no message of a worker has a field for it."""
    for message in WORKER_LINK:
        if message.source == "worker":
            assert not IDENTITY & set(message.fields), message.type


@pytest.mark.conformance("03-9.1")
async def test_the_context_comes_from_the_runtime_and_cannot_be_changed() -> None:
    manifest = json.loads((BUNDLE / "miniapp.json").read_text())
    app = MiniApp()
    contexts: list[MiniAppContext] = []

    @app.tool("probe.seen")
    async def look(call: object, sdk: object) -> dict[str, object]:
        contexts.append(sdk.context)  # type: ignore[attr-defined]
        return {"seen": []}

    async with StubRuntime.from_app(app, manifest) as stub:
        for conversation in ("c-1", "c-2"):
            assert (await stub.call("probe.seen", conversation_id=conversation)).result == {"seen": []}
        rows = {row["conversation_id"]: row for row in stub.query("status")["instances"] if row["app_scope"] == "probe"}
    for context in contexts:
        row = rows[context.conversation_id]
        assert (context.app_scope, context.instance_id) == (row["app_scope"], row["instance_id"])
        for name in ("app_scope", "instance_id", "conversation_id"):
            with pytest.raises(AttributeError):
                setattr(context, name, "another")
    assert len({context.instance_id for context in contexts}) == 2


@pytest.mark.conformance("03-9.12")
def test_no_link_knows_a_catalogue_a_download_or_a_market() -> None:
    words = [message.type for message in (*AGENT_LINK, *WORKER_LINK, *HOST_LINK)]
    words += [field for message in (*AGENT_LINK, *WORKER_LINK) for field in message.fields]
    words += [*actions._ACTIONS, *queries._QUERIES]
    assert len(words) > 100
    assert [word for word in words if MARKET.search(word)] == []


@pytest.mark.conformance("03-9.12")
@pytest.mark.parametrize("place", ["https://example.org/app.zip", "file:///tmp/app", "app.zip", "registry:probe"])
def test_a_bundle_is_a_folder_of_this_machine_and_nothing_else(tmp_path: Path, place: str) -> None:
    with pytest.raises(LineUpError) as refused:
        keep_bundle(Path(place), tmp_path)
    assert refused.value.code == "manifest_invalid"
    assert list(tmp_path.iterdir()) == []
