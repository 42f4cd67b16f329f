"""Chinese and English, light and dark, from a phone to a wall: every page fits its window. The pictures are kept.

``LINEUP_LOOKS=all`` (``./scripts/screenshots --all``) looks at all twelve combinations instead of four that have each
language, each theme and each size, and keeps the pictures in a folder of their own.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from playwright.sync_api import expect

from browser.support.person import SHOTS, Person

LOOKS_ALL = os.environ.get("LINEUP_LOOKS") == "all"
PHONE, LAPTOP, WALL = (375, 720), (1280, 800), (3840, 2160)
SOME = [
    ("en", "light", PHONE),
    ("zh-CN", "dark", PHONE),
    ("zh-CN", "light", LAPTOP),
    ("en", "dark", WALL),
]
ALL = list(itertools.product(("en", "zh-CN"), ("light", "dark"), (PHONE, LAPTOP, WALL)))

Look = Callable[[str], None]


@dataclass(frozen=True)
class Speech:
    help: str
    choice: str
    form: str
    task: str
    board: str
    focus: str
    leave: str
    pages: tuple[str, str]
    notifications: str
    settings: str


SPEECH = {
    "en": Speech(
        "help", "ask me something", "form", "task: write report", "whiteboard", "focus for 10 minutes on reading",
        "Leave and end it", ("Permissions", "Inspector"), "Notifications", "Settings",
    ),
    "zh-CN": Speech(
        "帮助", "问我", "表单", "任务：写报告", "白板", "专注 10 分钟 看书",
        "离开并结束", ("权限", "检查器"), "通知", "设置",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("locale", "scheme", "size"), ALL if LOOKS_ALL else SOME)
def test_every_page_fits_its_window(locale: str, scheme: str, size: tuple[int, int], make_person) -> None:
    speech = SPEECH[locale]
    viewport = {"width": size[0], "height": size[1]}
    person: Person = make_person(locale=locale, color_scheme=scheme, viewport=viewport)
    person.name = f"looks-{locale}-{scheme}-{size[0]}"
    if LOOKS_ALL:
        person.shots = SHOTS.with_name("looks")

    def look(what: str) -> None:
        person.assert_fits()
        if size != WALL or LOOKS_ALL:  # each of a wall's takes a second
            person.shot(what)

    assert person.page.locator("html").get_attribute("lang") == locale
    look("01-new")
    conversation(person, speech, look)
    miniapps(person, speech, look)
    pages(person, speech, look)


def conversation(person: Person, speech: Speech, look: Look) -> None:
    person.say(speech.help)
    expect(person.page.get_by_role("table")).to_be_visible()
    look("02-help")
    for text in (speech.choice, speech.form):
        person.say(text)
        expect(person.question).to_be_visible()
        expect(person.said(text)).to_have_count(1)
    expect(person.page.get_by_test_id("interaction")).to_have_count(2)
    look("03-questions")


def miniapps(person: Person, speech: Speech, look: Look) -> None:
    person.say(speech.board)
    person.sees_app("whiteboard")
    person.draw((0.3, 0.35), (0.6, 0.5))
    look("04-whiteboard")
    back(person)
    person.say(speech.task)
    person.sees_app("task-dashboard")
    expect(person.page.get_by_test_id("task")).to_be_visible()
    look("05-tasks")
    back(person)
    person.say(speech.focus)
    person.sees_app("pomodoro")
    expect(person.surface().locator("#clock")).not_to_be_empty()
    look("06-pomodoro")
    person.page.get_by_test_id("return-to-interact").click()
    leave = person.page.get_by_role("dialog").get_by_role("button", name=speech.leave)
    expect(leave).to_be_visible()
    look("07-leave")
    leave.click()
    person.is_back_in_interact()
    expect(person.page.get_by_test_id("session")).not_to_have_count(0)
    look("08-interact")


def back(person: Person) -> None:
    person.page.get_by_test_id("return-to-interact").click()
    person.is_back_in_interact()


def pages(person: Person, speech: Speech, look: Look) -> None:
    page = person.page
    page.get_by_test_id("app-switcher").click()
    expect(page.get_by_role("menu")).to_be_visible()
    look("09-apps")
    page.keyboard.press("Escape")
    page.get_by_role("button", name=re.compile(f"^{speech.notifications}")).click()
    look("10-notifications")
    page.keyboard.press("Escape")
    for number, name in enumerate(speech.pages, 11):
        person.open_sidebar()
        if person.is_narrow:  # elsewhere it is in every picture
            look(f"{number}-sidebar")
        page.get_by_role("link", name=name).click()
        if person.is_narrow:  # it goes away, but not at once
            expect(page.get_by_test_id("sidebar")).to_be_hidden()
        expect(page.get_by_role("heading", name=name)).to_be_visible()
        look(f"{number}-{name}")
    page.get_by_role("table").get_by_role("link").first.click()
    expect(page.get_by_test_id("story").get_by_role("listitem").first).to_be_visible()
    look("13-story")
    person.open_sidebar()
    page.get_by_role("button", name=speech.settings).click()
    expect(page.get_by_role("dialog", name=speech.settings)).to_be_visible()
    look("14-settings")
