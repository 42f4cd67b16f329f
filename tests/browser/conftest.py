"""One real Chromium for all tests; a person per test, at a page without a single error.

A LineUp is shared by all modules but those that kill it or want it empty; these make ``lineup`` anew for themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = str(Path(__file__).resolve().parent.parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)

from playwright.sync_api import Browser, BrowserContext  # noqa: E402 - after the path is known

from browser.support.chromium import chromium as launched  # noqa: E402
from browser.support.person import SHOTS, Person  # noqa: E402
from browser.support.running import LineUp, lineup_up  # noqa: E402
from browser.support.watch import Watch  # noqa: E402

ACTION_MS = 10_000

MakePerson = Callable[..., Person]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser's tests come last: Playwright's loop goes on in this thread until the end of the session, and beside
    it no other test can have a loop of its own.
    """
    here = Path(__file__).parent
    items.sort(key=lambda item: here in item.path.parents)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def lineup() -> Iterator[LineUp]:
    with lineup_up() as running:
        yield running


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def browser_context(chromium: Browser, watch: Watch) -> Iterator[Callable[..., BrowserContext]]:
    """Makes contexts (each is a browser of its own: no storage in common) that are watched and closed."""
    made: list[BrowserContext] = []

    def make(**settings: Any) -> BrowserContext:
        context = chromium.new_context(**{"locale": "en", "viewport": {"width": 1280, "height": 800}, **settings})
        context.set_default_timeout(ACTION_MS)
        watch.follow(context)
        made.append(context)
        return context

    yield make
    for context in made:
        context.close()
    assert not watch.unexpected(), "errors in the browser:\n" + "\n".join(watch.unexpected())


@pytest.fixture
def make_person(
    browser_context: Callable[..., BrowserContext], lineup: LineUp, request: pytest.FixtureRequest
) -> Iterator[MakePerson]:
    """Makes people with a browser of their own, in the workspace and in a new conversation."""
    made: list[Person] = []
    name = request.node.name.removeprefix("test_").translate(str.maketrans("[]/ ", "----")).strip("-")

    def make(*, converse: bool = True, **settings: Any) -> Person:
        context = browser_context(**settings)
        person = Person(context.new_page(), name if not made else f"{name}-{len(made) + 1}")
        made.append(person)
        person.enter(lineup.link())
        if converse:
            person.new_conversation()
        return person

    yield make
    failed = getattr(request.node, "failed", False)
    for person in made if failed else ():
        person.page.screenshot(path=SHOTS / f"FAILED-{person.name}.png")


@pytest.fixture
def person(make_person: MakePerson) -> Person:
    return make_person()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed:
        item.failed = True  # type: ignore[attr-defined, union-attr]
    return report  # type: ignore[return-value]
