"""The bundle on the test kit's Runtime: the real rules, in memory, without a daemon. Run with `lineup check`."""

from lineup_testkit import StubRuntime


async def test_it_greets_by_name(stub_runtime: StubRuntime) -> None:
    call = await stub_runtime.call("my-miniapp.greet", {"name": "Ada"})
    assert call.result == {"greeting": "Hello, Ada!"}
    assert call.progress[-1]["message"] == "finding the words"


async def test_an_empty_name_is_refused(stub_runtime: StubRuntime) -> None:
    call = await stub_runtime.call("my-miniapp.greet", {"name": ""})
    assert call.status == "rejected"
    assert call.error["code"] == "tool_input_invalid"
