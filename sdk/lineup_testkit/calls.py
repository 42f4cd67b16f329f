"""One tool call as the agent of a test sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lineup_testkit.stub import StubRuntime

Body = dict[str, Any]


class CallNotCompleted(AssertionError):
    """The call ended in another way; ``outcome`` is what the agent got."""

    def __init__(self, call_id: str, outcome: Body) -> None:
        super().__init__(f"call {call_id} is {outcome['status']}: {outcome.get('error')}")
        self.outcome = outcome


class StubCall:
    """``receipt`` answers the call itself; ``outcome`` is its one result, None while it is open."""

    def __init__(self, runtime: StubRuntime, call_id: str) -> None:
        self._runtime = runtime
        self.call_id = call_id
        self.receipt: Body = {}
        self.outcome: Body | None = None
        self.progress: list[Body] = []  # ``{progress, message?, at}``, each that reached the agent

    def hear(self, type_: str, payload: Body) -> None:
        """A frame of this call has reached the agent."""
        if type_.endswith("progress"):
            if payload not in self.progress:
                self.progress.append(payload)
        else:
            assert self.outcome in (None, payload), f"call {self.call_id} has two results"
            self.outcome = payload

    @property
    def is_open(self) -> bool:
        return self.outcome is None

    @property
    def record(self) -> Body:
        """The Runtime's record of the call."""
        return dict(self._runtime.query("call", call_id=self.call_id))

    @property
    def status(self) -> str:
        """``received`` … ``completed`` | ``failed`` | ``cancelled`` | ``expired`` | ``rejected``."""
        return str(self.record["status"])

    @property
    def result(self) -> Body:
        """The completed call's result.

        Raises:
            CallNotCompleted: it ended in another way.
            AssertionError: it is still open.
        """
        assert self.outcome is not None, f"call {self.call_id} is still open ({self.status})"
        if self.outcome["status"] != "completed":
            raise CallNotCompleted(self.call_id, self.outcome)
        return dict(self.outcome["result"])

    @property
    def error(self) -> Body:
        """The error of a call that did not complete."""
        assert self.outcome is not None, f"call {self.call_id} is still open ({self.status})"
        assert "error" in self.outcome, f"call {self.call_id} completed with {self.outcome['result']}"
        return dict(self.outcome["error"])

    async def wait(self) -> Body:
        """Until it has ended; its result. Raises as ``result``."""
        await self._runtime.wait(lambda: self.outcome, f"the end of call {self.call_id}")
        return self.result

    async def cancel(self, reason: str = "cancelled by the test") -> Body:
        """Ask for its end; the receipt."""
        return await self._runtime.cancel(self.call_id, reason)
