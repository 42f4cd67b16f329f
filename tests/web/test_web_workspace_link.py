"""The workspace's WebSocket: what a page gets and may ask. A real server, a scripted Runtime, real frames."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
from typing import Any

import pytest
import websockets

from lineup_hostshell.runtime_link import RuntimeLink
from lineup_hostshell.workspace_link import FRAME_BYTES_MAX, REQUESTS_PER_TAB_MAX, STRANGERS_MAX, TabLimits
from lineup_protocol.errors import LineUpError
from lineup_protocol.limits import INCOMING_DEPTH_MAX, NODES_MAX, VALUE_DEPTH_MAX

CHANGE = {"kind": "conversation", "id": "c-1", "row": {"title": "x"}}


async def test_a_page_gets_hello_a_snapshot_and_then_deltas(workspace: Any) -> None:
    page = await workspace.open_page()
    assert await page.enter(workspace.token) == {"revision": 7, "conversations": []}
    assert page.hello["boot_id"] == "b-1"
    assert page.hello["surface_origin"] == workspace.workspace.surface_origin
    await workspace.answers.delta(8, CHANGE)
    assert await page.hear("delta") == {"t": "delta", "revision": 8, "changes": [CHANGE]}


async def test_two_tabs_share_one_stream_of_deltas(workspace: Any) -> None:
    first, second = await workspace.enter(), await workspace.enter()
    await workspace.answers.delta(8, CHANGE)
    await workspace.answers.delta(9, CHANGE)
    for page in (first, second):
        assert [(await page.hear("delta"))["revision"] for _ in range(2)] == [8, 9]


async def test_deltas_before_the_snapshot_wait_and_old_ones_are_dropped(workspace: Any) -> None:
    workspace.answers.held.add("host.subscribe")
    page = await workspace.open_page()
    await page.say({"t": "auth", "token": workspace.token})
    await page.hear("hello")
    await workspace.answers.until(lambda: workspace.answers.waiting)
    for revision in (6, 7, 8, 9):
        await workspace.answers.delta(revision, CHANGE)
    await workspace.runtime.answer(workspace.answers.waiting["host.subscribe"][0], workspace.answers.snapshot)
    await page.hear("snapshot")
    assert [(await page.hear("delta"))["revision"] for _ in range(2)] == [8, 9]


async def test_a_lost_delta_starts_every_page_anew(workspace: Any) -> None:
    pages = [await workspace.enter() for _ in range(2)]
    await workspace.answers.delta(8, CHANGE)
    workspace.answers.snapshot = {"revision": 10}
    await workspace.answers.delta(10, CHANGE)
    await workspace.answers.delta(11, CHANGE)
    for page in pages:
        assert (await page.hear("delta"))["revision"] == 8
        assert (await page.hear("snapshot"))["snapshot"] == {"revision": 10}
        assert (await page.hear("delta"))["revision"] == 11


async def test_changes_that_are_too_large_start_every_page_anew(workspace: Any) -> None:
    page = await workspace.enter()
    await workspace.answers.delta(8, CHANGE)
    workspace.answers.snapshot = {"revision": 9}
    await workspace.answers.delta_too_large(9)
    await workspace.answers.delta(10, CHANGE)
    assert (await page.hear("delta"))["revision"] == 8
    assert (await page.hear("snapshot"))["snapshot"] == {"revision": 9}
    assert (await page.hear("delta"))["revision"] == 10


async def test_a_snapshot_from_before_such_changes_is_not_shown(workspace: Any) -> None:
    workspace.answers.held.add("host.subscribe")
    page = await workspace.open_page()
    await page.say({"t": "auth", "token": workspace.token})
    await page.hear("hello")
    await workspace.answers.until(lambda: workspace.answers.waiting)
    await workspace.answers.delta_too_large(8)
    workspace.answers.held.clear()
    old, workspace.answers.snapshot = {"revision": 7}, {"revision": 8}
    await workspace.runtime.answer(workspace.answers.waiting["host.subscribe"][0], old)
    assert (await page.hear("snapshot"))["snapshot"] == {"revision": 8}
    await workspace.answers.delta(9, CHANGE)
    assert (await page.hear("delta"))["revision"] == 9


async def test_a_page_without_a_snapshot_is_told_to_come_back(workspace: Any) -> None:
    workspace.answers.held.add("host.subscribe")
    page = await workspace.open_page()
    await page.say({"t": "auth", "token": workspace.token})
    await workspace.answers.until(lambda: workspace.answers.waiting)
    await workspace.runtime.answer(workspace.answers.waiting["host.subscribe"][0], code="runtime_stopping")
    assert await page.close_code() == 1013


async def test_an_action_reaches_the_runtime_as_it_is_and_its_answer_the_page(workspace: Any) -> None:
    page = await workspace.enter()
    result = await page.act("person.text", "a-7", conversation_id="c-1", text="你好")
    sent = {"action_id": "a-7", "name": "person.text", "args": {"conversation_id": "c-1", "text": "你好"}}
    assert result == {"t": "result", "re": "x-1", "accepted": True, "detail": {"echo": sent}}


async def test_a_resent_action_keeps_its_id_so_that_the_runtime_can_answer_it_once(workspace: Any) -> None:
    page = await workspace.enter()
    for _ in range(2):
        assert (await page.act("interaction.answer", "a-1", interaction_id="i-1"))["accepted"]
    assert [body["action_id"] for name, body in workspace.answers.seen if name == "interaction.answer"] == ["a-1"] * 2


async def test_refusals_of_the_runtime_reach_the_page(workspace: Any) -> None:
    def refuse(args: dict[str, Any]) -> Any:
        raise LineUpError("interaction_already_final", "the first answer stands")

    workspace.answers.actions["interaction.answer"] = refuse
    page = await workspace.enter()
    result = await page.act("interaction.answer", interaction_id="i-1")
    assert (result["accepted"], result["code"]) == (False, "interaction_already_final")


@pytest.mark.parametrize(
    "name",
    ["call.start", "apps.add", "apps.remove", "apps.enable", "runtime.stop", "runtime.backup", "host.listening",
     "pages.shown", "personXtext", "conversation", "call.cancel2", "agent.frame", ""],
)  # fmt: skip
async def test_only_a_persons_actions_pass(workspace: Any, name: str) -> None:
    page = await workspace.enter()
    result = await page.act(name)
    assert (result["accepted"], result["code"]) == (False, "unauthorized")
    assert workspace.answers.names() == ["host.subscribe"]


@pytest.mark.parametrize(
    "name",
    ["person.text", "conversation.open", "interaction.draft", "instance.close", "session.continue", "surface.patch",
     "grant.revoke", "call.cancel", "notification.dismiss"],
)  # fmt: skip
async def test_every_action_of_a_person_passes(workspace: Any, name: str) -> None:
    page = await workspace.enter()
    assert (await page.act(name))["accepted"]
    assert workspace.answers.names()[-1] == name


@pytest.mark.parametrize("name", ["bundle", "doctor", "runtime.status", "host.listening", "Snapshot", ""])
async def test_only_a_persons_questions_pass(workspace: Any, name: str) -> None:
    page = await workspace.enter()
    result = await page.ask(name)
    assert (result["accepted"], result["code"]) == (False, "unauthorized")
    assert workspace.answers.names() == ["host.subscribe"]


async def test_questions_are_answered_out_of_order_by_their_ids(workspace: Any) -> None:
    workspace.answers.held.add("story")
    page = await workspace.enter()
    await page.say({"t": "query", "id": "slow", "name": "story", "args": {"id": "c-1"}})
    await page.say({"t": "query", "id": "fast", "name": "tools", "args": {}})
    assert (await page.hear("result"))["re"] == "fast"
    await workspace.runtime.answer(workspace.answers.waiting["story"][0], {"entries": []})
    assert await page.hear("result") == {"t": "result", "re": "slow", "accepted": True, "detail": {"entries": []}}


async def test_an_artifacts_bytes_stay_out_of_json(workspace: Any) -> None:
    workspace.answers.queries["artifact"] = lambda args: {"artifact_id": "a-1", "content": b"\x89PNG"}
    page = await workspace.enter()
    assert (await page.ask("artifact", artifact_id="a-1"))["detail"] == {"artifact_id": "a-1"}


@pytest.mark.parametrize(
    ("frame", "answer"),
    [
        ({"t": "action", "id": "x", "name": "person.text", "args": {}}, "message_invalid"),
        ({"t": "action", "id": "x", "action_id": "no id!", "name": "person.text", "args": {}}, "message_invalid"),
        ({"t": "action", "id": "x", "action_id": "a", "name": 5, "args": {}}, "message_invalid"),
        ({"t": "query", "id": "x", "name": "tools", "args": []}, "message_invalid"),
        ({"t": "query", "name": "tools"}, 1008),
        ({"t": "query", "id": "no id!", "name": "tools"}, 1008),
        ({"t": "auth", "id": "x"}, 1008),
        ({"id": "x"}, 1008),
        ([], 1008),
        ("{", 1008),
        ('{"t":"query","id":"x","name":"tools","args":{"a":NaN}}', 1008),
        ('{"t":"query","t":"query","id":"x","name":"tools"}', 1008),
        ('{"t":"query","id":"x","name":"\\ud800"}', 1008),
        ("[" * 40 + "]" * 40, 1008),
        (b"{}", 1003),
    ],
)
async def test_a_malformed_frame_is_answered_or_ends_the_page(workspace: Any, frame: Any, answer: Any) -> None:
    page, other = await workspace.enter(), await workspace.enter()
    await page.say(frame)
    if isinstance(answer, str):
        assert (await page.hear("result"))["code"] == answer
    else:
        assert await page.close_code() == answer
    assert (await other.ask("tools"))["accepted"]
    assert workspace.answers.names() == ["host.subscribe", "host.subscribe", "tools"]


def request(args: str) -> str:
    """As the workspace writes it."""
    return f'{{"t":"action","action_id":"a","name":"surface.submit","args":{args},"id":"p7"}}'


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ('{"payload":["\\ud800"]}', "message_invalid"),
        ('{"payload":[' + "{}," * NODES_MAX + "1]}", "message_invalid"),
        ('{"payload":' + "[" * INCOMING_DEPTH_MAX + "]" * INCOMING_DEPTH_MAX + "}", "message_invalid"),
        ('{"payload":' + "[" * 100_000 + "]" * 100_000 + "}", "message_invalid"),
        ('{"payload":"' + "€" * 3_400_000 + '"}', "message_too_large"),
    ],
)
async def test_no_word_of_a_miniapps_page_ends_the_workspaces(workspace: Any, args: str, code: str) -> None:
    """The workspace sends an action again until it is answered, so that an end would be the first of many."""
    page = await workspace.enter()
    await page.say(request(args))
    answer = await page.hear("result")
    assert (answer["re"], answer["accepted"], answer["code"]) == ("p7", False, code)
    assert (await page.ask("tools"))["accepted"]
    assert "surface.submit" not in workspace.answers.names(), "refused before it costs the Runtime anything"


async def test_as_many_values_and_as_deep_as_the_runtime_takes(workspace: Any) -> None:
    page = await workspace.enter()
    for args in (
        '{"payload":[' + "0," * (NODES_MAX - 14) + "0]}",
        '{"payload":' + "[" * VALUE_DEPTH_MAX + "]" * VALUE_DEPTH_MAX + "}",
    ):
        await page.say(request(args))
        assert (await page.hear("result"))["accepted"]


async def test_what_is_dear_to_read_is_paid_by_waiting(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lineup_hostshell.workspace_link.CHEAP_S", 0.0)
    monkeypatch.setattr("lineup_hostshell.workspace_link.PAID", 10_000)
    page, other = await workspace.enter(), await workspace.enter()
    await page.say(request('{"payload":[' + "0," * 20_000 + "0]}"))
    await page.say(request('{"payload":1}'))
    assert (await page.hear("result"))["accepted"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await page.hear("result")
    monkeypatch.setattr("lineup_hostshell.workspace_link.PAID", 0)
    assert (await other.ask("tools"))["accepted"], "by that page alone"


async def test_a_request_may_be_four_mebibytes_and_no_frame_may_be_much_more(workspace: Any) -> None:
    page = await workspace.enter()
    await page.say({"t": "query", "id": "q", "name": "tools", "args": {"x": "y" * (3 << 20)}})
    assert (await page.hear("result"))["accepted"]
    with contextlib.suppress(websockets.ConnectionClosed):  # perhaps before all of it has left
        await page.say("x" * (FRAME_BYTES_MAX + 1))
    assert await page.close_code() == 1009


async def test_a_stranger_may_not_send_much(workspace: Any) -> None:
    page = await workspace.open_page()
    await page.say(json.dumps({"t": "auth", "token": "x" * 5000}))
    assert await page.close_code() == 1009


class TestTightLimits:
    @pytest.fixture
    def tab_limits(self) -> TabLimits:
        return TabLimits(auth_s_max=0.1, unread_bytes_max=300_000, held_bytes_max=2_000)

    async def test_a_page_that_shows_no_token_is_cut(self, workspace: Any) -> None:
        page = await workspace.open_page()
        assert await page.close_code() == 4408
        await workspace.answers.until(lambda: len(workspace.workspace.links) == 0)

    async def test_a_page_that_does_not_read_is_cut_and_the_others_are_not(self, workspace: Any) -> None:
        deaf, good = await workspace.enter(), await workspace.enter()
        deaf.socket.transport.pause_reading()
        change = {**CHANGE, "row": {"text": "x" * 100_000}}
        revision = 7
        while len(workspace.workspace.links) == 2:
            revision += 1
            await workspace.answers.delta(revision, change)
            assert (await good.hear("delta"))["revision"] == revision
            assert revision < 300, "it was never cut"
        deaf.socket.transport.abort()

    async def test_a_page_that_waits_too_long_for_its_snapshot_starts_again(self, workspace: Any) -> None:
        workspace.answers.held.add("host.subscribe")
        page = await workspace.open_page()
        await page.say({"t": "auth", "token": workspace.token})
        await workspace.answers.until(lambda: workspace.answers.waiting)
        for revision in range(8, 12):
            await workspace.answers.delta(revision, {**CHANGE, "row": {"text": "x" * 600}})
        assert await page.close_code() == 1013


async def test_an_action_without_an_answer_is_not_called_refused(
    workspace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Runtime may do it all the same: the page comes back and asks for the same one."""
    monkeypatch.setitem(RuntimeLink.begin.__kwdefaults__, "timeout_s", 0.2)
    workspace.answers.held |= {"person.text", "story"}
    page, other = await workspace.enter(), await workspace.enter()
    await other.say({"t": "query", "id": "q-1", "name": "story", "args": {}})
    assert (await other.hear("result"))["code"] == "no_runtime", "a question has no effect"
    await page.say({"t": "action", "id": "x-1", "action_id": "a-1", "name": "person.text", "args": {}})
    assert await page.close_code() == 1013
    workspace.answers.held.clear()
    again = await workspace.enter()
    assert (await again.act("person.text", action_id="a-1"))["accepted"]
    assert [body["action_id"] for name, body in workspace.answers.seen if name == "person.text"] == ["a-1", "a-1"]
    assert (await other.ask("tools"))["accepted"], "nobody else is let go of"


async def test_a_flooding_page_waits_for_its_answers(workspace: Any) -> None:
    workspace.answers.held.add("tools")
    page, other = await workspace.enter(), await workspace.enter()
    for number in range(REQUESTS_PER_TAB_MAX + 20):
        await page.say({"t": "query", "id": f"q-{number}", "name": "tools", "args": {}})
    await workspace.answers.until(lambda: len(workspace.answers.waiting.get("tools", ())) >= REQUESTS_PER_TAB_MAX)
    assert (await other.ask("apps"))["accepted"]
    assert len(workspace.answers.waiting["tools"]) == REQUESTS_PER_TAB_MAX
    workspace.answers.held.clear()
    for id_ in workspace.answers.waiting["tools"]:
        await workspace.runtime.answer(id_, {})
    assert {(await page.hear("result"))["re"] for _ in range(REQUESTS_PER_TAB_MAX + 20)} == {
        f"q-{number}" for number in range(REQUESTS_PER_TAB_MAX + 20)
    }


async def test_strangers_do_not_take_the_places_of_pages(workspace: Any) -> None:
    page = await workspace.enter()
    for _ in range(STRANGERS_MAX):
        await workspace.open_page()
    with pytest.raises(websockets.InvalidStatus) as refused:
        await workspace.open_page()
    assert refused.value.response.status_code == 503
    assert (await page.ask("tools"))["accepted"]


async def test_pages_hear_that_the_runtime_is_gone(workspace: Any) -> None:
    page = await workspace.enter()
    workspace.workspace.links.runtime_lost()
    assert await page.hear("runtime") == {"t": "runtime", "up": False}
    assert await page.close_code() == 1012


def proof(token: str, host: str, nonce: str) -> dict[str, str]:
    """What a page computes instead of showing its token."""
    id_, _, secret = token.rpartition(".")
    digest = hmac.new(secret.encode(), f"lineup-workspace {host} {nonce}".encode(), hashlib.sha256).digest()
    return {"t": "auth", "id": id_, "proof": base64.urlsafe_b64encode(digest).decode().rstrip("=")}


async def test_a_page_may_prove_its_token_instead_of_showing_it(workspace: Any) -> None:
    page = await workspace.open_page()
    await page.say(proof(workspace.token, f"127.0.0.1:{workspace.port}", page.nonce))
    await page.hear("hello")
    await page.hear("snapshot")


async def test_d12_a_proof_is_of_no_use_to_an_impostor(workspace: Any) -> None:
    """An impostor on another port gets a proof for its own address, or for a nonce of its own: neither opens a page."""
    token, own = workspace.token, f"127.0.0.1:{workspace.port}"
    forged = [
        lambda nonce: proof(token, f"127.0.0.1:{workspace.port + 1}", nonce),
        lambda nonce: proof(token, own, "another-nonce"),
        lambda nonce: proof(token[:-1] + ("A" if token[-1] != "A" else "B"), own, nonce),
        lambda nonce: {**proof(token, own, nonce), "id": token.rpartition(".")[0].replace("lws1.", "lws1.9")},
        lambda nonce: {**proof(token, own, nonce), "proof": ""},
        lambda nonce: {**proof(token, own, nonce), "proof": "é"},
        lambda nonce: {**proof(token, own, nonce), "token": token},
    ]
    for forge in forged:
        page = await workspace.open_page()
        await page.say(forge(page.nonce))
        assert await page.close_code() == 4401
    assert workspace.answers.names() == []


async def test_answers_for_a_page_that_has_left_go_nowhere(workspace: Any) -> None:
    workspace.answers.held.add("story")
    page = await workspace.enter()
    await page.say({"t": "query", "id": "q", "name": "story", "args": {"id": "x"}})
    await workspace.answers.until(lambda: workspace.answers.waiting)
    page.socket.transport.abort()
    await workspace.answers.until(lambda: len(workspace.workspace.links) == 0)
    await workspace.runtime.answer(workspace.answers.waiting["story"][0], {})
    other = await workspace.enter()
    await workspace.answers.delta(8, CHANGE)
    assert (await other.hear("delta"))["revision"] == 8
    assert (await other.ask("tools"))["accepted"]


async def test_actions_of_one_page_keep_their_order(workspace: Any) -> None:
    page = await workspace.enter()
    for number in range(100):
        await page.say({"t": "action", "id": f"x-{number}", "action_id": f"a-{number}", "name": "surface.patch"})
    async with asyncio.timeout(5):
        for _ in range(100):
            await page.hear("result")
    sent = [body["action_id"] for name, body in workspace.answers.seen if name == "surface.patch"]
    assert sent == [f"a-{number}" for number in range(100)]
