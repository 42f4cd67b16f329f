"""Lists what it was born with: descriptors, environment, arguments, mounts, names."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


def of_the_kernel(name: str) -> str:
    return Path(f"/proc/self/{name}").read_bytes().decode(errors="replace")


@app.tool("snoop.inherited")
async def inherited(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the listing's own
    return {
        "descriptors": descriptors,
        "environment": dict(os.environ),
        "first_environment": of_the_kernel("environ"),
        "arguments": of_the_kernel("cmdline"),
        "python_arguments": sys.argv,
        "user": os.getuid(),
        "parent": os.getppid(),
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "groups": os.getgroups(),
    }
