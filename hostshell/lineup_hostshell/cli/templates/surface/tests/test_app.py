"""The bundle on the test kit's Runtime: the real rules, in memory, without a daemon. Run with `lineup check`."""

from pathlib import Path

from lineup_testkit import StubRuntime

BUNDLE = Path(__file__).parents[1]


async def test_what_the_person_hands_in_is_the_result(stub_runtime: StubRuntime) -> None:
    await stub_runtime.add(BUNDLE)
    call = await stub_runtime.start_call("my-miniapp.count", {"start": 3})
    surface = await stub_runtime.surface()
    assert surface["state"] == {"count": 3}
    await stub_runtime.patch(surface["surface_id"], {"count": 5})
    await stub_runtime.submit(surface["surface_id"], {"count": 5})
    record = await call.result()
    assert record["status"] == "completed"
    assert record["result"] == {"count": 5}
