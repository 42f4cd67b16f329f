"""A MiniApp for tests that forks twice, in sessions of their own, and so tries to outlive everybody."""

from __future__ import annotations

import os
import signal
import time

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()
CHAINS = 3


@app.tool("forking.fork")
async def fork(call: ToolCall, sdk: SDK) -> dict[str, object]:
    started = [chain() for _ in range(CHAINS)]
    return {"text": str(len(started)), "proof": ",".join(map(str, started)), "attempt": call.attempt}


@app.tool("forking.echo")
async def echo(call: ToolCall, sdk: SDK) -> dict[str, object]:
    return {"text": call.input["text"], "proof": "", "attempt": call.attempt}


def chain() -> int:
    """Fork, lead a session, fork again: the grandchild has no parent that anybody knows."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.write(writer, str(os.getpid()).encode())
        time.sleep(600)
        os._exit(0)
    os.close(writer)
    return int(os.read(reader, 32))
