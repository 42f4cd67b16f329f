"""The bundle on the test kit's Runtime: the real rules, in memory, without a daemon. Run with `lineup check`."""

from pathlib import Path

from lineup_testkit import StubRuntime

BUNDLE = Path(__file__).parents[1]


async def test_it_greets_by_name(stub_runtime: StubRuntime) -> None:
    await stub_runtime.add(BUNDLE)
    record = await stub_runtime.call("my-miniapp.greet", {"name": "Ada"})
    assert record["status"] == "completed"
    assert record["result"] == {"greeting": "Hello, Ada!"}


async def test_an_empty_name_is_refused(stub_runtime: StubRuntime) -> None:
    await stub_runtime.add(BUNDLE)
    record = await stub_runtime.call("my-miniapp.greet", {"name": ""})
    assert record["status"] == "rejected"
    assert record["error"]["code"] == "tool_input_invalid"
