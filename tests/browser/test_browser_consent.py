"""What a MiniApp may do is asked by the Runtime itself, over everything; the answer is listed and can be taken back."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from browser.support.axe import assert_usable
from browser.support.person import ANSWER_MS, Person
from browser.support.running import LineUp

REMINDER = Path(__file__).resolve().parent / "bundles" / "reminder"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def reminder(lineup: LineUp) -> LineUp:
    done = lineup.cli("apps", "add", str(REMINDER))
    assert done.returncode == 0, done.stderr
    return lineup


@pytest.fixture(autouse=True)
def ungranted(reminder: LineUp) -> Iterator[None]:
    yield
    for grant in grants(reminder):
        reminder.action("grant.revoke", f"revoke-{next(_numbers)}", app_scope="reminder", capability=grant)


def grants(lineup: LineUp) -> dict[str, str]:
    rows = lineup.query("snapshot")["grants"]
    return {row["capability"]: row["scope"] for row in rows if row["app_scope"] == "reminder"}


def remind(lineup: LineUp, what: str) -> str:
    """Returns the conversation that it happens in."""
    conversation = f"reminder-{next(_numbers)}"
    lineup.open_app("reminder.remind", conversation, what=what)
    return conversation


def answer_of(lineup: LineUp, conversation_id: str) -> Callable[[], object]:
    """What the tool has returned, once it has."""

    def look() -> object:
        calls = [row for row in lineup.query("calls", limit=100)["calls"] if row["conversation_id"] == conversation_id]
        return next((row.get("result") for row in calls if row["status"] == "completed"), None)

    return look


def consent(person: Person) -> Locator:
    found = person.page.get_by_role("dialog").filter(has_text=re.compile("LineUp Runtime|运行时"))
    expect(found).to_be_visible(timeout=ANSWER_MS)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_consent_and_what_comes_of_it_can_be_used_by_everybody(scheme: str, reminder: LineUp, make_person) -> None:
    person: Person = make_person(color_scheme=scheme)
    page = person.page

    def look(what: str) -> None:
        person.shot(what)
        assert_usable(page, what)

    conversation = remind(reminder, "Drink some water")
    dialog = consent(person)
    expect(dialog).to_contain_text("Reminder would like to show you notifications")
    expect(dialog).to_contain_text("You asked the agent for a reminder")
    expect(dialog.get_by_test_id("consent-scope")).to_have_text("reminder")  # a title may be another one's, this not
    look("1-asked")
    dialog.get_by_role("button", name="Always allow").click()
    expect(dialog).to_have_count(0)
    person.wait(lambda: answer_of(reminder, conversation)() == {"shown": True}, "the MiniApp has its answer")
    toast = page.get_by_test_id("toast").filter(has_text="Drink some water")
    expect(toast).to_be_visible()
    look("2-shown")

    page.get_by_test_id("notices-button").click()
    expect(page.get_by_test_id("notice").filter(has_text="Drink some water")).to_be_visible()
    expect(toast).to_have_count(0, timeout=1_000)  # it would cover what is listed, and stays longer by itself
    look("3-notices")
    page.get_by_role("button", name="Dismiss all").click()
    expect(page.get_by_test_id("notice")).to_have_count(0)
    expect(toast).to_have_count(0)
    page.keyboard.press("Escape")

    page.get_by_role("link", name="Permissions").click()
    row = page.get_by_role("row").filter(has_text="Reminder")
    expect(row).to_contain_text("always")
    look("4-permissions")
    row.get_by_role("button", name="Revoke").click()
    question = page.get_by_role("dialog", name="Revoke this permission?")
    expect(question).to_be_visible()
    look("5-revoke")
    question.get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    assert grants(reminder) == {}


@pytest.mark.parametrize(("locale", "scheme"), [("zh-CN", "dark"), ("en", "light")])
def test_a_consent_fits_a_phone(locale: str, scheme: str, reminder: LineUp, make_person) -> None:
    person: Person = make_person(locale=locale, color_scheme=scheme, viewport={"width": 375, "height": 720})
    remind(reminder, "Drink some water")
    dialog = consent(person)
    expect(dialog.get_by_text("Reminder 的说明" if locale == "zh-CN" else "Reminder says", exact=True)).to_be_visible()
    person.assert_fits()
    person.shot("asked")
    assert_usable(person.page, "a consent on a phone")
    dialog.get_by_role("button").last.click()
    expect(dialog).to_have_count(0)


def test_a_refusal_is_kept_and_nothing_is_shown(reminder: LineUp, person: Person) -> None:
    conversation = remind(reminder, "Nobody wants to hear this")
    dialog = consent(person)
    dialog.get_by_role("button", name="Deny").click()
    expect(dialog).to_have_count(0)
    person.wait(lambda: answer_of(reminder, conversation)() == {"shown": False}, "the MiniApp has its answer")
    assert grants(reminder) == {"notification.show": "denied"}
    assert reminder.query("snapshot")["notifications"] == []
    expect(person.page.get_by_test_id("toast")).to_have_count(0)


def test_two_tabs_ask_once_and_one_answer_does(reminder: LineUp, person: Person) -> None:
    other = Person(person.page.context.new_page(), f"{person.name}-2")
    other.page.goto(person.page.url)
    conversation = remind(reminder, "Stand up")
    consent(person)
    dialog = consent(other)
    dialog.get_by_role("button", name="Allow once").click()
    for tab in (person, other):
        expect(tab.page.get_by_role("dialog")).to_have_count(0)
    person.wait(lambda: answer_of(reminder, conversation)() == {"shown": True}, "the MiniApp has its answer")
    assert grants(reminder) == {}


def test_a_question_of_the_runtime_outlives_a_reload(reminder: LineUp, person: Person) -> None:
    conversation = remind(reminder, "Look out of the window")
    consent(person)
    person.page.reload()
    dialog = consent(person)
    person.page.keyboard.press("Escape")  # to turn away is no permission
    expect(dialog).to_have_count(0)
    person.wait(lambda: answer_of(reminder, conversation)() == {"shown": False}, "the MiniApp has its answer")
    assert grants(reminder) == {}
