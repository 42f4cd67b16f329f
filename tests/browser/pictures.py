"""The pictures of the README: not a test of the suite (its name says so), but made with the same means.

Run by ``./scripts/screenshots``; each picture must stay small enough for a page that loads at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

from playwright.sync_api import expect

from browser.support.axe import settle
from browser.support.person import Person

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
BYTES_MAX = 200 * 1024
SIZE = {"width": 1120, "height": 790}

MakePerson = Callable[..., Person]


def keep(person: Person, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    person.page.mouse.move(SIZE["width"] - 2, SIZE["height"] - 2)
    person.page.evaluate("document.activeElement?.blur()")
    settle(person.page)
    picture = person.page.screenshot(path=IMAGES / f"{name}.png")
    assert len(picture) <= BYTES_MAX, f"{name}.png has {len(picture)} bytes"


def test_interact(make_person: MakePerson) -> None:
    person = make_person(viewport=SIZE)
    person.say("hello")
    person.hears("demo agent")
    person.say("form")
    person.question.get_by_label("Your name").fill("Ada")
    person.question.get_by_label("Cups of tea").fill("3")
    person.question.get_by_role("button", name="Submit").click()
    person.hears("Nice to meet you")
    person.say("ask me something")
    person.question.get_by_label("See a task").check()
    keep(person, "interact")


def test_task_dashboard(make_person: MakePerson) -> None:
    person = make_person(viewport=SIZE)
    person.say("task: write report")
    person.sees_app("task-dashboard")
    expect(person.page.get_by_test_id("task")).to_contain_text("step 3 of 8", timeout=20_000)
    person.page.get_by_role("button", name="History").click()
    keep(person, "task-dashboard")


def test_whiteboard(make_person: MakePerson) -> None:
    person = make_person(viewport=SIZE, color_scheme="dark")
    person.say("whiteboard")
    person.sees_app("whiteboard")
    board = person.surface()
    for colour, tool, path in drawing():
        board.get_by_role("toolbar").get_by_role("button", name=tool).click()  # first, or the last shape is recoloured
        board.get_by_role("button", name="Colour and thickness").click()
        board.get_by_role("radio", name=colour).click()
        board.locator("#glass").press("Escape")
        person.draw(*path)
    keep(person, "whiteboard")


def drawing() -> Iterable[tuple[str, str, list[tuple[float, float]]]]:
    """Three boxes with arrows between them, and a line by hand beneath."""
    for n, colour in enumerate(("Blue", "Green", "Violet")):
        left = 0.12 + 0.28 * n
        yield colour, "Rectangle", [(left, 0.3), (left + 0.18, 0.5)]
        if n:
            yield "Ink", "Arrow", [(left - 0.09, 0.4), (left - 0.01, 0.4)]
    steps = [n / 30 for n in range(31)]
    yield "Orange", "Pen", [(0.12 + 0.74 * t, 0.66 + 0.05 * math.sin(14 * t)) for t in steps]
