"""A person at one page of the workspace: what they do, and what they see. Everything by role, label or test id."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from playwright.sync_api import Frame, Locator, Page, expect

from browser.support.axe import settle

SHOTS = Path(__file__).resolve().parents[3] / "test-results" / "browser"
ANSWER_MS = 15_000
POLL_MS = 50
NARROW_PX = 900  # the workspace's own bound


class Person:
    """See the module. ``name`` begins the names of the pictures."""

    def __init__(self, page: Page, name: str) -> None:
        self.page = page
        self.name = name
        self.shots = SHOTS

    # -- the workspace

    def enter(self, link: str) -> Self:
        self.page.goto(link)
        expect(self.page.get_by_test_id("locked")).to_have_count(0)
        self.open_sidebar()
        expect(self.new_conversation_button).to_be_enabled(timeout=ANSWER_MS)
        return self

    @property
    def is_narrow(self) -> bool:
        size = self.page.viewport_size
        return size is not None and size["width"] <= NARROW_PX

    def open_sidebar(self) -> None:
        """On a small screen it is behind a button."""
        sidebar = self.page.get_by_test_id("sidebar")
        if self.is_narrow and not sidebar.is_visible():
            self.page.get_by_role("button", name=re.compile("^(Show conversations|显示会话列表)$")).click()
        expect(sidebar).to_be_visible(timeout=ANSWER_MS)

    @property
    def new_conversation_button(self) -> Locator:
        return self.page.get_by_test_id("sidebar").get_by_test_id("new-conversation")

    def new_conversation(self) -> str:
        """Open one and return its id."""
        self.open_sidebar()
        known = self.known_conversations()
        self.new_conversation_button.click()
        self.page.wait_for_url(lambda url: "#/c/" in url and url.partition("#/c/")[2] not in known)
        expect(self.composer).to_be_visible()
        return self.conversation_id

    def known_conversations(self) -> set[str]:
        links = self.page.locator("[data-conversation]")
        return set(links.evaluate_all("all => all.map((link) => link.dataset.conversation)"))

    @property
    def conversation_id(self) -> str:
        return self.page.url.partition("#/c/")[2]

    # -- talking

    @property
    def composer(self) -> Locator:
        return self.page.locator("#composer")

    @property
    def interact(self) -> Locator:
        return self.page.get_by_test_id("interact")

    def say(self, text: str) -> None:
        self.composer.fill(text)
        self.composer.press("Enter")

    def hears(self, text: str | re.Pattern[str]) -> Locator:
        """A text of the agent, once it has come."""
        found = self.page.get_by_role("article", name=re.compile("^(Agent|智能体)$")).filter(has_text=text).last
        expect(found).to_be_visible(timeout=ANSWER_MS)
        return found

    def said(self, text: str) -> Locator:
        """Every message of the person with this text, echoes as well."""
        return self.page.get_by_role("article", name=re.compile("^(You|你)$")).filter(has_text=text)

    @property
    def question(self) -> Locator:
        """The newest question that waits for an answer."""
        waiting = "[data-status=pending], [data-status=presented]"
        return self.page.get_by_test_id("interaction").and_(self.page.locator(waiting)).last

    # -- the MiniApp in front

    @property
    def stage(self) -> Locator:
        return self.page.get_by_test_id("stage")

    def sees_app(self, app_scope: str) -> None:
        expect(self.stage).to_have_attribute("data-app", app_scope, timeout=ANSWER_MS)

    def is_back_in_interact(self) -> None:
        expect(self.stage).to_have_count(0, timeout=ANSWER_MS)
        expect(self.composer).to_be_visible()

    def is_back_in_interact_when(self, said: str) -> None:
        """After the agent's last word about it."""
        expect(self.stage).to_have_count(0, timeout=2 * ANSWER_MS)
        self.hears(said)

    def surface(self) -> Frame:
        """The document of the surface in front, once it is ready."""
        expect(self.page.locator("[data-phase=ready]")).to_be_visible(timeout=ANSWER_MS)
        handle = self.page.get_by_test_id("surface").element_handle()
        frame = handle.content_frame() if handle else None
        assert frame is not None
        return frame

    def draw(self, *path: tuple[float, float], steps: int = 8) -> None:
        """One stroke of the pointer over the surface; the points are fractions of its width and height."""
        self.page.bring_to_front()  # nobody draws in a tab that lies behind another
        board = self.surface()
        box = self.page.get_by_test_id("surface").bounding_box()
        assert box is not None
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in path]
        self._point_at(*points[0], board)
        self.page.mouse.down()
        for point in points[1:]:
            self.page.mouse.move(*point, steps=steps)
        self.page.mouse.up()

    def _point_at(self, x: float, y: float, board: Frame) -> None:
        """Bring the pointer there, and see that it is over the surface before it presses.

        A document gets the pointer only once the browser has painted it, which is later than it says that it is ready,
        and a second later in a tab that was behind another; until then a press goes to the workspace around it.
        """

        def is_over() -> bool:
            self.page.mouse.move(x - 1, y)
            self.page.mouse.move(x, y)
            return bool(board.evaluate("document.querySelector(':hover') !== null"))

        self.wait(is_over, "the pointer is over the surface")

    @property
    def surface_id(self) -> str:
        return self.page.get_by_test_id("surface").get_attribute("data-surface") or ""

    # -- waiting for what no locator sees

    def remember(self, test_id: str) -> Callable[[], list[str]]:
        """From now on keep every text that the element has, however short; the texts up to the call."""
        name = f"remembered:{test_id}"
        self.page.evaluate(
            """([testId, name]) => {
                const texts = (window[name] = []);
                const look = () => {
                    const text = document.querySelector(`[data-testid="${testId}"]`)?.textContent;
                    if (text !== undefined && text !== texts.at(-1)) texts.push(text);
                };
                look();
                const what = { childList: true, subtree: true, characterData: true };
                new MutationObserver(look).observe(document.body, what);
            }""",
            [test_id, name],
        )
        return lambda: list(self.page.evaluate("(name) => window[name]", name))

    def wait(self, what: Callable[[], object], words: str, within_s: float = 15.0) -> None:
        """Like ``expect``, for any condition; the page goes on meanwhile."""
        give_up_at = time.monotonic() + within_s
        while not what():
            assert time.monotonic() < give_up_at, f"not within {within_s:g} s: {words}"
            self.page.wait_for_timeout(POLL_MS)

    # -- pictures

    def shot(self, what: str) -> None:
        self.shots.mkdir(parents=True, exist_ok=True)
        settle(self.page)
        self.page.screenshot(path=self.shots / f"{self.name}-{what}.png")

    def assert_fits(self) -> None:
        """Nothing of the page lies outside of the window's width."""
        width, wide = self.page.evaluate("() => [innerWidth, document.scrollingElement.scrollWidth]")
        assert wide <= width, f"{self.page.url} is {wide} px wide in a window of {width} px"
