"""The first minutes: the link, hello, help; and every page and dialog can be used by everybody, in light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from browser.support.axe import assert_usable
from browser.support.person import Person
from browser.support.running import LineUp, lineup_up


@pytest.fixture(scope="module")
def lineup() -> Iterator[LineUp]:
    """Its own: nothing has happened in it yet."""
    with lineup_up() as running:
        yield running


def test_a_first_run_from_the_link_to_the_first_answers(lineup: LineUp, make_person) -> None:
    person: Person = make_person(converse=False)
    assert "launch" not in person.page.url, "the key stays in the address bar"
    person.shot("1-empty")

    person.new_conversation()
    person.shot("2-new")
    person.say("hello")
    person.hears("demo agent")
    expect(person.page.get_by_test_id("echo")).to_have_count(0)
    expect(person.said("hello")).to_have_count(1)

    person.say("help")
    table = person.hears("whiteboard").get_by_role("table")
    expect(table).to_be_visible()
    person.shot("3-help")

    person.page.reload()
    expect(person.said("hello")).to_have_count(1)
    expect(person.page.get_by_test_id("agent-presence")).to_contain_text("connected")


def test_a_link_works_once_and_a_page_without_one_says_what_to_do(lineup: LineUp, browser_context, watch) -> None:
    watch.expect(r"401 \(Unauthorized\)")
    link = lineup.link()
    first = browser_context().new_page()
    Person(first, "link").enter(link)
    second = Person(browser_context().new_page(), "locked")
    second.page.goto(link)
    expect(second.page.get_by_test_id("locked")).to_contain_text("lineup open")
    second.shot("used-link")
    assert_usable(second.page, "the page without a link")


def dialogs_and_pages(person: Person) -> None:
    """Go through all of them, and look at each."""
    page = person.page

    def look(what: str) -> None:
        person.shot(what)
        assert_usable(page, what)

    person.say("hello")
    person.hears("demo agent")
    look("interact")
    for text, answer in (("ask me something", "See a task"), ("form", "Your name"), ("notice", "This is a notice")):
        person.say(text)
        expect(person.question).to_contain_text(answer)
    look("questions")
    person.question.get_by_role("button", name="Got it").click()
    person.hears("Acknowledged")
    look("answered")

    page.get_by_test_id("app-switcher").click()
    expect(page.get_by_role("menu")).to_be_visible()
    look("apps")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Rename").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    look("rename")
    page.keyboard.press("Escape")
    page.get_by_role("button", name=re.compile("^Notifications")).click()
    look("notifications")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
    look("settings")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keyboard shortcuts").click()
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    look("shortcuts")
    page.keyboard.press("Escape")

    page.get_by_role("link", name="Permissions").click()
    expect(page.get_by_role("heading", name="Permissions")).to_be_visible()
    look("permissions")
    page.get_by_role("link", name="Inspector").click()
    expect(page.get_by_role("heading", name="Inspector")).to_be_visible()
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("are whole and in order")).to_be_visible(timeout=15_000)
    look("inspector")
    page.get_by_role("table").get_by_role("link").first.click()
    expect(page.get_by_role("heading", name=re.compile("^Story of"))).to_be_visible()
    look("story")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_and_dialog_can_be_used_by_everybody(scheme: str, make_person) -> None:
    dialogs_and_pages(make_person(color_scheme=scheme))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_miniapp_can_be_used_by_everybody(scheme: str, lineup: LineUp, make_person) -> None:
    person: Person = make_person(color_scheme=scheme, converse=False)
    page = person.page
    conversation = f"tasks-{scheme}"  # of another agent, whose task does not end while it is being looked at
    lineup.open_app("task-dashboard.open", conversation, task_id="t1", title="write report")
    lineup.open_app("task-dashboard.update", conversation, task_id="t1", progress=0.4, note="step 2 of 5")
    page.goto(f"{lineup.origin}/#/c/{conversation}")
    person.sees_app("task-dashboard")
    expect(page.get_by_test_id("task")).to_contain_text("step 2 of 5")
    page.get_by_role("button", name=re.compile("^History")).click()
    person.shot("tasks")
    assert_usable(page, "the Task Dashboard")
    page.get_by_test_id("close-app").click()
    expect(page.get_by_role("dialog")).to_contain_text("Close with unfinished work?")
    person.shot("tasks-close")
    assert_usable(page, "the question of the Task Dashboard")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    person.is_back_in_interact()

    person.new_conversation()
    person.say("whiteboard")
    person.sees_app("whiteboard")
    board = person.surface()
    person.draw((0.3, 0.3), (0.6, 0.5))
    person.shot("whiteboard")
    assert_usable(page, "the stage of the Whiteboard")
    assert_usable(board, "the Whiteboard")
    page.get_by_test_id("return-to-interact").click()
    person.is_back_in_interact()

    person.say("focus for 10 minutes on reading")
    person.sees_app("pomodoro")
    timer = person.surface()
    expect(page.frame_locator("[data-testid=surface]").locator("#activity")).to_have_text("reading")
    person.shot("pomodoro")
    assert_usable(page, "the stage of the Pomodoro")
    assert_usable(timer, "the Pomodoro")
    page.get_by_test_id("return-to-interact").click()
    expect(page.get_by_role("dialog", name="End the focus?")).to_be_visible()
    person.shot("pomodoro-leave")
    assert_usable(page, "the question before a focus ends")
    page.get_by_role("dialog").get_by_role("button", name="Leave and end it").click()
    person.is_back_in_interact()
    assert_usable(page, "the history of sessions")
    person.shot("sessions")
