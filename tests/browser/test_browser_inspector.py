"""What the Inspector says of calls: whom one waits for, how far one is, and nothing of the kind once it has ended."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from browser.support.person import ANSWER_MS, Person
from browser.support.running import LineUp


def inspect(person: Person, lineup: LineUp) -> None:
    person.page.goto(f"{lineup.origin}/#/inspector")
    expect(person.page.get_by_role("heading", name="Inspector")).to_be_visible()


def call_of(lineup: LineUp, conversation_id: str, tool_id: str) -> str:
    rows = lineup.query("calls", limit=100)["calls"]
    [found] = [row for row in rows if row["conversation_id"] == conversation_id and row["tool_id"] == tool_id]
    return str(found["call_id"])


def row(person: Person, table: str, call_id: str) -> Locator:
    link = person.page.get_by_role("link", name=call_id, exact=True)
    return person.page.get_by_role("table", name=table).get_by_role("row").filter(has=link)


def is_final(person: Person, call_id: str, status: str) -> None:
    """It has left the open calls, and its row among the recent ones has its last status and no percentage."""
    expect(row(person, "Open calls", call_id)).to_have_count(0, timeout=ANSWER_MS)
    person.page.get_by_role("button", name="Refresh").click()
    recent = row(person, "Recent calls", call_id)
    expect(recent).to_contain_text(status)
    expect(recent).not_to_contain_text("%")


def test_a_call_with_a_question_waits_for_a_person(person: Person, lineup: LineUp) -> None:
    person.say("ask me something")
    expect(person.question).to_contain_text("What would you like to do next?")
    conversation = person.conversation_id
    call_id = call_of(lineup, conversation, "choice")
    inspect(person, lineup)
    for table in ("Open calls", "Recent calls"):
        expect(row(person, table, call_id)).to_contain_text("waits for a person")
        expect(row(person, table, call_id)).not_to_contain_text("running")
    person.shot("waits")

    person.page.goto(f"{lineup.origin}/#/c/{conversation}")
    person.question.get_by_label("Nothing for now").check()
    person.question.get_by_role("button", name="Confirm").click()
    person.hears("You chose Nothing for now")
    inspect(person, lineup)
    is_final(person, call_id, "completed")


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_only_an_open_call_has_a_percentage(status: str, make_person, lineup: LineUp) -> None:
    person: Person = make_person(converse=False)
    conversation = f"inspected-{status}"
    lineup.open_app("task-dashboard.open", conversation, task_id="t1", title="write report")
    lineup.open_app("task-dashboard.update", conversation, task_id="t1", progress=0.4)
    call_id = call_of(lineup, conversation, "task-dashboard.open")
    inspect(person, lineup)
    expect(row(person, "Open calls", call_id)).to_contain_text(re.compile("running.*40%"), timeout=ANSWER_MS)
    person.shot("open")
    if status == "completed":
        lineup.open_app("task-dashboard.update", conversation, task_id="t1", status=status)
    else:
        done = lineup.cli("cancel", call_id)
        assert done.returncode == 0, done.stderr
    is_final(person, call_id, status)
    person.shot("ended")
