"""Whiteboard, as the bundle stands in the wheel, over the real core; the test is its page."""

from __future__ import annotations

import ast
import base64
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lineup_protocol.bundle import read_bundle
from lineup_testkit import StubRuntime
from lineup_testkit.bundles import load_fresh

BUNDLE = Path(__file__).parents[2] / "workers" / "lineup_workers" / "whiteboard"
MANIFEST = json.loads((BUNDLE / "miniapp.json").read_text())
OPEN, SUBMIT = "whiteboard.open", "whiteboard.submit"
RECT = {"type": "rect", "z": 1, "x": 10, "y": 20, "w": 100, "h": 50, "fill": True}
TEXT = {"type": "text", "z": 2, "x": 10, "y": 100, "text": "Plan <A>", "color": "red"}
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
GIF = base64.b64encode(b"GIF89a").decode()
SVG = '<svg xmlns="http://www.w3.org/2000/svg"></svg>'
PICTURE = {"png": base64.b64encode(PNG).decode(), "svg": SVG, "elements": 1}


@pytest.fixture
async def rt() -> AsyncIterator[StubRuntime]:
    async with StubRuntime.from_bundle(BUNDLE) as runtime:
        yield runtime


@pytest.fixture
async def alone() -> AsyncIterator[StubRuntime]:
    """With no page that would answer, and without the patience to wait for one."""
    app = load_fresh(MANIFEST["entry"], BUNDLE)
    app.tools[SUBMIT].__globals__["ASK_S_MAX"] = 0.01
    async with StubRuntime.from_app(app, MANIFEST) as runtime:
        yield runtime


async def open_board(rt: StubRuntime, board_id: str = "b1", **input_: Any) -> Any:
    return await rt.call(OPEN, {"board_id": board_id, "title": "Kitchen", **input_})


def artifacts(rt: StubRuntime) -> dict[str, dict[str, Any]]:
    return {row["artifact_id"]: row for row in rt.query("artifacts")["artifacts"]}


def test_the_manifest_is_valid_with_and_without_the_built_page() -> None:
    manifest, _, files = read_bundle(BUNDLE, trusted=True)
    assert (manifest.app_scope, manifest.kind) == ("whiteboard", "bundled-reference")
    open_, submit = manifest.tools
    assert (open_.handling, open_.target.requires_foreground, open_.target.restore_previous_focus) == (
        "launch",
        True,
        True,
    )
    assert (submit.handling, submit.target.requires_foreground) == ("operation", False)
    assert {"app.py", "drawing.py", "surface/index.html", "surface/style.css"} <= set(files)
    assert manifest.surfaces[0].entry == "surface/index.html"


@pytest.mark.conformance("03-9.2")
def test_the_app_imports_the_sdk_and_its_own_module_alone() -> None:
    for name in ("app.py", "drawing.py"):
        tree = ast.parse((BUNDLE / name).read_text())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {each.split(".")[0] for each in names} - sys.stdlib_module_names <= {"lineup_sdk", "drawing"}


# -- the person draws and hands in ------------------------------------------------------------------------------------


@pytest.mark.conformance("03-9.9")
async def test_a_board_from_open_to_the_persons_submit(rt: StubRuntime) -> None:
    call = await open_board(rt, elements={"r": RECT})
    assert (call.is_open, rt.focus()) == (True, ["chat", "whiteboard"])
    assert rt.surface()["state"] == {"board_id": "b1", "title": "Kitchen", "elements": {"r": RECT}}
    assert (await rt.surface_patch({"elements": {"t": TEXT}}))["accepted"]
    await rt.surface_submit(PICTURE)
    result = call.result
    assert result["status"] == "completed"
    kept = artifacts(rt)
    assert kept[result["artifact_id"]]["media_type"] == "image/png"
    assert kept[result["artifact_id"]]["title"] == "Kitchen"
    assert kept[result["svg_artifact_id"]]["media_type"] == "image/svg+xml"
    assert rt.focus() == ["chat"]
    assert [row for row in rt.query("snapshot")["surfaces"] if row["status"] == "open"] == []


async def test_the_history_names_what_was_handed_in(rt: StubRuntime) -> None:
    call = await open_board(rt, elements={"r": RECT})
    session_id = rt.instance("whiteboard")["session_id"]
    await rt.surface_submit(PICTURE)
    state = rt.query("session", session_id=session_id)["snapshot"]["state"]
    assert state == {
        "board_id": "b1",
        "title": "Kitchen",
        "status": "completed",
        "elements": 1,
        "artifact_id": call.result["artifact_id"],
        "svg_artifact_id": call.result["svg_artifact_id"],
    }


@pytest.mark.parametrize("payload", [None, [], "x", {"png": "~"}, {"png": 7}, {"png": GIF}])
async def test_what_is_no_picture_is_not_taken_and_the_page_is_told(rt: StubRuntime, payload: Any) -> None:
    call = await open_board(rt)
    await rt.surface_submit(payload)
    if payload in (None, [], "x"):  # no picture at all: it is made from what the Runtime has
        assert artifacts(rt)[call.result["artifact_id"]]["media_type"] == "image/svg+xml"
        return
    assert call.is_open
    assert rt.surface()["state"]["trouble"]["code"] == "artifact_invalid"
    assert artifacts(rt) == {}
    await rt.surface_submit(PICTURE)
    assert call.result["status"] == "completed"


async def test_the_same_board_again_joins_it_and_leaves_the_drawing_alone(rt: StubRuntime) -> None:
    first = await open_board(rt)
    await rt.surface_patch({"elements": {"t": TEXT}})
    second = await open_board(rt, elements={"r": RECT})
    assert rt.surface()["state"]["elements"] == {"t": TEXT}
    await rt.surface_submit(PICTURE)
    assert first.result == second.result


async def test_another_board_is_refused_while_one_is_open(rt: StubRuntime) -> None:
    first = await open_board(rt, elements={"r": RECT})
    second = await open_board(rt, "b2")
    assert second.error["code"] == "board_open"
    assert rt.surface()["state"]["board_id"] == "b1"
    assert first.is_open


@pytest.mark.parametrize(
    ("element", "path"),
    [
        ({"type": "script"}, "/elements/e/type"),
        ({"type": "rect", "x": 1, "y": 1, "w": 1}, "/elements/e/h"),
        ({"type": "line", "x": 1, "y": 1, "x2": 1, "y2": 1e9}, "/elements/e/y2"),
        ({"type": "text", "x": 1, "y": 1, "text": " "}, "/elements/e"),
        ({"type": "pen", "d": {"0": "~"}}, "/elements/e"),
        ("rect", "/elements/e/type"),
    ],
)
async def test_elements_that_could_not_be_seen_are_refused_with_their_path(
    rt: StubRuntime, element: Any, path: str
) -> None:
    call = await open_board(rt, elements={"e": element})
    assert call.error["code"] == "elements_invalid"
    assert call.error["message"].startswith(f"{path}: ")


# -- the agent looks and hands in -------------------------------------------------------------------------------------


async def test_a_summary_says_what_is_drawn_and_leaves_the_board_open(rt: StubRuntime) -> None:
    opened = await open_board(rt, elements={"r": RECT, "t": TEXT, "junk": RECT})
    await rt.surface_patch({"elements": {"junk": {"type": None}, "late": {"x": 5}}})
    call = await rt.call(SUBMIT, {"board_id": "b1", "request": "summary"})
    summary = call.result["summary"]
    assert call.result["status"] == "open"
    assert (summary["elements"], summary["by_type"]) == (2, {"rect": 1, "text": 1})
    assert summary["texts"] == ["Plan <A>"]
    assert (summary["bounds"]["x"], summary["bounds"]["y"]) == (10, 20)
    assert opened.is_open


async def test_the_agent_gets_the_picture_that_the_page_makes(rt: StubRuntime) -> None:
    opened = await open_board(rt, elements={"r": RECT})
    call = await rt.call(SUBMIT, {"board_id": "b1"})
    assert call.is_open
    ask_id = rt.surface()["state"]["ask"]["id"]
    await rt.surface_submit({"ask": "somebody else's", **PICTURE})
    assert call.is_open
    await rt.surface_submit({"ask": ask_id, **PICTURE})
    result = call.result
    assert (result["status"], result["summary"]["elements"]) == ("completed", 1)
    assert artifacts(rt)[result["artifact_id"]]["media_type"] == "image/png"
    assert opened.result == {name: result[name] for name in ("status", "artifact_id", "svg_artifact_id")}
    assert rt.focus() == ["chat"]


async def test_without_a_page_the_picture_is_made_from_what_the_runtime_has(alone: StubRuntime) -> None:
    rt = alone
    opened = await open_board(rt, elements={"r": RECT, "t": TEXT})
    call = await rt.call(SUBMIT, {"board_id": "b1", "request": "artifact"})
    result = await call.wait()
    row = artifacts(rt)[result["artifact_id"]]
    assert (row["media_type"], result["svg_artifact_id"]) == ("image/svg+xml", result["artifact_id"])
    assert (await opened.wait())["artifact_id"] == result["artifact_id"]
    assert rt.focus() == ["chat"]


async def test_a_late_answer_of_a_page_changes_nothing(alone: StubRuntime) -> None:
    rt = alone
    await open_board(rt)
    await (await rt.call(SUBMIT, {"board_id": "b1"})).wait()
    again = await open_board(rt, "b2")
    await rt.surface_submit({"ask": "k-2.1", **PICTURE})
    assert again.is_open


@pytest.mark.conformance("03-9.9")
@pytest.mark.parametrize("approved", [True, False])
async def test_with_confirm_the_person_has_the_last_word(rt: StubRuntime, approved: bool) -> None:
    opened = await open_board(rt, elements={"r": RECT})
    call = await rt.call(SUBMIT, {"board_id": "b1", "confirm": True})
    question = rt.question()
    assert (question["kind"], question["owner"]["app_scope"]) == ("confirm", "whiteboard")
    assert "Kitchen" in question["request"]["prompt"]
    assert rt.focus() == ["chat", "whiteboard"]
    await rt.answer({"approved": approved})
    if not approved:
        assert call.result["status"] == "declined"
        assert opened.is_open
        return
    await rt.surface_submit({"ask": rt.surface()["state"]["ask"]["id"], **PICTURE})
    assert (call.result["status"], opened.result["status"]) == ("completed", "completed")


async def test_the_person_hands_in_while_they_are_asked(rt: StubRuntime) -> None:
    opened = await open_board(rt, elements={"r": RECT})
    call = await rt.call(SUBMIT, {"board_id": "b1", "confirm": True})
    await rt.surface_submit(PICTURE)
    assert call.result["status"] == "completed"
    assert call.result["artifact_id"] == opened.result["artifact_id"]
    assert rt.questions() == []
    assert rt.focus() == ["chat"]


async def test_a_board_that_is_not_open_cannot_be_handed_in(rt: StubRuntime) -> None:
    early = await rt.call(SUBMIT, {"board_id": "b1"})
    assert early.receipt["code"] == "app_instance_not_found"
    await open_board(rt)
    assert (await rt.call(SUBMIT, {"board_id": "b9"})).error["code"] == "board_not_found"


# -- ends that are no result ------------------------------------------------------------------------------------------


async def test_the_agents_cancel_keeps_what_was_drawn(rt: StubRuntime) -> None:
    call = await open_board(rt)
    await rt.surface_patch({"elements": {"t": TEXT}})
    await call.cancel("changed my mind")
    assert call.outcome is not None
    assert call.outcome["status"] == "cancelled"
    (row,) = artifacts(rt).values()
    assert row["title"] == "Kitchen (not handed in)"
    assert rt.focus() == ["chat"]


async def test_closing_a_blank_board_asks_nothing(rt: StubRuntime) -> None:
    call = await open_board(rt)
    await rt.close_app("whiteboard")
    assert call.result == {"status": "cancelled"}
    assert (rt.questions(), rt.focus()) == ([], ["chat"])


@pytest.mark.parametrize("approved", [True, False])
async def test_closing_a_board_with_a_drawing_asks_first(rt: StubRuntime, approved: bool) -> None:
    call = await open_board(rt, elements={"r": RECT})
    await rt.close_app("whiteboard")
    assert rt.question()["kind"] == "confirm"
    await rt.answer({"approved": approved})
    if approved:
        assert (call.result, rt.focus()) == ({"status": "cancelled"}, ["chat"])
    else:
        assert (call.is_open, rt.surface()["state"]["elements"]) == (True, {"r": RECT})


async def test_a_closed_page_ends_the_board(rt: StubRuntime) -> None:
    call = await open_board(rt)
    await rt.act("surface.torn", surface_id=rt.surface()["surface_id"])
    assert (call.result, rt.focus()) == ({"status": "cancelled"}, ["chat"])


# -- crashes ----------------------------------------------------------------------------------------------------------


async def test_a_crash_loses_no_element_and_no_call(rt: StubRuntime) -> None:
    call = await open_board(rt, elements={"r": RECT})
    many = {f"e{i}": {**RECT, "x": i} for i in range(500)}
    await rt.surface_patch({"elements": many})
    await rt.crash_worker("whiteboard")
    await rt.advance(5)
    await rt.surface_patch({"elements": {"t": TEXT}})
    assert rt.surface()["state"]["elements"] == {"r": RECT, **many, "t": TEXT}
    await rt.restart()
    await rt.surface_submit(PICTURE)
    assert call.result["status"] == "completed"


async def test_a_crash_while_the_agent_waits_for_the_picture_asks_again(rt: StubRuntime) -> None:
    opened = await open_board(rt, elements={"r": RECT})
    call = await rt.call(SUBMIT, {"board_id": "b1"})
    first = rt.surface()["state"]["ask"]["id"]
    await rt.crash_worker("whiteboard")
    await rt.advance(5)
    second = rt.surface()["state"]["ask"]["id"]
    assert second != first
    await rt.surface_submit({"ask": second, **PICTURE})
    assert (call.result["status"], opened.result["status"]) == ("completed", "completed")


async def test_a_crash_while_the_person_is_asked_does_not_ask_twice(rt: StubRuntime) -> None:
    await open_board(rt, elements={"r": RECT})
    call = await rt.call(SUBMIT, {"board_id": "b1", "confirm": True, "request": "summary"})
    asked = rt.question()["interaction_id"]
    await rt.crash_worker("whiteboard")
    await rt.advance(5)
    assert rt.question()["interaction_id"] == asked
    await rt.answer({"approved": True})
    assert call.result["status"] == "open"


async def test_a_submission_that_waited_for_the_worker_is_taken_once(rt: StubRuntime) -> None:
    call = await open_board(rt, elements={"r": RECT})
    await rt.crash_worker("whiteboard")
    await rt.surface_submit(PICTURE)
    await rt.advance(5)
    assert call.result["status"] == "completed"
    assert len(artifacts(rt)) == 2
    assert rt.focus() == ["chat"]


async def test_continuing_an_ended_board_shows_a_blank_one_that_a_call_may_take(rt: StubRuntime) -> None:
    await open_board(rt)
    session_id = rt.instance("whiteboard")["session_id"]
    await rt.surface_submit(PICTURE)
    assert (await rt.act("session.continue", session_id=session_id))["accepted"]
    assert rt.surface()["state"] == {"elements": {}}
    await rt.surface_patch({"elements": {"t": TEXT}})
    await open_board(rt, "b2")
    assert rt.surface()["state"]["elements"] == {}
    assert "Whiteboard (not handed in)" in {row["title"] for row in artifacts(rt).values()}


# -- the drawing module -----------------------------------------------------------------------------------------------


@pytest.fixture
def drawing() -> Any:
    return load_fresh(MANIFEST["entry"], BUNDLE).tools[OPEN].__globals__["drawing"]


def test_points_are_read_as_the_page_writes_them(drawing: Any) -> None:
    assert list(drawing.decode_points("AAg2H5C_14T8o3qBA")) == [(0, 0), (12.3, -4.5), (-1000, 70000.1)]
    for text in ("~", "A", "AA", "____", "\ud800", "77777777777A"):
        assert list(drawing.decode_points(text)) == []


def test_a_stroke_is_where_its_offset_and_scale_put_it(drawing: Any) -> None:
    stroke = {"type": "pen", "d": {"10": "oGAg", "9": "AAg"}, "x": 5, "y": -5, "sx": 2, "sy": 1}
    assert drawing.read(stroke).points == [(5, -5), (5 + 2 * 10, -5)]


def test_the_plain_picture_is_xml_whatever_the_text(drawing: Any) -> None:
    from xml.etree import ElementTree

    elements = {
        "r": RECT,
        "e": {**RECT, "type": "ellipse", "fill": False, "w": -5},
        "a": {"type": "arrow", "x": 0, "y": 0, "x2": 50, "y2": 50, "color": '"><script>'},
        "dot": {"type": "pen", "d": "AAg"},
        "t": {**TEXT, "text": 'a\n<script>&"\x00\ud800'},
    }
    picture = ElementTree.fromstring(drawing.svg(drawing.read_all(elements), "A & B"))
    tags = [child.tag.rpartition("}")[2] for child in picture]
    assert sorted(tags) == ["ellipse", "path", "path", "rect", "rect", "text", "title"]
    assert "script" not in {each.tag.rpartition("}")[2] for each in picture.iter()}
    assert picture[0].text == "A & B"


def test_a_blank_board_is_a_blank_picture(drawing: Any) -> None:
    assert b'viewBox="0 0 640 400"' in drawing.svg([], "")
    assert drawing.summary([]) == {"elements": 0, "by_type": {}, "texts": []}


@pytest.mark.parametrize(
    "elements", [None, 7, [], {"a": None}, {"a": {"type": ["pen"]}}, {"a": {"type": "pen", "d": 7}}]
)
def test_what_is_no_element_is_passed_over(drawing: Any, elements: Any) -> None:
    assert drawing.read_all(elements) == []
