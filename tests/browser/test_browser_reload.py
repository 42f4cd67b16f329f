"""A reload at every step of saying something and of answering: what was typed stays, nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import WebSocketRoute, expect

from browser.support.axe import assert_usable
from browser.support.person import Person
from browser.support.running import LineUp


class HeldAnswers:
    """Between the page and the server: lets everything through, or holds the answers back, or the questions."""

    def __init__(self, page) -> None:
        self.hold_questions = self.hold_answers = self.hold_changes = self.refuse_texts = False
        page.route_web_socket("**/workspace", self._connected)

    def _connected(self, route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def ask(message: str | bytes) -> None:
            frame = json.loads(message)
            if self.refuse_texts and frame.get("name") == "person.text":
                refusal = {"t": "result", "re": frame["id"], "accepted": False, "code": "rate_limited"}
                route.send(json.dumps(refusal))
            elif not self.hold_questions:
                server.send(message)

        def answer(message: str | bytes) -> None:
            is_held = self.hold_answers or (self.hold_changes and json.loads(message)["t"] == "delta")
            if not is_held:
                route.send(message)

        route.on_message(ask)
        server.on_message(answer)

    def let_go(self) -> None:
        self.hold_questions = self.hold_answers = self.hold_changes = self.refuse_texts = False


@pytest.fixture
def held(make_person: Callable[..., Person]) -> tuple[Person, HeldAnswers]:
    person = make_person()
    held = HeldAnswers(person.page)
    person.page.reload()
    expect(person.page.get_by_test_id("agent-presence")).to_contain_text("connected")
    return person, held


def texts(lineup: LineUp, person: Person) -> list[str]:
    """What the person has said, as the Runtime has it."""
    page = lineup.query("timeline", conversation_id=person.conversation_id, limit=100)
    return [row["text"] for row in page["entries"] if row["kind"] == "text" and row["author"] == "person"]


def test_a_draft_is_kept(person: Person, lineup: LineUp) -> None:
    person.composer.fill("help me with")
    person.page.reload()
    expect(person.composer).to_have_value("help me with")
    assert texts(lineup, person) == []
    person.composer.press("Enter")
    expect(person.said("help me with")).to_have_count(1)
    person.page.reload()
    expect(person.composer).to_have_value("")
    expect(person.said("help me with")).to_have_count(1)
    assert texts(lineup, person) == ["help me with"]


def test_a_message_that_has_not_left_is_sent_after_the_reload(held: tuple[Person, HeldAnswers], lineup: LineUp) -> None:
    person, line = held
    line.hold_questions = True
    person.say("hello")
    expect(person.page.get_by_test_id("echo")).to_have_attribute("data-state", "sending")
    person.shot("sending")
    assert texts(lineup, person) == []
    line.let_go()
    person.page.reload()
    person.hears("demo agent")
    expect(person.said("hello")).to_have_count(1)
    assert texts(lineup, person) == ["hello"]


def test_a_message_whose_receipt_was_lost_is_not_said_twice(held: tuple[Person, HeldAnswers], lineup: LineUp) -> None:
    person, line = held
    line.hold_answers = True
    person.say("hello")
    person.wait(lambda: texts(lineup, person) == ["hello"], "the Runtime has the message")
    expect(person.page.get_by_test_id("echo")).to_have_attribute("data-state", "sending")
    line.let_go()
    person.page.reload()
    person.hears("demo agent")
    expect(person.said("hello")).to_have_count(1)
    expect(person.page.get_by_test_id("echo")).to_have_count(0)
    assert texts(lineup, person) == ["hello"]


def test_a_message_that_is_durable_and_not_yet_in_the_history(held: tuple[Person, HeldAnswers], lineup: LineUp) -> None:
    person, line = held
    line.hold_changes = True
    person.say("hello")
    expect(person.page.get_by_test_id("echo")).to_have_attribute("data-state", "sent")
    person.shot("sent")
    assert texts(lineup, person) == ["hello"]
    line.let_go()
    person.page.reload()
    person.hears("demo agent")
    expect(person.said("hello")).to_have_count(1)
    expect(person.page.get_by_test_id("echo")).to_have_count(0)
    assert texts(lineup, person) == ["hello"]


def test_a_message_that_was_refused_stays_until_the_person_decides(
    held: tuple[Person, HeldAnswers], lineup: LineUp
) -> None:
    person, line = held
    line.refuse_texts = True
    person.say("hello")
    echo = person.page.get_by_test_id("echo")
    expect(echo).to_have_attribute("data-state", "failed")
    person.page.reload()
    expect(echo).to_have_attribute("data-state", "failed")
    expect(echo).to_contain_text("Not sent: Too much at once")
    person.shot("failed")
    assert_usable(person.page, "a message that was not sent")
    assert texts(lineup, person) == []
    line.let_go()
    echo.get_by_role("button", name="Send again").click()
    person.hears("demo agent")
    expect(echo).to_have_count(0)
    person.page.reload()
    expect(person.said("hello")).to_have_count(1)
    assert texts(lineup, person) == ["hello"]


def test_the_draft_of_an_answer_is_kept(person: Person) -> None:
    person.say("form")
    expect(person.question).to_contain_text("Your name")
    person.question.get_by_label("Your name").fill("Ada")
    person.question.get_by_label("Cups of tea").fill("3")
    person.page.reload()
    expect(person.question.get_by_label("Your name")).to_have_value("Ada")
    expect(person.question.get_by_label("Cups of tea")).to_have_value("3")
    person.shot("draft")
    person.question.get_by_role("button", name="Submit").click()
    person.hears("Nice to meet you, Ada. 3 cups")
    person.page.reload()
    expect(person.page.get_by_test_id("answer")).to_contain_text("Ada")
    expect(person.page.get_by_text("Nice to meet you")).to_have_count(1)


@pytest.mark.parametrize("lost", ["hold_questions", "hold_answers"])
def test_an_answer_on_its_way_arrives_once(lost: str, held: tuple[Person, HeldAnswers]) -> None:
    person, line = held
    person.say("form")
    person.question.get_by_label("Your name").fill("Grace")
    setattr(line, lost, True)
    person.question.get_by_role("button", name="Submit").click()
    expect(person.question.get_by_role("button", name="Submit")).to_be_disabled()
    person.shot(lost)
    line.let_go()
    person.page.reload()
    person.hears("Nice to meet you, Grace")
    expect(person.page.get_by_test_id("answer")).to_contain_text("Grace")
    person.page.reload()
    expect(person.page.get_by_text("Nice to meet you")).to_have_count(1)


def test_a_choice_and_its_draft(person: Person) -> None:
    person.say("ask me something")
    person.question.get_by_label("Nothing for now").check()
    person.page.reload()
    expect(person.question.get_by_label("Nothing for now")).to_be_checked()
    person.question.get_by_role("button", name="Confirm").click()
    person.hears("You chose Nothing for now")
