"""``python -m lineup_supervisor`` as a stand-in: a process that comes up, answers and stops like the daemon.

``FAKE_MODE`` makes it misbehave: ``refuse`` (one sentence, exit 4), ``deaf`` (takes ``runtime.stop``, goes on, ignores
SIGTERM), ``crash`` (a traceback's worth of noise, exit 1), ``restored`` (a restore that succeeds),
a number (``look`` ends by that signal).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from lineup_supervisor.fake import FakeRuntime


def main(argv: list[str]) -> int:
    home = Path(argv[argv.index("--home") + 1])
    mode = os.environ.get("FAKE_MODE", "")
    if argv[0] == "doctor":
        layers = [{"name": "S3 user namespaces", "ok": False, "cause": "off", "fix": "on"}, {"name": "S2", "ok": True}]
        print(json.dumps({"level": mode or "S2", "layers": layers}))
        return 0
    if argv[0] == "restore":
        if mode == "restored":
            home.mkdir(exist_ok=True)
            return 0
        print("lineup: store_damaged: the backup cannot be read.", file=sys.stderr)
        return 1
    if argv[0] == "look":
        os.kill(os.getpid(), int(mode))
    if mode == "refuse":
        print("lineup: port 4990 is taken; choose another with --port N.", file=sys.stderr)
        return 4
    return serve(home, argv, deaf=mode == "deaf")


def serve(home: Path, argv: list[str], *, deaf: bool) -> int:
    asked = {signal.SIGUSR1} | (set() if deaf else {signal.SIGTERM, signal.SIGINT})
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)  # before the thread starts, so that it inherits it
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with FakeRuntime(home) as runtime:
        over = runtime.stopping

        def stop(args: dict[str, Any]) -> dict[str, Any]:
            if not deaf:
                os.kill(os.getpid(), signal.SIGUSR1)
            return {}

        runtime.actions["runtime.stop"] = stop
        runtime.actions["apps.add"] = lambda args: {"app_scope": "x"}
        runtime.queries["status"] = lambda args: {
            "instances": [],
            "apps": [],
            "open_calls": 0,
            "outbox": 0,
            "argv": argv,
        }
        info = {
            "pid": os.getpid(),
            "boot_id": f"b-{os.getpid()}",
            "agent_url": "ws://127.0.0.1:1/agent",
            "workspace_url": "http://127.0.0.1:1/",
            "version": "0.1.0",
            "protocol": 1,
            "isolation": "S3",
        }
        path = home / "run" / "runtime.json"
        path.with_suffix(".new").write_text(json.dumps(info))
        path.with_suffix(".new").rename(path)
        signal.sigwait(asked)
        path.unlink()
        over.set()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
