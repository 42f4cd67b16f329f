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
