"""What is held against every page of every test: not one error in its console, not one exception that nobody caught."""

from __future__ import annotations

import re
from collections.abc import Sequence

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, WebError


class Watch:
    """Hears all pages of the contexts that it follows."""

    def __init__(self) -> None:
        self._expected: list[re.Pattern[str]] = []
        self.errors: list[str] = []

    def follow(self, context: BrowserContext) -> None:
        context.on("console", self._console)
        context.on("weberror", self._web_error)
        context.on("page", lambda page: page.on("crash", self._crash))

    def expect(self, *patterns: str) -> None:
        """What the test itself brings about, a refused connection to a killed server, say."""
        self._expected += [re.compile(pattern) for pattern in patterns]

    def unexpected(self) -> Sequence[str]:
        return [text for text in self.errors if not any(known.search(text) for known in self._expected)]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _web_error(self, error: WebError) -> None:
        self.errors.append(f"exception: {error.error}")

    def _crash(self, page: Page) -> None:
        self.errors.append(f"crash of {page.url}")
