"""A fault of this process while a page's request is in work: the page hears of it, and is served on."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lineup_hostshell.workspace_link import REQUESTS_PER_TAB_MAX


async def test_a_load_that_fails_is_answered_and_takes_nobody_s_place(
    workspace: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*args: Any) -> Any:
        raise KeyError("digest")

    monkeypatch.setattr(workspace.workspace.surfaces, "load", fail)
    page = await workspace.enter()
    with caplog.at_level(logging.ERROR):
        for _ in range(REQUESTS_PER_TAB_MAX + 1):
            assert (await page.ask("surface.load", surface_id="s-1"))["code"] == "internal_error"
    assert "a page's request failed" in caplog.text
    assert (await page.ask("status"))["accepted"]


async def test_an_answer_that_cannot_be_shown_is_a_refusal(workspace: Any) -> None:
    workspace.answers.held.add("artifact")
    page = await workspace.enter()
    await page.say({"t": "query", "id": "q-1", "name": "artifact", "args": {}})
    await workspace.answers.until(lambda: workspace.answers.waiting.get("artifact"))
    await workspace.runtime.answer(workspace.answers.waiting["artifact"][0], None)
    answer = await page.hear("result")
    assert (answer["re"], answer["code"]) == ("q-1", "internal_error")


async def test_a_snapshot_that_is_none_lets_the_page_begin_anew(workspace: Any) -> None:
    """Else it would wait for ever, and nobody would know why."""
    workspace.answers.snapshot = {}
    page = await workspace.open_page()
    await page.say({"t": "auth", "token": workspace.token})
    assert await page.close_code() == 1013
