"""Chinese and English, light and dark, from a phone to a wall: every page fits its window. The pictures are kept."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from playwright.sync_api import expect

from browser.support.person import Person


@dataclass(frozen=True)
class Speech:
    help: str
    task: str
    board: str
    focus: str
    leave: str
    pages: tuple[str, str]
    settings: str
    close: str


SPEECH = {
    "en": Speech(
        "help", "task: write report", "whiteboard", "focus for 10 minutes on reading", "Leave and end it",
        ("Permissions", "Inspector"), "Settings", "Close",
    ),
    "zh-CN": Speech(
        "帮助", "任务：写报告", "白板", "专注 10 分钟 看书", "离开并结束", ("权限", "检查器"), "设置", "关闭",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("locale", "scheme", "size"),
    [
        ("en", "light", (375, 720)),
        ("zh-CN", "dark", (375, 720)),
        ("zh-CN", "light", (1280, 800)),
        ("en", "dark", (3840, 2160)),
    ],
)
def test_every_page_fits_its_window(locale: str, scheme: str, size: tuple[int, int], make_person) -> None:
    speech = SPEECH[locale]
    viewport = {"width": size[0], "height": size[1]}
    person: Person = make_person(locale=locale, color_scheme=scheme, viewport=viewport)
    person.name = f"looks-{locale}-{scheme}-{size[0]}"

    def look(what: str) -> None:
        person.assert_fits()
        person.shot(what)

    assert person.page.locator("html").get_attribute("lang") == locale
    look("1-new")
    person.say(speech.help)
    expect(person.page.get_by_role("table")).to_be_visible()
    person.say(speech.board)
    person.sees_app("whiteboard")
    person.surface()
    person.draw((0.3, 0.35), (0.6, 0.5))
    look("2-whiteboard")
    back(person)
    person.say(speech.task)
    person.sees_app("task-dashboard")
    expect(person.page.get_by_test_id("task")).to_be_visible()
    look("3-tasks")
    back(person)
    person.say(speech.focus)
    person.sees_app("pomodoro")
    expect(person.surface().locator("#clock")).not_to_be_empty()
    look("4-pomodoro")
    person.page.get_by_test_id("return-to-interact").click()
    look("5-leave")
    person.page.get_by_role("button", name=speech.leave).click()
    person.is_back_in_interact()
    expect(person.page.get_by_test_id("session")).not_to_have_count(0)
    look("6-interact")
    pages(person, speech, look)


def back(person: Person) -> None:
    person.page.get_by_test_id("return-to-interact").click()
    person.is_back_in_interact()


def pages(person: Person, speech: Speech, look) -> None:
    for number, name in enumerate(speech.pages, 7):
        person.open_sidebar()
        if person.is_narrow:  # elsewhere it is in every picture
            look(f"{number}-sidebar")
        person.page.get_by_role("link", name=name).click()
        expect(person.page.get_by_role("heading", name=name)).to_be_visible()
        look(f"{number}-{name}")
    person.open_sidebar()
    person.page.get_by_role("button", name=speech.settings).click()
    expect(person.page.get_by_role("dialog", name=speech.settings)).to_be_visible()
    look("9-settings")
