"""The bundle on the test kit's Runtime: the real rules, in memory, without a daemon. Run with `lineup check`."""

from lineup_testkit import StubRuntime


async def test_what_the_person_hands_in_is_the_result(stub_runtime: StubRuntime) -> None:
    call = await stub_runtime.call("my-miniapp.count", {"start": 3})
    assert stub_runtime.surface()["state"] == {"count": 3}
    await stub_runtime.surface_patch({"count": 5})
    await stub_runtime.surface_submit({"count": 5})
    assert call.result == {"count": 5}


async def test_another_call_counts_on_on_the_same_page(stub_runtime: StubRuntime) -> None:
    first = await stub_runtime.call("my-miniapp.count", {"start": 3})
    second = await stub_runtime.call("my-miniapp.count", {"start": 8})
    assert stub_runtime.surface()["state"] == {"count": 8}
    await stub_runtime.surface_submit({"count": 9})
    assert first.result == second.result == {"count": 9}


async def test_it_leaves_the_screen_when_it_is_done_and_comes_again(stub_runtime: StubRuntime) -> None:
    await stub_runtime.call("my-miniapp.count", {"start": 3})
    await stub_runtime.surface_submit({"count": 3})
    assert not stub_runtime.is_open("my-miniapp")
    await stub_runtime.call("my-miniapp.count", {"start": 7})
    assert stub_runtime.surface()["state"] == {"count": 7}


async def test_its_close_button_cancels_the_call(stub_runtime: StubRuntime) -> None:
    call = await stub_runtime.call("my-miniapp.count", {"start": 3})
    await stub_runtime.surface_event("close", {})
    assert call.status == "cancelled"
    assert not stub_runtime.is_open("my-miniapp")


async def test_so_does_closing_the_page(stub_runtime: StubRuntime) -> None:
    call = await stub_runtime.call("my-miniapp.count", {"start": 3})
    await stub_runtime.act("surface.torn", surface_id=stub_runtime.surface()["surface_id"])
    assert call.status == "cancelled"
    assert not stub_runtime.is_open("my-miniapp")
