"""Ids of calls are unique for each agent only: who is no agent says whose call is meant."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import Core, status_of
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev


@pytest.fixture
def core() -> Core:
    """``k1`` of a1, of zz and of the operator; ``k2`` of a1 alone."""
    core = Core()
    core.connect("a1")
    core.connect("zz")
    core.call_accepted("lab.launch", call_id="k1", link="a1", conversation="c1")
    core.call_accepted("lab.launch", call_id="k2", link="a1", conversation="c1")
    core.call_accepted("lab.launch", call_id="k1", link="zz", conversation="c2")
    core.did("call.start", actor="operator", call_id="k1", tool_id="lab.launch", input={"n": 1}, conversation_id="c3")
    return core


def watched(core: Core, agent_id: str, call_id: str) -> Any:
    event = ev.HostWatch(event_id=core.new_id(), reply_to="w", agent_id=agent_id, call_id=call_id)
    (reply,) = [effect for effect in core.do(event) if isinstance(effect, fx.ReplyHost)]
    return reply


@pytest.mark.parametrize("agent_id", ["a1", "zz", "cli"])
def test_the_call_of_the_agent_that_is_named(core: Core, agent_id: str) -> None:
    assert core.query("call", call_id="k1", agent_id=agent_id)["agent_id"] == agent_id
    assert watched(core, agent_id, "k1").detail["record"]["agent_id"] == agent_id
    done = core.did("call.cancel", actor="operator", call_id="k1", agent_id=agent_id)
    assert done["record"]["agent_id"] == agent_id
    left = {name: status_of(core, "k1", name) for name in ("a1", "zz", "cli")}
    assert {name for name, status in left.items() if status == "cancelled"} == {agent_id}


def test_a_name_that_several_agents_gave_is_refused(core: Core) -> None:
    refused = core.action("call.cancel", actor="operator", call_id="k1")
    assert (refused.code, refused.detail) == ("conflict", {"agent_ids": ["a1", "cli", "zz"]})
    assert {status_of(core, "k1", name) for name in ("a1", "zz", "cli")} == {"waiting_for_app"}
    assert watched(core, "", "k1").code == "conflict"


def test_a_name_that_one_agent_gave_needs_no_more(core: Core) -> None:
    assert core.did("call.cancel", call_id="k2")["record"]["agent_id"] == "a1"
    result = core.result("k2")
    assert result is not None
    assert result["error"]["message"] == "cancelled by the person"


def test_nobody_elses_call_is_found(core: Core) -> None:
    assert core.action("call.cancel", call_id="k2", agent_id="zz").code == "call_not_found"
    assert core.action("call.cancel", call_id="k9").code == "call_not_found"
    assert core.action("call.cancel", call_id="k2", agent_id="a\0").code == "message_invalid"
    assert watched(core, "zz", "k2").code == "call_not_found"
    assert status_of(core, "k2") == "waiting_for_app"
