"""A hostile surface in a real browser, and a hostile page beside the workspace: every way out is closed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Frame, Page, expect

from browser.support.elsewhere import Elsewhere, elsewhere
from browser.support.person import ANSWER_MS, Person
from browser.support.running import LineUp

PRYING = Path(__file__).resolve().parent / "bundles" / "prying"
# What the browser says about an attack that it has stopped, in the console of the page whose frame tried it.
STOPPED = (
    r"Content Security Policy|sandbox|[Uu]nsafe (attempt|)|not allowed|denied|Refused to|Blocked|blocked|refused",
    r"Failed to load resource|net::ERR_|WebSocket connection|permissions policy",
)


LINE_ENDS = {"cr": "\r", "ls": "\u2028", "ps": "\u2029"}  # all that end a comment in JavaScript, but for the usual one
FIRST_OF_ALL = """//{end}globalThis.kept = globalThis.RTCPeerConnection;
"use strict";
parent.postMessage({{ nested: [typeof RTCPeerConnection, typeof kept] }}, "*");
"""


@pytest.fixture(scope="module")
def prying(lineup: LineUp, tmp_path_factory: pytest.TempPathFactory) -> LineUp:
    bundle = tmp_path_factory.mktemp("bundles") / PRYING.name
    shutil.copytree(PRYING, bundle)
    for name, end in LINE_ENDS.items():  # made here: editors and Git like to change such lines
        (bundle / "surface" / f"nested-{name}.js").write_bytes(FIRST_OF_ALL.format(end=end).encode())
    done = lineup.cli("apps", "add", str(bundle))
    assert done.returncode == 0, done.stderr
    return lineup


@pytest.fixture
def away() -> Iterator[Elsewhere]:
    with elsewhere() as server:
        yield server


@pytest.fixture
def victim(prying: LineUp, make_person: Callable[..., Person], watch, request: pytest.FixtureRequest) -> Person:
    """A person with the hostile surface in front."""
    watch.expect(*STOPPED)
    person = make_person(converse=False)
    conversation = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:60]
    prying.open_app("prying.open", conversation)
    person.page.goto(f"{prying.origin}/#/c/{conversation}")
    person.sees_app("prying")
    person.surface()
    return person


def assert_unmoved(victim: Person, lineup: LineUp, away: Elsewhere) -> None:
    """The page is where it was, alone, and works; nothing has reached the attacker."""
    assert victim.page.url.startswith(f"{lineup.origin}/#/c/")
    assert victim.page.context.pages == [victim.page], "there is another window"
    assert away.reached == []
    victim.page.get_by_test_id("app-switcher").click()
    expect(victim.page.get_by_role("menu")).to_be_visible()
    victim.page.keyboard.press("Escape")


def test_every_attack_of_a_surface_is_stopped(victim: Person, lineup: LineUp, away: Elsewhere) -> None:
    surface = victim.surface()
    places = {"home": lineup.origin, "away": away.url}
    names: list[str] = surface.evaluate("Object.keys(ATTACKS)")
    assert len(names) > 35
    answers = surface.evaluate(
        """async (places) => {
            const names = Object.keys(ATTACKS);
            const answers = await Promise.all(names.map((name) => attack(name, places)));
            return Object.fromEntries(names.map((name, n) => [name, answers[n]]));
        }""",
        places,
    )
    assert set(answers) == set(names)
    got_through = {name: answer for name, answer in answers.items() if not answer.startswith("blocked")}
    assert not got_through
    assert_unmoved(victim, lineup, away)
    victim.shot("stopped")


def test_a_frame_inside_a_surface_gets_no_further(victim: Person, lineup: LineUp, away: Elsewhere) -> None:
    """Its own scripts run there at most without what gets around the policy."""
    answer = victim.surface().evaluate("nestedRealm()")
    assert answer.startswith("blocked") or answer == "open: undefined,undefined"
    assert_unmoved(victim, lineup, away)


@pytest.mark.parametrize("end", LINE_ENDS)
def test_nothing_of_a_script_runs_before_the_network_is_taken_away(
    end: str, victim: Person, lineup: LineUp, away: Elsewhere
) -> None:
    """What looks like a comment before a directive may be code; in a frame of its own it is the first that runs."""
    answer = victim.surface().evaluate("(script) => nestedRealm(script)", f"nested-{end}.js")
    assert answer.startswith("blocked") or answer == "open: undefined,undefined"
    assert_unmoved(victim, lineup, away)


def test_messages_as_if_from_another_surface(victim: Person, prying: LineUp, away: Elsewhere) -> None:
    """What comes over a load's port is that surface's, whatever it says; what comes in another way is nobody's."""
    prying.open_app("prying.open", "somebody-else")
    surfaces = prying.query("snapshot")["surfaces"]
    other = next(row["surface_id"] for row in surfaces if row["surface_id"] != victim.surface_id)
    before = {surface_id: prying.surface_state(surface_id) for surface_id in (other, victim.surface_id)}
    forged = [
        {"t": "update", "id": 901, "surface_id": other, "patch": {"forged": 1}},
        {"t": "query", "id": 902, "surface_id": other, "name": "state"},
        {"t": "action", "id": 903, "name": "surface.patch", "args": {"surface_id": other, "patch": {"forged": 1}}},
        {"t": "update", "id": 904, "patch": "no object"},
    ]
    surface = victim.surface()
    answers = {row["id"]: row["accepted"] for row in surface.evaluate("(forged) => forge(forged)", forged)}
    assert answers == {901: True, 902: False, 903: False, 904: False}
    assert prying.surface_state(victim.surface_id) == {**before[victim.surface_id], "forged": 1}
    assert prying.surface_state(other) == before[other]

    loose = [{**message, "nonce": "x" * 32} for message in forged]
    surface.evaluate(
        "(loose) => { for (const m of loose) for (const w of [parent, top]) w.postMessage(m, '*'); }",
        [*loose, {"t": "submit", "id": 1, "payload": 1}, {"t": "auth", "token": "x"}, {"t": "ready"}],
    )
    assert_unmoved(victim, prying, away)
    assert prying.surface_state(other) == before[other]


LEAVINGS = {
    "elsewhere": "location.href = away",
    "reload": "location.reload()",
    "data": "location.href = 'data:text/html,<p>Please sign in again</p>'",
    "blank": "location.href = 'about:blank'",
    "blob": "location.href = URL.createObjectURL(new Blob(['<p>hi</p>'], {type: 'text/html'}))",
    "own-file": "location.href = new URL('attacks.js', location.href).href",
    "workspace": "location.href = home",
}


@pytest.mark.parametrize("way", LEAVINGS)
def test_a_surface_that_leaves_its_place_is_torn_down(way: str, victim: Person, lineup: LineUp, away) -> None:
    surface = victim.surface()
    leave(surface, LEAVINGS[way], {"home": lineup.origin, "away": away.url})
    stopped = victim.page.get_by_role("alert").filter(has_text="tried to leave its place")
    expect(stopped).to_be_visible(timeout=ANSWER_MS)
    expect(victim.page.get_by_test_id("surface")).to_have_count(0)
    if way == "elsewhere":
        victim.shot("torn")
    assert_unmoved(victim, lineup, away)
    stopped.get_by_role("button", name="Load it again").click()
    assert victim.surface().evaluate("lineup.state.mine") == victim.conversation_id


def leave(surface: Frame, how: str, places: dict[str, str]) -> None:
    surface.evaluate(f"({{ home, away }}) => {{ setTimeout(() => {{ {how}; }}); }}", places)


def test_a_load_is_of_no_use_to_another_tab(victim: Person, lineup: LineUp) -> None:
    stolen = victim.surface().url
    tab = victim.page.context.new_page()
    answer = tab.goto(stolen)
    assert answer is not None
    assert answer.status == 404
    tab.close()
    expect(victim.page.get_by_role("alert").filter(has_text="tried to leave its place")).to_be_visible()


def test_a_page_beside_the_workspace_cannot_reach_it(victim: Person, prying: LineUp, away: Elsewhere) -> None:
    beside = victim.page.context.new_page()
    beside.goto(away.url)
    surface_id = victim.surface_id
    state = prying.surface_state(surface_id)
    refused = beside.evaluate(
        """async ([home, surface]) => {
            const outcome = (promise) => promise.then(() => "open", () => "refused");
            const socket = (path) => new Promise((resolve) => {
                const made = new WebSocket(home.replace("http", "ws") + path);
                made.onopen = () => resolve("open");
                made.onerror = () => resolve("refused");
            });
            return {
                page: await outcome(fetch(home + "/")),
                api: await outcome(fetch(home + "/api/session", {
                    method: "POST", headers: { "content-type": "application/json" }, body: '{"launch":"x"}',
                })),
                workspace: await socket("/workspace"),
                agent: await socket("/agent"),
                surface: await outcome(fetch(surface)),
            };
        }""",
        [prying.origin, victim.surface().url],
    )
    assert refused == dict.fromkeys(refused, "refused")
    assert_no_handle(beside, prying)
    assert_not_framed(beside, prying)
    beside.close()
    assert prying.surface_state(surface_id) == state


def assert_no_handle(beside: Page, lineup: LineUp) -> None:
    """As an opener it gets no window to speak to."""
    with beside.expect_popup() as opened:
        beside.evaluate("(home) => { window.victim = window.open(home + '/'); }", lineup.origin)
    popup = opened.value
    expect(popup.get_by_test_id("sidebar")).to_be_visible()
    assert popup.evaluate("window.opener") is None
    assert beside.evaluate("window.victim.closed || window.victim.length === 0")
    beside.evaluate("window.victim.postMessage({ nonce: 'x', t: 'auth', token: 'x' }, '*')")
    expect(popup.get_by_test_id("sidebar")).to_be_visible()
    popup.close()


def assert_not_framed(beside: Page, lineup: LineUp) -> None:
    beside.evaluate(
        """(home) => new Promise((resolve) => {
            const frame = Object.assign(document.createElement("iframe"), { src: home + "/", onload: resolve });
            document.body.append(frame);
        })""",
        lineup.origin,
    )
    assert not any(frame.url.startswith(lineup.origin) for frame in beside.frames)
