"""``AgentLink`` against a scripted Runtime: one result per call, nothing lost, nothing twice, whatever is cut when."""

from __future__ import annotations

import asyncio
import contextlib
import socket as socket_module
from typing import Any

import pytest

from agent.opened import calling, opened, soon, until
from lineup_agent import (
    AgentLink,
    CallTimeout,
    LinkClosed,
    LinkRefused,
    MessageRefused,
    NoRuntime,
    Progress,
    TakenOver,
    ToolFailed,
)

# --- calls ------------------------------------------------------------------------------------------------------------


async def test_a_call_its_progress_and_its_result(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        assert link.inventory.revision == "i-1"
        assert link.inventory.has("x.do")
        assert [tool["id"] for tool in link.tools()] == ["x.do", "confirm"]
        reports: list[Progress] = []
        task = calling(link, "x.do", {"n": 1}, call_id="k-1", on_progress=reports.append)
        call = await wire.expect("tool.call")
        assert call["conversation_id"] == "c-1"
        assert call["payload"] == {"call_id": "k-1", "tool_id": "x.do", "inventory_revision": "i-1", "input": {"n": 1}}
        await wire.accept(call)
        await wire.say("tool.progress", {"call_id": "k-1", "progress": 0.5, "message": "half", "at": "t"}, seq=1)
        await wire.result(2, "k-1", result={"ok": True})
        result = await soon(task)
        assert (result.status, result.unwrap()) == ("completed", {"ok": True})
        assert [(r.progress, r.message) for r in reports] == [(0.5, "half")]
        await wire.acknowledged(2)


@pytest.mark.parametrize("status", ["failed", "cancelled", "expired", "rejected"])
async def test_every_end_is_a_result(scripted: Any, token: str, status: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link)
        call = await wire.expect("tool.call")
        await wire.accept(call)
        error = {"code": "app_crashed", "message": "it crashed", "detail": {"reason": "memory"}}
        await wire.result(1, call["payload"]["call_id"], status, error=error)
        result = await soon(task)
        assert (result.status, result.error_code, result.completed) == (status, "app_crashed", False)
        with pytest.raises(ToolFailed) as failed:
            result.unwrap()
        assert (failed.value.code, failed.value.status, failed.value.detail) == (
            "app_crashed",
            status,
            {"reason": "memory"},
        )


async def test_iterated_progress_ends_with_the_call(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        handle = await link.start_call("x.do", conversation_id="c-1")
        call = await wire.expect("tool.call")
        await wire.accept(call)
        for n in range(1, 4):
            await wire.say("tool.progress", {"call_id": handle.call_id, "progress": n / 4, "at": "t"}, seq=n)
        await wire.result(4, handle.call_id)

        async def collect() -> list[float]:
            return [report.progress async for report in handle.progress()]

        assert await soon(collect()) == [0.25, 0.5, 0.75]
        assert (await handle.result(1)).completed


async def test_an_asynchronous_or_failing_on_progress_harms_nothing(scripted: Any, token: str) -> None:
    seen = asyncio.Event()

    async def gently(report: Progress) -> None:
        seen.set()
        raise ValueError("a fault of the agent's author")

    def harshly(report: Progress) -> None:
        raise ValueError("another")

    async with opened(scripted, token) as (link, wire):
        for n, callback in enumerate((gently, harshly)):
            task = calling(link, on_progress=callback)
            call = await wire.expect("tool.call")
            call_id = call["payload"]["call_id"]
            await wire.say("tool.progress", {"call_id": call_id, "progress": 0.1, "at": "t"}, seq=2 * n + 1)
            await wire.result(2 * n + 2, call_id)
            assert (await soon(task)).completed
        assert seen.is_set()


async def test_a_timeout_ends_the_wait_and_not_the_call(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link, call_id="k-1", timeout=0.05)
        await wire.accept(await wire.expect("tool.call"))
        with pytest.raises(CallTimeout) as over:
            await soon(task)
        assert over.value.call_id == "k-1"
        await wire.silent()  # no cancel was sent
        again = calling(link, call_id="k-1")
        await wire.accept(await wire.expect("tool.call"), detail={"call_id": "k-1", "status": "running"})
        await wire.result(1, "k-1", result={"late": True})
        assert (await soon(again)).unwrap() == {"late": True}


async def test_a_call_that_was_over_before_is_answered_by_its_record(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link, call_id="k-1")
        record = {"call_id": "k-1", "status": "completed", "result": {"v": 1}, "updated_at": "t", "input": {}}
        await wire.accept(await wire.expect("tool.call"), detail=record)
        assert (await soon(task)).unwrap() == {"v": 1}


async def test_a_conflict_is_no_result_of_the_first_call(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        first = calling(link, input_={"n": 1}, call_id="k-1")
        await wire.accept(await wire.expect("tool.call"))
        second = calling(link, input_={"n": 2}, call_id="k-1")
        await wire.refuse(await wire.expect("tool.call"), "call_id_conflict")
        with pytest.raises(MessageRefused) as conflict:
            await soon(second)
        assert (conflict.value.code, conflict.value.retry) == ("call_id_conflict", "after_change")
        assert not first.done()
        await wire.result(1, "k-1")
        assert (await soon(first)).completed


async def test_a_refused_call_has_one_result(scripted: Any, token: str) -> None:
    """Receipt and durable result both say it; the caller hears it once, and the durable one is acknowledged."""
    async with opened(scripted, token) as (link, wire):
        task = calling(link)
        call = await wire.expect("tool.call")
        await wire.refuse(call, "tool_input_invalid", detail={"path": "/n", "rule": "is required"})
        result = await soon(task)
        assert (result.status, result.error_code) == ("rejected", "tool_input_invalid")
        assert result.error["detail"] == {"path": "/n", "rule": "is required"}
        await wire.result(
            1, call["payload"]["call_id"], "rejected", error={"code": "tool_input_invalid", "message": "m"}
        )
        await wire.acknowledged(1)
        await wire.silent()


@pytest.mark.parametrize("code", ["rate_limited", "storage_full", "message_invalid"])
async def test_what_left_no_record_is_raised(scripted: Any, token: str, code: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link)
        await wire.refuse(await wire.expect("tool.call"), code)
        with pytest.raises(MessageRefused) as refused:
            await soon(task)
        assert refused.value.code == code


async def test_an_error_frame_that_names_the_message_ends_the_wait(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link)
        call = await wire.expect("tool.call")
        await wire.say("error", {"reply_to": call["message_id"], "code": "message_invalid", "message": "no"})
        with pytest.raises(MessageRefused):
            await soon(task)


async def test_input_that_is_no_json_is_refused_before_it_is_sent(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        for bad in ({"n": float("nan")}, {"n": object()}, {"n": "x" * (1 << 20)}):
            with pytest.raises(MessageRefused):
                await link.call("x.do", bad, conversation_id="c-1")
        await wire.silent()
        assert len(link._calls) == 0


# --- stale inventory --------------------------------------------------------------------------------------------------


async def test_a_stale_inventory_is_retried_once_under_a_new_id(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link)
        first = await wire.expect("tool.call")
        await wire.refuse(first, "inventory_revision_mismatch", detail={"current": "i-2"})
        await wire.inventory("i-2")
        second = await wire.expect("tool.call")
        assert second["payload"]["inventory_revision"] == "i-2"
        assert second["payload"]["call_id"] != first["payload"]["call_id"]
        assert second["message_id"] != first["message_id"]
        await wire.refuse(second, "inventory_revision_mismatch", detail={"current": "i-3"})
        await wire.inventory("i-3")
        result = await soon(task)
        assert result.error_code == "inventory_revision_mismatch"
        await wire.silent()


@pytest.mark.parametrize("given", [{"call_id": "k-1"}, {"revision": "i-0"}])
async def test_what_the_caller_fixed_is_not_retried(scripted: Any, token: str, given: dict[str, str]) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link, **given)
        call = await wire.expect("tool.call")
        assert call["payload"]["inventory_revision"] == given.get("revision", "i-1")
        await wire.inventory("i-2")
        await wire.refuse(call, "inventory_revision_mismatch", detail={"current": "i-2"})
        assert (await soon(task)).status == "rejected"
        await wire.silent()


# --- lost connections -------------------------------------------------------------------------------------------------


async def test_a_cut_before_the_receipt_resends_with_the_same_id(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        tasks = [calling(link, call_id=f"k-{n}") for n in range(3)]
        sent = [await wire.expect("tool.call") for _ in range(3)]
        await wire.accept(sent[1])
        await until(lambda: sent[1]["message_id"] not in link._session.waiting)
        await wire.cut()
        wire = await scripted.connection()
        await wire.welcome()
        again = [await wire.expect("tool.call") for _ in range(2)]
        assert [frame["message_id"] for frame in again] == [sent[0]["message_id"], sent[2]["message_id"]]
        assert [frame["payload"] for frame in again] == [sent[0]["payload"], sent[2]["payload"]]
        for n in range(3):
            await wire.result(n + 1, f"k-{n}")
        for task in tasks:
            assert (await soon(task)).completed


async def test_a_cut_before_the_ack_delivers_once(scripted: Any, token: str) -> None:
    """The acknowledgement is lost with the connection: the Runtime sends again, the caller hears once."""
    async with opened(scripted, token) as (link, wire):
        reports: list[Progress] = []
        task = calling(link, call_id="k-1", on_progress=reports.append)
        await wire.accept(await wire.expect("tool.call"))
        await wire.say("tool.progress", {"call_id": "k-1", "progress": 0.5, "at": "t"}, seq=1)
        await wire.result(2, "k-1", result={"n": 1})
        assert (await soon(task)).unwrap() == {"n": 1}
        await wire.cut()
        wire = await scripted.connection()
        hello = await wire.welcome(acked_seq=2)
        assert hello["acked_seq"] == 2
        await wire.say("tool.progress", {"call_id": "k-1", "progress": 0.5, "at": "t"}, seq=1)
        await wire.result(2, "k-1", result={"n": 2})
        other = calling(link, call_id="k-2")
        await wire.accept(await wire.expect("tool.call"))
        await wire.result(3, "k-2")
        assert (await soon(other)).completed
        assert len(reports) == 1
        await wire.acknowledged(3)


async def test_calls_made_while_the_link_is_down_wait_for_it(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        scripted.refuse_with = 503
        await wire.cut()
        await until(lambda: not link.connected)
        task = calling(link, call_id="k-1")
        before = scripted.requests
        await until(lambda: scripted.requests >= before + 2)
        scripted.refuse_with = None
        wire = await scripted.connection()
        await wire.welcome()
        await wire.accept(await wire.expect("tool.call"))
        await wire.result(1, "k-1")
        assert (await soon(task)).completed


async def test_a_stopping_runtime_is_asked_again_when_it_is_back(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link)
        first = await wire.expect("tool.call")
        await wire.refuse(first, "runtime_stopping")
        await wire.close(1001, "the host is stopping")
        wire = await scripted.connection()
        await wire.welcome()
        again = await wire.expect("tool.call")
        assert again["message_id"] == first["message_id"]
        await wire.accept(again)
        await wire.result(1, again["payload"]["call_id"])
        assert (await soon(task)).completed


async def test_a_gap_in_the_numbers_is_not_passed_on(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link, call_id="k-1")
        await wire.accept(await wire.expect("tool.call"))
        await wire.result(2, "k-1", result={"n": 2})
        wire = await scripted.connection()  # the link was dropped and made again
        assert (await wire.welcome())["acked_seq"] == 0
        await wire.text(1, "first")
        await wire.result(2, "k-1", result={"n": 2})
        assert (await soon(task)).unwrap() == {"n": 2}


async def test_a_restored_runtime_is_followed(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        for n in range(1, 6):
            await wire.result(n, f"old-{n}")
        await wire.acknowledged(5)
        await wire.cut()
        wire = await scripted.connection()
        hello = await wire.expect("hello")
        assert hello["payload"]["acked_seq"] == 5
        await wire.say(
            "error", {"reply_to": hello["message_id"], "code": "message_invalid", "message": "/payload/acked_seq: no"}
        )
        await wire.close(1008, "no")
        wire = await scripted.connection()
        assert "acked_seq" not in await wire.welcome(acked_seq=2)
        task = calling(link, call_id="k-1")
        await wire.accept(await wire.expect("tool.call"))
        await wire.result(3, "k-1")
        assert (await soon(task)).completed


async def test_take_over_is_final(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link)
        await wire.expect("tool.call")
        await wire.close(4000, "a newer link of this agent_id has taken over")
        with pytest.raises(TakenOver):
            await soon(task)
        with pytest.raises(TakenOver):
            await link.call("x.do", conversation_id="c-1")
        assert not link.connected
        assert scripted.requests == 1


# --- texts ------------------------------------------------------------------------------------------------------------


async def test_texts_are_acknowledged_when_they_were_taken_over(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        await wire.text(1, "one")
        await wire.text(2, "two")
        texts = link.messages()
        first = await soon(anext(texts))
        assert (first.text, first.conversation_id, first.seq) == ("one", "c-1", 1)
        await wire.result(3, "somebody-elses")
        await wire.silent()
        assert wire.acks == []  # the first is still in its consumer's hands
        assert (await soon(anext(texts))).text == "two"
        await wire.acknowledged(1)
        third = asyncio.create_task(anext(texts))
        await wire.acknowledged(3)
        third.cancel()


async def test_a_text_that_was_not_taken_over_comes_again(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        await wire.text(1, "one")
        await wire.text(2, "two")
        async with contextlib.aclosing(link.messages()) as texts:
            assert (await soon(anext(texts))).text == "one"
        await wire.cut()
        wire = await scripted.connection()
        assert (await wire.welcome())["acked_seq"] == 0
        await wire.text(1, "one")
        await wire.text(2, "two")
        await wire.text(3, "three")
        texts = link.messages()
        assert [(await soon(anext(texts))).text for _ in range(3)] == ["one", "two", "three"]


async def test_a_text_can_be_acknowledged_early(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        await wire.text(1, "one")
        async with contextlib.aclosing(link.messages()) as texts:
            (await soon(anext(texts))).acknowledge()
        await wire.acknowledged(1)
        await wire.text(2, "two")
        async with contextlib.aclosing(link.messages()) as texts:
            assert (await soon(anext(texts))).text == "two"


async def test_an_agent_without_ears_acknowledges_texts_unread(scripted: Any, token: str) -> None:
    async with opened(scripted, token, take_texts=False) as (_, wire):
        await wire.text(1, "one")
        await wire.acknowledged(1)


async def test_the_iteration_ends_with_the_link(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, _):

        async def collect() -> list[str]:
            return [text.text async for text in link.messages()]

        task = asyncio.create_task(collect())
        await asyncio.sleep(0)
        await link.close()
        assert await soon(task) == []


async def test_saying_something_waits_for_the_receipt(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = asyncio.create_task(link.send_text("c-1", "**你好**"))
        frame = await wire.expect("message.text")
        assert frame["payload"] == {"text": "**你好**", "format": "markdown"}
        assert frame["conversation_id"] == "c-1"
        await wire.silent()
        assert not task.done()
        await wire.accept(frame)
        await soon(task)


# --- cancel, get ------------------------------------------------------------------------------------------------------


async def test_cancel_asks_and_the_result_says(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        handle = await link.start_call("x.do", conversation_id="c-1")
        await wire.accept(await wire.expect("tool.call"))
        task = asyncio.create_task(handle.cancel("changed my mind"))
        cancel = await wire.expect("tool.cancel")
        assert cancel["payload"] == {"call_id": handle.call_id, "reason": "changed my mind"}
        await wire.accept(cancel)
        await soon(task)
        await wire.result(1, handle.call_id, "cancelled")
        assert (await handle.result(1)).status == "cancelled"
        late = asyncio.create_task(link.cancel(handle.call_id))
        await wire.refuse(await wire.expect("tool.cancel"), "call_already_final")
        with pytest.raises(MessageRefused):
            await soon(late)


async def test_get_reads_a_record_and_asks_again_after_a_cut(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = asyncio.create_task(link.get("k-1"))
        first = await wire.expect("tool.get")
        await wire.accept(first)
        await until(lambda: first["message_id"] not in link._session.waiting)
        await wire.cut()  # the receipt came, the answer did not
        wire = await scripted.connection()
        await wire.welcome()
        again = await wire.expect("tool.get")
        await wire.accept(again)
        await wire.say("tool.state", {"call_id": "k-1", "record": {"call_id": "k-1", "status": "running"}})
        assert (await soon(task))["status"] == "running"
        unknown = asyncio.create_task(link.get("k-2"))
        await wire.refuse(await wire.expect("tool.get"), "call_not_found")
        with pytest.raises(MessageRefused, match="call_not_found"):
            await soon(unknown)
        assert link._records == {}


# --- opening and closing ----------------------------------------------------------------------------------------------


async def test_a_wrong_token_is_refused_at_once(scripted: Any) -> None:
    with pytest.raises(LinkRefused, match="401"):
        async with AgentLink(scripted.url, "wrong", "a-1"):
            pass
    assert scripted.requests == 1


async def test_an_unsupported_protocol_is_refused_at_once(scripted: Any, token: str) -> None:
    entering = asyncio.create_task(AgentLink(scripted.url, token, "a-1").__aenter__())
    wire = await scripted.connection()
    hello = await wire.expect("hello")
    await wire.say(
        "error", {"reply_to": hello["message_id"], "code": "protocol_unsupported", "message": "1 is too old"}
    )
    with pytest.raises(LinkRefused, match="too old"):
        await soon(entering)


async def test_nobody_there(token: str) -> None:
    with socket_module.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NoRuntime, match="within"):
        async with AgentLink(f"ws://127.0.0.1:{port}/agent", token, "a-1", open_timeout=0.2):
            pass


async def test_a_redirect_is_not_followed(scripted: Any, token: str) -> None:
    """Whoever holds the port must not get the token sent elsewhere."""
    other_requests: list[bytes] = []

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_requests.append(await reader.read(4096))
        writer.close()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            location = f"ws://127.0.0.1:{elsewhere.sockets[0].getsockname()[1]}/agent"
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        finally:
            writer.close()

    elsewhere = await asyncio.start_server(other, "127.0.0.1", 0)
    async with elsewhere, await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/agent"
        with pytest.raises(NoRuntime):
            async with AgentLink(url, token, "a-1", open_timeout=0.2):
                pass
    assert other_requests == []


async def test_closing_ends_every_wait(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        waits = [
            calling(link),
            asyncio.create_task(link.send_text("c-1", "hi")),
            asyncio.create_task(link.get("k-1")),
        ]
        for type_ in ("tool.call", "message.text", "tool.get"):
            await wire.expect(type_)
        await link.close()
        for wait in waits:
            with pytest.raises(LinkClosed):
                await soon(wait)


async def test_frames_of_a_newer_runtime_are_passed_over(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        await wire.say("brand.new", {"x": 1})
        await wire.say("brand.durable", {"x": 1}, seq=1)
        await wire.acknowledged(1)
        assert link.connected
