"""kill -9 of every process while the page is open: it recovers by itself, soon, and nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from browser.support.person import Person
from browser.support.running import LineUp, lineup_up

RECOVERS_S = 3.0  # from the kill (of the Runtime: from its being up again) to a page that works
TRIES = 3  # on a busy machine one of several must be as fast as that; each must come back at all
RECOVERS_AT_ALL_MS = 20_000
LOST_CONNECTION = (r"WebSocket connection to .* failed", r"net::ERR_CONNECTION_REFUSED", r"status of 503")


@pytest.fixture(scope="module")
def lineup() -> Iterator[LineUp]:
    """Its own: it is killed again and again."""
    with lineup_up() as running:
        yield running


@pytest.fixture
def person(make_person: Callable[..., Person], watch) -> Person:
    watch.expect(*LOST_CONNECTION)
    return make_person()


def texts(lineup: LineUp, person: Person) -> list[str]:
    page = lineup.query("timeline", conversation_id=person.conversation_id, limit=100)
    return [row["text"] for row in page["entries"] if row["kind"] == "text" and row["author"] == "person"]


def says_durably(person: Person, text: str) -> float:
    """Say something now, whatever is down; the seconds until the Runtime has it."""
    begun = time.monotonic()
    person.say(text)
    expect(person.said(text)).to_have_count(1)
    expect(person.page.get_by_test_id("echo")).to_have_count(0, timeout=RECOVERS_AT_ALL_MS)
    return time.monotonic() - begun


def test_hostshell_dies(person: Person, lineup: LineUp) -> None:
    took = []
    for n in range(TRIES):
        lineup.kill_service("hostshell")
        took.append(says_durably(person, f"hello {n}"))
        expect(person.said(f"hello {n}")).to_have_count(1)
        if took[-1] <= RECOVERS_S:
            break
    assert min(took) <= RECOVERS_S, took
    person.hears("demo agent")
    assert texts(lineup, person) == [f"hello {n}" for n in range(len(took))]


def test_a_lost_connection_is_said_and_nothing_is_claimed(person: Person, lineup: LineUp) -> None:
    """What was green a moment ago is not known now: the head says so until the page is connected again."""
    presence = person.remember("agent-presence")
    banner = person.remember("connection")
    assert presence() == ["demo is connected"]
    lineup.kill_supervisor()
    expect(person.page.get_by_test_id("agent-presence")).to_have_text("demo: not known while this page is offline")
    expect(person.page.get_by_test_id("connection")).not_to_be_empty(timeout=RECOVERS_AT_ALL_MS)
    person.shot("offline")
    lineup.up()
    expect(person.page.get_by_test_id("agent-presence")).to_have_text("demo is connected", timeout=RECOVERS_AT_ALL_MS)
    person.wait(lambda: "Connected again" in banner(), "the banner tells of the return")
    expect(person.page.get_by_test_id("connection")).to_be_empty()


def test_hostshell_dies_under_a_drawing(person: Person, lineup: LineUp) -> None:
    person.say("whiteboard")
    person.sees_app("whiteboard")
    board = person.surface()
    surface_id = person.surface_id
    lineup.kill_service("hostshell")
    person.draw((0.2, 0.3), (0.5, 0.5))
    person.draw((0.3, 0.7), (0.7, 0.6))
    person.wait(lambda: len(lineup.surface_state(surface_id)["elements"]) == 2, "both strokes are saved")
    board.get_by_role("button", name="Submit").click()
    person.hears("Thank you for the drawing")


def test_a_worker_dies_under_a_drawing(person: Person, lineup: LineUp) -> None:
    person.say("whiteboard")
    person.sees_app("whiteboard")
    board = person.surface()
    surface_id, conversation_id = person.surface_id, person.conversation_id
    person.draw((0.2, 0.3), (0.5, 0.5))
    killed = lineup.kill_worker("whiteboard", conversation_id)
    begun = time.monotonic()
    person.draw((0.3, 0.7), (0.7, 0.6))
    person.wait(lambda: lineup.worker("whiteboard", conversation_id) not in (None, killed), "there is another worker")
    person.wait(lambda: len(lineup.surface_state(surface_id)["elements"]) == 2, "both strokes are saved")
    assert time.monotonic() - begun < RECOVERS_AT_ALL_MS / 1000
    person.shot("recovered")
    board.get_by_role("button", name="Submit").click()
    person.hears("Thank you for the drawing")


def test_a_worker_dies_and_its_return_is_shown(person: Person, lineup: LineUp) -> None:
    took = []
    for n in range(TRIES):
        if n:
            person.new_conversation()
        person.say("whiteboard")
        person.sees_app("whiteboard")
        board = person.surface()
        states = person.remember("app-state")
        begun = time.monotonic()
        lineup.kill_worker("whiteboard", person.conversation_id)
        person.wait(lambda states=states: states() == ["in front", "restarting", "in front"], "it went and came back")
        took.append(time.monotonic() - begun)
        assert board == person.surface(), "the whiteboard was loaded anew"
        expect(person.page.get_by_role("status").filter(has_text="It broke down")).to_have_count(0)
        if took[-1] <= RECOVERS_S:
            break
    assert min(took) <= RECOVERS_S, took


def test_the_runtime_dies(person: Person, lineup: LineUp) -> None:
    person.say("form")
    person.question.get_by_label("Your name").fill("Ada")
    took = []
    for n in range(TRIES):
        lineup.kill_supervisor()
        person.say(f"hello {n}")
        person.composer.fill("and then")
        expect(person.page.get_by_test_id("echo")).to_have_attribute("data-state", "sending")
        expect(person.page.get_by_test_id("connection")).not_to_be_empty(timeout=RECOVERS_AT_ALL_MS)
        person.shot(f"{n}-down")
        lineup.up()
        begun = time.monotonic()
        expect(person.page.get_by_test_id("echo")).to_have_count(0, timeout=RECOVERS_AT_ALL_MS)
        took.append(time.monotonic() - begun)
        if took[-1] <= RECOVERS_S:
            break
    assert min(took) <= RECOVERS_S, took
    person.hears("demo agent")
    expect(person.composer).to_have_value("and then")
    expect(person.question.get_by_label("Your name")).to_have_value("Ada")
    person.question.get_by_role("button", name="Submit").click()
    person.wait(lambda: texts(lineup, person) == ["form", *(f"hello {n}" for n in range(len(took)))], "each said once")
    expect(person.page.get_by_test_id("answer")).to_contain_text("Ada")
    person.shot("recovered")


def test_the_runtime_dies_under_a_focus(person: Person, lineup: LineUp) -> None:
    """The deadline stays where it was."""
    person.say("focus for 20 minutes on reading")
    person.sees_app("pomodoro")
    expect(person.surface().locator("#activity")).to_have_text("reading")
    before = focusing(lineup)
    assert len(before) == 1
    lineup.kill_supervisor()
    lineup.up()
    person.sees_app("pomodoro")
    expect(person.surface().locator("#activity")).to_have_text("reading")
    assert focusing(lineup) == before
    expect(person.page.get_by_role("timer", name="Time left")).to_contain_text("19:")


def focusing(lineup: LineUp) -> list[tuple[str, str]]:
    rows = lineup.query("snapshot")["operations"]
    return [(row["operation_id"], row["ends_at"]) for row in rows if row["state"] == "focusing"]
