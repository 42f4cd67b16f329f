"""The agent link's WebSocket: what is forwarded, what is answered, what closes it, and that its cost is bounded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import websockets

from lineup_hostshell.agent_link import LinkLimits
from lineup_protocol.limits import AGENT_FRAME_BYTES_MAX


def as_text(frame: object) -> bytes:
    """A frame as the Runtime sends it to whoever carries the links."""
    return json.dumps(frame).encode()


HELLO = {
    "type": "lineup.v1.hello",
    "message_id": "m-1",
    "sent_at": "2026-11-30T08:00:00Z",
    "payload": {"agent_id": "a-1", "protocol": 1},
}


def connect(shell: Any, wire: Any, **extra: Any) -> Any:
    headers = {"Authorization": f"Bearer {wire.token}"}
    return websockets.connect(shell.url, additional_headers=headers, compression=None, proxy=None, **extra)


async def open_raw(shell: Any, dial: Any, wire: Any) -> Any:
    peer = await dial()
    peer.writer.write(wire.upgrade(shell.port))
    assert (await peer.head())[0] == 101
    return peer


async def until(condition: Any, wait_s: float = 5.0) -> None:
    async with asyncio.timeout(wait_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def recv(socket: Any) -> Any:
    async with asyncio.timeout(5):
        return json.loads(await socket.recv())


async def test_frames_go_up_as_they_are_and_the_end_is_reported_once(shell: Any, wire: Any, runtime: Any) -> None:
    async with connect(shell, wire) as socket:
        await socket.send(json.dumps(HELLO))
        _, first = await runtime.expect("agent.frame")
        assert first["frame"] == HELLO
        odd = {"unknown": ["专注", 1.5, None, {"deep": [True]}], "type": 7}
        await socket.send(json.dumps(odd))
        _, second = await runtime.expect("agent.frame")
        assert second == {"link_id": first["link_id"], "frame": odd}
    _, closed = await runtime.expect("agent.closed")
    assert closed == {"link_id": first["link_id"]}
    await until(lambda: len(shell.agents) == 0)
    assert runtime.inbox.empty()


async def test_links_have_different_ids(shell: Any, wire: Any, runtime: Any) -> None:
    ids = set()
    for _ in range(3):
        async with connect(shell, wire) as socket:
            await socket.send(json.dumps(HELLO))
            ids.add((await runtime.expect("agent.frame"))[1]["link_id"])
        await runtime.expect("agent.closed")
    assert len(ids) == 3


async def test_frames_come_down_in_order_and_the_close_comes_behind_them(shell: Any, wire: Any, runtime: Any) -> None:
    async with connect(shell, wire) as socket:
        await socket.send(json.dumps(HELLO))
        link_id = (await runtime.expect("agent.frame"))[1]["link_id"]
        for start in range(0, 500, 50):
            frames = [as_text({"n": n, "text": "好" * (n % 7)}) for n in range(start, start + 50)]
            await runtime.say("agent.send", {"link_id": link_id, "frames": frames})
        await runtime.say("agent.send", {"link_id": "ws-unknown", "frames": [as_text({"n": -1})]})
        await runtime.say("agent.close", {"link_id": link_id, "code": 4001, "reason": "taken over by a newer link"})
        assert [(await recv(socket))["n"] for _ in range(500)] == list(range(500))
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await recv(socket)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "taken over by a newer link")
    await runtime.expect("agent.closed")


async def test_a_long_reason_is_cut_at_a_character(shell: Any, wire: Any, runtime: Any) -> None:
    async with connect(shell, wire) as socket:
        await socket.send(json.dumps(HELLO))
        link_id = (await runtime.expect("agent.frame"))[1]["link_id"]
        await runtime.say("agent.close", {"link_id": link_id, "code": 1008, "reason": "停" * 200})
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await recv(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.reason == "停" * 41


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("not json", "JSON"),
        ('{"a": 1', "JSON"),
        ("[1, 2]", "object"),
        ('"text"', "object"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "finite"),
        ('{"a": 1e999}', "finite"),
        ('{"a": 9007199254740993}', "2^53"),
        ('{"a": "\\ud800"}', ""),
        ("[" * 40 + "]" * 40, "deeper"),
        ("[" * 100_000, "deeper"),
    ],
)
async def test_a_frame_that_cannot_be_taken_is_answered_and_the_link_stays(
    shell: Any, wire: Any, runtime: Any, text: str, rule: str
) -> None:
    async with connect(shell, wire) as socket:
        await socket.send(text)
        error = await recv(socket)
        assert error["type"] == "lineup.v1.error"
        assert error["payload"]["code"] == "message_invalid"
        assert rule in error["payload"]["message"]
        await socket.send(json.dumps(HELLO))
        assert (await runtime.expect("agent.frame"))[1]["frame"] == HELLO


async def test_an_error_names_the_message_it_answers(shell: Any, wire: Any, runtime: Any) -> None:
    """Depth 32 is legal JSON here but not inside the host link's own envelope."""
    deep: Any = 0
    for _ in range(31):
        deep = [deep]
    async with connect(shell, wire) as socket:
        await socket.send(json.dumps({"message_id": "m-7", "payload": deep}))
        error = await recv(socket)
        assert error["payload"]["reply_to"] == "m-7"


async def test_fragments_make_one_message(shell: Any, dial: Any, wire: Any, runtime: Any) -> None:
    peer = await open_raw(shell, dial, wire)
    data = json.dumps(HELLO | {"note": "专注"}, ensure_ascii=False).encode()
    at = data.index("专".encode()) + 1  # inside a character
    peer.writer.write(wire.frame(1, data[:at], fin=False) + wire.frame(0, b"", fin=False) + wire.frame(0, data[at:]))
    assert (await runtime.expect("agent.frame"))[1]["frame"]["note"] == "专注"


async def test_endless_fragments_are_cut(shell: Any, dial: Any, wire: Any, runtime: Any) -> None:
    peer = await open_raw(shell, dial, wire)
    peer.writer.write(wire.frame(1, b"", fin=False) + wire.frame(0, b"", fin=False) * 5000)
    assert await peer.close_code() == 1002
    assert await peer.at_end()
    await runtime.expect("agent.closed")


@pytest.mark.parametrize("size", [AGENT_FRAME_BYTES_MAX + 1, 64 * 1024 * 1024])
async def test_an_oversized_frame_closes_with_1009(shell: Any, dial: Any, wire: Any, runtime: Any, size: int) -> None:
    peer = await open_raw(shell, dial, wire)
    peer.writer.write(wire.frame(1, b"x" * size)[:200_000])  # the header alone says enough
    assert await peer.close_code() == 1009
    await runtime.expect("agent.closed")


async def test_oversize_in_fragments_closes_with_1009(shell: Any, dial: Any, wire: Any, runtime: Any) -> None:
    peer = await open_raw(shell, dial, wire)
    piece = b"x" * 100_000
    peer.writer.write(wire.frame(1, piece, fin=False) + wire.frame(0, piece, fin=False) * 20)
    assert await peer.close_code() == 1009
    await runtime.expect("agent.closed")


async def test_the_largest_frame_passes(shell: Any, wire: Any, runtime: Any) -> None:
    frame = {"type": "x", "text": ""}
    frame["text"] = "y" * (AGENT_FRAME_BYTES_MAX - len(json.dumps(frame)))
    async with connect(shell, wire) as socket:
        await socket.send(json.dumps(frame))
        assert (await runtime.expect("agent.frame"))[1]["frame"] == frame


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b'{"a": "\xe4\xb8"}'])
async def test_bad_utf8_closes_with_1007(
    shell: Any, dial: Any, wire: Any, runtime: Any, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await open_raw(shell, dial, wire)
    peer.writer.write(wire.frame(1, bad))
    assert await peer.close_code() == 1007
    assert await peer.at_end()
    await runtime.expect("agent.closed")
    assert not [record for record in caplog.records if record.exc_info]  # a peer's fault is no traceback of ours


async def test_a_binary_frame_closes_with_1008(shell: Any, dial: Any, wire: Any, runtime: Any) -> None:
    peer = await open_raw(shell, dial, wire)
    peer.writer.write(wire.frame(2, json.dumps(HELLO).encode()))
    assert await peer.close_code() == 1008
    await runtime.expect("agent.closed")


async def test_an_unmasked_frame_is_a_protocol_error(shell: Any, dial: Any, wire: Any, runtime: Any) -> None:
    peer = await open_raw(shell, dial, wire)
    peer.writer.write(b"\x81\x02{}")
    assert await peer.close_code() == 1002
    await runtime.expect("agent.closed")


class TestHelloInTime:
    @pytest.fixture
    def link_limits(self) -> LinkLimits:
        return LinkLimits(hello_s_max=0.05)

    async def test_no_hello_closes_with_1008(self, shell: Any, wire: Any, runtime: Any) -> None:
        async with connect(shell, wire) as socket:
            await socket.send("not json")  # an answered error is no hello
            assert (await recv(socket))["type"] == "lineup.v1.error"
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await recv(socket)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
            assert "hello" in closed.value.rcvd.reason
        await runtime.expect("agent.closed")

    async def test_a_hello_stops_the_clock(self, shell: Any, wire: Any, runtime: Any) -> None:
        async with connect(shell, wire) as socket:
            await socket.send(json.dumps(HELLO))
            link_id = (await runtime.expect("agent.frame"))[1]["link_id"]
            await asyncio.sleep(0.15)  # three times the limit: the timer itself is what is under test
            await runtime.say("agent.send", {"link_id": link_id, "frames": [as_text({"ok": True})]})
            assert await recv(socket) == {"ok": True}


class TestSlowReader:
    @pytest.fixture
    def link_limits(self) -> LinkLimits:
        return LinkLimits(unread_bytes_max=1024 * 1024)

    async def test_an_agent_that_does_not_read_is_cut_and_others_are_not(
        self, shell: Any, dial: Any, wire: Any, runtime: Any
    ) -> None:
        slow = await open_raw(shell, dial, wire)
        slow.writer.write(wire.frame(1, json.dumps(HELLO).encode()))
        slow_id = (await runtime.expect("agent.frame"))[1]["link_id"]
        slow.writer.transport.pause_reading()
        async with connect(shell, wire) as quick:
            await quick.send(json.dumps(HELLO))
            quick_id = (await runtime.expect("agent.frame"))[1]["link_id"]
            frame = as_text({"text": "x" * 100_000})
            for n in range(400):
                await runtime.say("agent.send", {"link_id": slow_id, "frames": [frame]})
                if n % 40 == 0:
                    await runtime.say("agent.send", {"link_id": quick_id, "frames": [as_text({"n": n})]})
                    assert (await recv(quick))["n"] == n
            _, closed = await runtime.expect("agent.closed")
            assert closed["link_id"] == slow_id
            slow.writer.transport.resume_reading()
            assert await slow.at_end()

    async def test_a_ping_flood_without_reading_costs_nothing(
        self, shell: Any, dial: Any, wire: Any, runtime: Any
    ) -> None:
        flooder = await open_raw(shell, dial, wire)
        flooder.writer.write(wire.frame(1, json.dumps(HELLO).encode()))
        await runtime.expect("agent.frame")
        socket = next(iter(shell.agents._links.values())).socket
        flooder.writer.transport.pause_reading()
        pings = wire.frame(9, b"p" * 125) * 2000
        for _ in range(40):  # 10 MiB of pings, 10 MiB of pongs if each were answered
            flooder.writer.write(pings)
            await flooder.writer.drain()
        async with connect(shell, wire) as other:
            await other.send(json.dumps(HELLO))
            await runtime.expect("agent.frame")
        assert socket.buffered_bytes < 1024 * 1024


async def test_a_flood_waits_for_the_runtime(shell: Any, wire: Any, runtime: Any) -> None:
    """The Runtime stops reading: the agent's bytes stay in the agent's and the kernel's buffers, not in ours."""
    runtime.task.cancel()
    sent = 0
    data = json.dumps(HELLO | {"filler": "x" * 50_000})
    async with connect(shell, wire, write_limit=1024) as socket:

        async def flood() -> None:
            nonlocal sent
            while sent < 20_000:
                await socket.send(data)
                sent += 1

        task = asyncio.create_task(flood())
        last = -1
        async with asyncio.timeout(20):
            while sent != last or sent == 0:  # until it stands still
                last = sent
                await asyncio.sleep(0.2)
        assert 0 < sent < 5_000
        runtime.task = asyncio.create_task(runtime._read())
        before = sent
        await until(lambda: sent > before + 200)
        task.cancel()


async def test_when_the_runtime_goes_the_links_are_told(shell: Any, wire: Any, runtime: Any) -> None:
    async with connect(shell, wire) as socket:
        await socket.send(json.dumps(HELLO))
        await runtime.expect("agent.frame")
        runtime.close()
        async with asyncio.timeout(5):
            await shell.link.lost.wait()
        await socket.send(json.dumps(HELLO))
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await recv(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
