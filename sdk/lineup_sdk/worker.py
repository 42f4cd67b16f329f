"""The worker process: ``python -m lineup_sdk.worker``. Owns its own birth and death, nothing of the protocol.

Order at birth: every import, then confinement, then the event loop and ZeroMQ, then (the link is up and sealed) the
MiniApp's code, so that no line of the app and no thread of ZeroMQ ever runs unconfined. It may be the first process of
its namespace, so it installs its signal handlers itself and reaps what is orphaned to it. It ends when the supervisor
is gone: the connection ended, the parent changed, or no ping came for ``SILENCE_S_MAX``.

Environment: ``LINEUP_SOCKET`` (path of the unix socket, or a ZeroMQ endpoint), ``LINEUP_LEVEL`` (isolation level;
``none`` for tests), ``LINEUP_BUNDLE`` (the bundle's folder); ``LINEUP_LIMITS`` is ``confine``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import selectors
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from lineup_sdk import confine
from lineup_sdk.app import MiniApp
from lineup_sdk.runner import Exit, Runner
from lineup_sdk.zmq_channel import ZmqChannel

WELCOME_S_MAX = 30.0  # from hello to welcome; a supervisor under load may be slow, not silent
SILENCE_S_MAX = 120.0  # without a ping; far above any stall that a living supervisor has
WATCH_S = 1.0  # how often the parent and the pings are looked at
TERM_GRACE_MS = 2_000  # after SIGTERM; the supervisor's own request comes with its grace

EXIT_CODES = {"stopped": 0, "runtime_gone": 0, "load_failed": 1, "environment": 2, "refused": 3, "protocol": 4}


def main() -> None:
    """Process entry. Exits with a code of ``EXIT_CODES``."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a pipe into the logs
    try:
        socket, level, bundle = (_required(name) for name in ("LINEUP_SOCKET", "LINEUP_LEVEL", "LINEUP_BUNDLE"))
        if level != "none":
            confine.apply(level)
    except (OSError, confine.ConfineError) as fault:
        _say(f"cannot start: {fault}")
        sys.exit(EXIT_CODES["environment"])

    def load(entry: str) -> MiniApp:
        if level != "none":
            _seal()
        return load_app(entry, bundle)

    if level != "none":
        _use_plain_loops()
    ended = asyncio.run(_serve(_endpoint(socket), load))
    if ended.reason not in ("stopped", "runtime_gone"):
        _say(f"{ended.reason}: {ended.message}")
    _exit(EXIT_CODES[ended.reason])


def _seal() -> None:
    """Or end here: what is not the app's fault must not be reported as one."""
    try:
        confine.seal()
    except confine.ConfineError as fault:
        _say(f"cannot start: {fault}")
        _exit(EXIT_CODES["environment"])


def _use_plain_loops() -> None:
    """Event loops that do with the system calls that a sealed worker has, in any thread: poll and send.

    The kernel counts epoll's watches, and descriptors under way by ``sendmsg``, for all that a person runs.
    """
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc,assignment]  # as where there is no epoll
    if hasattr(asyncio.selector_events, "_HAS_SENDMSG"):  # from Python 3.12 on
        asyncio.selector_events._HAS_SENDMSG = False


def load_app(entry: str, bundle: str) -> MiniApp:
    """Import ``module:attr`` from the bundle's folder.

    Raises:
        ImportError: there is no such module or attribute, or it is not of the bundle, or not a ``MiniApp``.
    """
    module_name, _, attribute = entry.partition(":")
    if bundle not in sys.path:
        sys.path.insert(0, bundle)
    module = importlib.import_module(module_name)
    origin = os.path.realpath(getattr(module, "__file__", None) or "")
    if not origin.startswith(os.path.realpath(bundle) + os.sep):
        raise ImportError(f"entry {entry!r}: {module_name} was found at {origin or 'no file'}, not in the bundle")
    app = getattr(module, attribute, None)
    if not isinstance(app, MiniApp):
        raise ImportError(f"entry {entry!r}: {attribute!r} must be a MiniApp, it is {type(app).__name__}")
    return app


async def _serve(endpoint: str, load: Callable[[str], MiniApp]) -> Exit:
    runner = Runner(ZmqChannel(endpoint), load)
    _install_signals(runner)
    watch = asyncio.create_task(_watch(runner, os.getppid()))
    try:
        return await runner.run()
    finally:
        watch.cancel()


async def _watch(runner: Runner, parent: int) -> None:
    """End the run when the supervisor is gone without a word."""
    seen, silent_s, age_s = 0, 0.0, 0.0
    while True:
        await asyncio.sleep(WATCH_S)
        age_s += WATCH_S
        silent_s = 0.0 if runner.session.pings != seen else silent_s + WATCH_S
        seen = runner.session.pings
        if os.getppid() != parent:
            runner.end("runtime_gone", "the supervisor's process is gone")
        elif runner.session.phase == "greeting" and age_s > WELCOME_S_MAX:
            runner.end("runtime_gone", f"no welcome within {WELCOME_S_MAX:.0f} s")
        elif silent_s > SILENCE_S_MAX:
            runner.end("runtime_gone", f"no ping for {SILENCE_S_MAX:.0f} s")


def _install_signals(runner: Runner) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, runner.stop, "SIGTERM", TERM_GRACE_MS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the supervisor's to handle
    if os.getpid() == 1:
        loop.add_signal_handler(signal.SIGCHLD, _reap)


def _reap() -> None:
    """First process of a PID namespace: whatever is orphaned in it becomes our child and has to be waited for."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def _required(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise OSError(f"{name} is not set; a worker is started by the Runtime, not by hand (try `lineup dev`)")
    return value


def _endpoint(socket: str) -> str:
    return socket if "://" in socket else f"ipc://{socket}"


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the log may have gone with the supervisor
        print(f"lineup worker: {line}", file=sys.stderr, flush=True)


def _exit(code: int) -> NoReturn:
    """End here and now: a thread that the app left behind must not hold the process up."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
