"""Several tabs see the same and lose nothing of each other's; a page that slept is right when it wakes up."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from playwright.sync_api import Page, expect

from browser.support.person import Person
from browser.support.running import LineUp
from processes.support.waiting import until_now

SLEEP_S = 3.0
CLOCK_OFF_S_MAX = 2.0


def second_tab(person: Person, lineup: LineUp) -> Person:
    """Another tab of the same browser: no link of its own, the first one lets it in."""
    other = Person(person.page.context.new_page(), f"{person.name}-2")
    other.page.goto(f"{lineup.origin}/#/c/{person.conversation_id}")
    expect(other.composer.or_(other.stage).first).to_be_visible()
    return other


def test_two_tabs_see_the_same(person: Person, lineup: LineUp) -> None:
    other = second_tab(person, lineup)
    other.composer.fill("my draft")
    person.say("ask me something")
    for tab in (person, other):
        expect(tab.said("ask me something")).to_have_count(1)
        expect(tab.question).to_contain_text("What would you like to do next?")
    other.question.get_by_label("Nothing for now").check()
    other.question.get_by_role("button", name="Confirm").click()
    for tab in (person, other):
        tab.hears("You chose Nothing for now")
        expect(tab.page.get_by_test_id("answer")).to_have_text("Nothing for now")
    expect(other.composer).to_have_value("my draft")

    person.say("task: write report")
    for tab in (person, other):
        tab.sees_app("task-dashboard")
    other.page.get_by_test_id("return-to-interact").click()
    for tab in (person, other):
        tab.is_back_in_interact()


def test_two_tabs_draw_on_one_board(person: Person, lineup: LineUp) -> None:
    person.say("whiteboard")
    person.sees_app("whiteboard")
    other = second_tab(person, lineup)
    boards = [tab.surface() for tab in (person, other)]
    surface_id = person.surface_id
    for n in range(3):  # by turns, without waiting for each other
        person.draw((0.2, 0.2 + n / 10), (0.4, 0.25 + n / 10))
        other.draw((0.6, 0.2 + n / 10), (0.8, 0.25 + n / 10))
    person.wait(lambda: len(lineup.surface_state(surface_id)["elements"]) == 6, "all six strokes are saved")
    for tab, board in zip((person, other), boards, strict=True):
        tab.wait(lambda board=board: board.evaluate("Object.keys(lineup.state.elements).length") == 6, "it shows all")
        tab.shot("drawn")
    boards[1].get_by_role("button", name="Undo").click()
    person.wait(lambda: len(lineup.surface_state(surface_id)["elements"]) == 5, "its own last stroke is taken back")
    boards[0].get_by_role("button", name="Submit").click()
    for tab in (person, other):
        tab.is_back_in_interact()
        tab.hears("Thank you for the drawing")


class Sleep:
    """A closed lid: the processes that run pages stand still, and time goes on without them.

    The debugger's own freeze (``Page.setWebLifecycleState``) leaves a visible page running, so it proves nothing here.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        browser = page.context.browser
        assert browser is not None
        devtools = browser.new_browser_cdp_session()
        processes = devtools.send("SystemInfo.getProcessInfo")["processInfo"]
        self._renderers = [row["id"] for row in processes if row["type"] == "renderer"]
        page.evaluate(
            """() => {
                let last = Date.now();
                window.longestGap = 0;
                setInterval(() => {
                    window.longestGap = Math.max(window.longestGap, Date.now() - last);
                    last = Date.now();
                }, 100);
            }"""
        )

    def __enter__(self) -> None:
        self._begun = time.monotonic()
        self._send(signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        self._send(signal.SIGCONT)
        slept_ms = 1000 * (time.monotonic() - self._begun)
        self._page.wait_for_timeout(300)  # the page's own clock ticks again
        assert self._page.evaluate("window.longestGap") > 0.9 * slept_ms, "the page did not sleep"

    def _send(self, signal_number: int) -> None:
        for pid in self._renderers:
            os.kill(pid, signal_number)


def operation(lineup: LineUp, person: Person) -> dict[str, Any]:
    rows = lineup.query("snapshot")["operations"]
    found: dict[str, Any] = [row for row in rows if row["conversation_id"] == person.conversation_id][-1]
    return found


def test_a_page_that_slept_over_the_end_of_a_focus(person: Person, lineup: LineUp) -> None:
    person.say("focus for 4 seconds on reading")
    person.sees_app("pomodoro")
    conversation = person.conversation_id
    with Sleep(person.page):
        wait_without_the_page(lambda: not is_focusing(lineup, conversation))
    person.is_back_in_interact()
    person.hears("You focused for 4 seconds on reading")
    expect(person.page.get_by_test_id("session")).to_contain_text("completed")
    assert not re.search(r"\d:\d\d", person.page.title()), "the tab's title still counts"


def test_a_page_that_slept_during_a_focus(person: Person, lineup: LineUp) -> None:
    person.say("focus for 10 minutes on reading")
    person.sees_app("pomodoro")
    clock = person.surface().locator("#clock")
    ends_at = datetime.fromisoformat(operation(lineup, person)["ends_at"]).timestamp()
    begun = time.monotonic()
    with Sleep(person.page):
        wait_without_the_page(lambda: time.monotonic() - begun > SLEEP_S)
    person.wait(lambda: abs(seconds(clock.inner_text()) - (ends_at - time.time())) < CLOCK_OFF_S_MAX, "it is right")
    person.shot("awake")
    person.page.get_by_test_id("return-to-interact").click()
    person.page.get_by_role("button", name="Leave and end it").click()
    person.is_back_in_interact()


def seconds(clock: str) -> int:
    minutes, _, rest = clock.partition(":")
    return 60 * int(minutes) + int(rest)


def is_focusing(lineup: LineUp, conversation_id: str) -> bool:
    rows = lineup.query("snapshot")["operations"]
    return any(row["conversation_id"] == conversation_id and row["state"] == "focusing" for row in rows)


def wait_without_the_page(what: Callable[[], object]) -> None:
    until_now(what, 20.0, "it came true while the page slept")
