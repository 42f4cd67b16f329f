"""Whole flows with each MiniApp, from what a person says to the result that the agent has of it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from browser.support.person import Person
from browser.support.running import LineUp

ENDS_MS = 30_000


def test_a_task_from_its_start_to_its_result(person: Person) -> None:
    """The Task Dashboard comes to the front, shows how far it is, asks before it closes, and Interact is back."""
    person.say("task: write report")
    person.sees_app("task-dashboard")
    task = person.page.get_by_test_id("task")
    expect(task).to_contain_text("write report")
    expect(task).to_contain_text(re.compile("step [1-8] of 8"), timeout=ENDS_MS)
    expect(task.get_by_role("progressbar")).to_have_attribute("aria-valuenow", re.compile(r"^[1-9]"))
    person.shot("1-progress")

    person.page.get_by_test_id("close-app").click()
    question = person.page.get_by_role("dialog", name="Close with unfinished work?")
    expect(question).to_contain_text("write report")
    person.shot("2-asked")
    question.get_by_role("button", name="Keep open").click()
    expect(question).to_have_count(0)
    person.sees_app("task-dashboard")

    person.page.get_by_role("button", name="Close the dashboard").click()
    question.get_by_role("button", name="Close", exact=True).click()
    person.is_back_in_interact()
    person.hears("write report has ended as cancelled")
    session = person.page.get_by_test_id("session")
    expect(session).to_contain_text("Ended")
    person.shot("3-result")


def test_a_task_that_the_agent_completes(person: Person) -> None:
    person.say("task: sort the mail")
    person.sees_app("task-dashboard")
    person.is_back_in_interact_when("sort the mail is done")
    person.shot("done")


def test_a_drawing_from_the_first_stroke_to_the_artifact(person: Person, lineup: LineUp) -> None:
    person.say("whiteboard")
    person.sees_app("whiteboard")
    board = person.surface()
    person.draw((0.3, 0.4), (0.5, 0.3), (0.6, 0.6))
    surface_id = person.surface_id
    person.wait(lambda: lineup.surface_state(surface_id)["elements"], "the stroke is saved")
    undo = board.get_by_role("button", name="Undo")
    expect(undo).to_be_enabled()
    undo.click()
    person.wait(lambda: not lineup.surface_state(surface_id)["elements"], "the stroke is taken back")
    board.get_by_role("button", name="Redo").click()
    person.wait(lambda: lineup.surface_state(surface_id)["elements"], "the stroke is there again")
    person.shot("1-drawn")
    board.get_by_role("button", name="Submit").click()
    person.is_back_in_interact()
    person.hears("Thank you for the drawing")

    session = person.page.get_by_test_id("session")
    session.get_by_role("button", name="Show history").click()
    expect(session.get_by_role("img", name="Whiteboard")).to_have_count(2)
    person.shot("2-artifact")
    made = {row["media_type"] for row in artifacts(lineup, person)}
    assert made == {"image/png", "image/svg+xml"}


def test_a_stroke_is_kept_although_the_person_leaves_at_once(person: Person, lineup: LineUp) -> None:
    """What the page has not saved yet it says on its way out."""
    person.say("whiteboard")
    person.sees_app("whiteboard")
    person.surface()
    surface_id = person.surface_id
    for n in range(1, 4):
        person.draw((0.2, n / 5), (0.4, n / 5), steps=3)
        person.page.get_by_test_id("return-to-interact").click()
        person.is_back_in_interact()
        person.wait(lambda n=n: len(lineup.surface_state(surface_id)["elements"]) == n, f"stroke {n} is saved")
        person.page.get_by_test_id("session").get_by_role("button", name="Show", exact=True).click()
        person.sees_app("whiteboard")


def artifacts(lineup: LineUp, person: Person) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = lineup.query("artifacts", conversation_id=person.conversation_id)["artifacts"]
    return rows


def test_a_focus_from_its_start_to_its_folded_history(person: Person) -> None:
    person.say("focus for 6 seconds on reading")
    person.sees_app("pomodoro")
    timer = person.surface()
    expect(timer.locator("#activity")).to_have_text("reading")
    expect(timer.locator("#clock")).to_have_text(re.compile(r"^0?0:0[1-6]$"))
    expect(timer.get_by_role("button")).to_have_count(0)
    assert re.search(r"\d:\d\d", person.page.title()), "the tab's title does not say the time left"
    person.shot("1-focus")

    person.is_back_in_interact()
    person.hears("You focused for 6 seconds on reading")
    person.question.get_by_role("button", name="No", exact=True).click()
    session = person.page.get_by_test_id("session")
    expect(session).to_contain_text("completed")
    expect(session).to_contain_text("Ended")
    person.shot("2-folded")

    session.get_by_role("button", name="Show history").click()
    expect(session.get_by_role("textbox")).to_have_count(0)
    person.shot("3-unfolded")
    session.get_by_role("button", name="Continue").click()
    person.sees_app("pomodoro")
    person.page.get_by_test_id("return-to-interact").click()
    person.is_back_in_interact()
    expect(person.page.get_by_test_id("session")).to_have_count(2)
    expect(person.page.get_by_test_id("session").last).to_contain_text("Continues an earlier session")
    continued = person.page.get_by_test_id("session").last
    continued.get_by_role("button", name="Show history").click()
    expect(continued).to_contain_text("Nothing was said in this session.")
    person.shot("4-continued")


def test_a_question_over_a_miniapp_is_answered_without_a_change_of_focus(person: Person, lineup: LineUp) -> None:
    person.say("whiteboard")
    person.sees_app("whiteboard")
    surface = person.surface()
    person.draw((0.3, 0.4), (0.6, 0.6))
    person.page.get_by_role("button", name="Conversation", exact=True).click()
    expect(person.page.get_by_test_id("talk")).to_be_visible()
    person.say("confirm")
    expect(person.question).to_contain_text("May I?")
    person.shot("1-beside")
    person.page.get_by_role("button", name="Conversation", exact=True).click()

    over = person.page.get_by_test_id("over-app")
    expect(over).to_contain_text("May I?")
    person.shot("2-over")
    before = focus(lineup, person)
    over.get_by_role("button", name="Yes", exact=True).click()
    expect(over).to_have_count(0)
    person.sees_app("whiteboard")
    assert focus(lineup, person) == before
    assert person.surface() is surface, "the whiteboard was loaded anew"
    person.page.get_by_role("button", name="Conversation", exact=True).click()
    person.hears("Thank you!")


def test_a_waiting_question_covers_no_control_of_the_miniapp(person: Person, lineup: LineUp) -> None:
    """Open or put aside, the board's Submit is in reach; the focus stays where it is."""
    person.say("whiteboard")
    person.sees_app("whiteboard")
    board = person.surface()
    person.draw((0.3, 0.4), (0.5, 0.6))
    submit = board.get_by_role("button", name="Submit")
    talk = person.page.get_by_role("button", name="Conversation", exact=True)
    over, pill = person.page.get_by_test_id("over-app"), person.page.get_by_test_id("waiting-pill")
    talk.click()
    title = person.page.get_by_test_id("talk").get_by_test_id("session").get_by_text("Whiteboard", exact=True)
    lines = "(title) => { const r = new Range(); r.selectNodeContents(title); return r.getClientRects().length }"
    person.page.set_viewport_size({"width": 1024, "height": 800})
    assert title.evaluate(lines) == 1, "the name breaks within a word"
    person.page.set_viewport_size({"width": 1280, "height": 800})
    person.say("confirm")
    expect(person.question).to_contain_text("May I?")
    talk.click()
    before = focus(lineup, person)

    expect(over).to_be_visible()
    submit.click(trial=True)
    over.get_by_role("button", name="Minimise").click()
    expect(over).to_have_count(0)
    expect(pill).to_have_accessible_name("1 question from the agent")
    expect(pill).to_be_focused()
    submit.click(trial=True)
    person.shot("1-aside")
    pill.click()
    expect(over).to_contain_text("May I?")

    person.page.set_viewport_size({"width": 400, "height": 800})
    submit.click(trial=True)
    person.shot("2-narrow")
    pill.click()
    expect(over).to_have_count(0)
    submit.click(trial=True)
    person.assert_fits()
    person.sees_app("whiteboard")
    assert focus(lineup, person) == before


def test_an_ended_session_says_why_it_cannot_be_continued(person: Person, lineup: LineUp) -> None:
    person.say("focus for 1 seconds on reading")
    person.sees_app("pomodoro")
    person.is_back_in_interact()
    session = person.page.get_by_test_id("session")
    expect(session.get_by_role("button", name="Continue")).to_be_visible()
    assert lineup.cli("apps", "disable", "pomodoro").returncode == 0
    try:
        expect(session.get_by_test_id("not-continued")).to_have_text("The MiniApp is switched off.")
        expect(session.get_by_role("button", name="Continue")).to_have_count(0)
        person.shot("switched-off")
    finally:
        assert lineup.cli("apps", "enable", "pomodoro").returncode == 0
    expect(session.get_by_role("button", name="Continue")).to_be_visible()


def focus(lineup: LineUp, person: Person) -> list[str]:
    rows = lineup.query("snapshot")["conversations"]
    found: list[str] = next(row["focus"] for row in rows if row["conversation_id"] == person.conversation_id)
    return found
