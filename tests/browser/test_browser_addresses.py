"""Where an address leads: to a conversation, to the one used last, to an honest word that there is none."""

from __future__ import annotations

from playwright.sync_api import Page, WebSocketRoute, expect

from browser.support.axe import assert_usable
from browser.support.person import Person
from browser.support.running import LineUp

PHONE = {"width": 375, "height": 720}


class SlowLine:
    """Between the page and the server: what the server says waits until it is let go."""

    def __init__(self, page: Page) -> None:
        self._waiting: list[str | bytes] | None = []
        page.route_web_socket("**/workspace", self._connected)

    def _connected(self, route: WebSocketRoute) -> None:
        self._page_side = route
        server = route.connect_to_server()
        server.on_message(self._say)

    def _say(self, message: str | bytes) -> None:
        if self._waiting is None or '"challenge"' in str(message):
            self._page_side.send(message)
        else:
            self._waiting.append(message)

    def let_go(self) -> None:
        waiting, self._waiting = self._waiting, None
        for message in waiting or ():
            self._page_side.send(message)


def test_a_side_bar_opened_while_the_page_loads_stays_open(make_person, lineup: LineUp) -> None:
    """The address of no conversation passes the person on; that is no reason to shut what they have opened."""
    person: Person = make_person(viewport=PHONE)
    line = SlowLine(person.page)
    person.page.goto(f"{lineup.origin}/#/")
    person.page.reload()
    person.open_sidebar()
    expect(person.new_conversation_button).to_be_disabled()
    banner = person.remember("connection")
    expect(person.page.get_by_test_id("connection")).to_have_text("Connecting to the Runtime…")
    button = person.new_conversation_button.element_handle()
    line.let_go()
    person.page.wait_for_url("**/#/c/*")
    expect(person.page.get_by_test_id("connection")).to_be_empty()
    assert "Connected again" not in banner(), "it had not been connected before"
    latest = person.conversation_id
    expect(person.new_conversation_button).to_be_enabled()
    assert button is not None
    assert button.evaluate("(button) => button.isConnected"), "the button was made anew"
    button.click()
    person.page.wait_for_url(lambda url: not url.endswith(latest))
    expect(person.composer).to_be_visible()
    expect(person.page.get_by_test_id("sidebar")).to_have_count(0)


def test_back_does_not_lead_to_a_page_that_only_passes_on(person: Person, lineup: LineUp) -> None:
    page = person.page
    page.get_by_role("link", name="Permissions").click()
    expect(page.get_by_role("heading", name="Permissions")).to_be_visible()
    page.evaluate("location.hash = '#/'")
    page.wait_for_url("**/#/c/*")
    page.go_back()
    expect(page.get_by_role("heading", name="Permissions")).to_be_visible()


def test_an_address_of_no_conversation_says_so(person: Person, lineup: LineUp) -> None:
    known = person.conversation_id
    person.page.goto(f"{lineup.origin}/#/c/c-of-another-machine")
    unknown = person.page.get_by_test_id("unknown-conversation")
    expect(unknown).to_contain_text("There is no such conversation")
    person.shot("unknown")
    assert_usable(person.page, "an unknown conversation")
    person.page.reload()
    expect(unknown).to_be_visible()
    unknown.get_by_role("link").click()
    person.page.wait_for_url(f"**/#/c/{known}")
    expect(person.composer).to_be_visible()


def test_a_conversation_is_called_by_its_first_words(person: Person, lineup: LineUp) -> None:
    heading = person.page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Conversation")
    person.say("hello\nand more")
    expect(heading).to_have_text("hello")
    lineup.open_app("whiteboard.open", "from-the-terminal", board_id="b1", title="Sketch")
    link = person.page.locator("[data-conversation=from-the-terminal]")
    expect(link).to_contain_text("whiteboard", ignore_case=True)
