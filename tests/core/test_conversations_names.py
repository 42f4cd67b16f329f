"""What a conversation is called before a person names it: its first words, or the tool that opened it; and whom it is
with."""

from __future__ import annotations

import pytest

from core.harness import Core
from lineup_supervisor.core.schema import TIMELINE
from lineup_supervisor.core.timeline import FIRST_WORDS_LENGTH_MAX


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def name(core: Core, conversation_id: str) -> str:
    rows = core.query("snapshot")["conversations"]
    found: str = next(row["title"] for row in rows if row["conversation_id"] == conversation_id)
    return found


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("hello", "hello"),
        ("\n\n  plan the week\nand the next", "plan the week"),
        ("## **Your tasks**\n\n- one", "Your tasks"),
        ("Hello **there**, `you`", "Hello there, you"),
        ("[the plan](https://example.org/a) of snake_case", "the plan of snake_case"),
        ("x" * 500, "x" * FIRST_WORDS_LENGTH_MAX),
    ],
)
def test_the_first_words_are_its_name(core: Core, text: str, called: str) -> None:
    core.send("message.text", {"text": text, "format": "markdown"}, conversation="c1")
    assert name(core, "c1") == called


def test_what_is_said_later_or_is_no_text_does_not_rename_it(core: Core) -> None:
    opened = core.did("conversation.open", agent_id="a1")["conversation_id"]
    assert name(core, opened) == ""
    core.did("person.text", conversation_id=opened, text="first")
    core.did("person.text", conversation_id=opened, text="second")
    assert name(core, opened) == "first"
    core.did("conversation.rename", conversation_id=opened, title="mine")
    core.did("person.text", conversation_id=opened, text="third")
    assert name(core, opened) == "mine"


def test_one_that_a_call_opens_is_called_like_the_tool(core: Core) -> None:
    _, inventory = core.connect("a2")
    title = next(tool["title"] for tool in inventory["payload"]["tools"] if tool["id"] == "lab.launch")
    core.call_accepted("lab.launch", conversation="c9")
    assert name(core, "c9") == title


def test_nothing_is_said_where_nobody_reads_it(core: Core) -> None:
    """The command line calls tools; a text to it would be kept for nobody, and other agents have no say there."""
    core.action(
        "call.start", actor="operator", call_id="k1", tool_id="lab.launch", input={"n": 1}, conversation_id="cli"
    )
    before = dict(core.scan(TIMELINE, "cli"))
    refused = core.action("person.text", conversation_id="cli", text="hello?")
    assert (refused.accepted, refused.code) == (False, "unauthorized")
    assert dict(core.scan(TIMELINE, "cli")) == before
    assert core.action("conversation.open", agent_id="cli").code == "not_found"
