"""``lineup up`` and ``lineup down``: start and stop the one daemon of a home.

Owns the processes of both commands. The daemon itself decides everything else: whether the home is usable, the port
free, another Runtime there.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from lineup_hostshell.cli.failure import EXIT_FAILURE, CommandFailure
from lineup_hostshell.cli.group import command, home_option
from lineup_hostshell.cli.homes import (
    ProcessHandle,
    RuntimeInfo,
    find_daemon,
    find_runtime,
    has_desktop,
    runtime_json,
)
from lineup_hostshell.cli.output import note, safe_line, say

READY_WITHIN_S = 60.0  # a large store, a cold disk and a probe of the isolation fit well into it
STOP_WITHIN_S = 30.0  # the Runtime's own grace for workers is shorter
TERM_WITHIN_S = 10.0
_POLL_S = 0.05
_ERROR_BYTES_MAX = 4096


@command("up", "lineup up --demo", "lineup up --port 0 --detach")
@home_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    metavar="N",
    help="Loopback port of the workspace and the agent link; 0 means any free one.",
)
@click.option("--detach", is_flag=True, help="Return once it is ready; it goes on in the background.")
@click.option("--no-web", is_flag=True, help="Without the workspace and the agent link.")
@click.option("--demo", is_flag=True, help="With the rule-based demo agent, which needs no model and no key.")
@click.option("--open/--no-open", "open_browser", default=None, help="Show the workspace in the browser when ready.")
def up(home: Path, port: int | None, detach: bool, no_web: bool, demo: bool, open_browser: bool | None) -> None:
    """Start the Runtime, in the foreground unless --detach is given."""
    argv = daemon_argv(home, port=port, no_web=no_web, demo=demo)
    running = find_runtime(home)
    if running is not None:
        raise CommandFailure(
            f"a Runtime is already running for {home} (pid {running.pid})",
            "`lineup status` looks at it, `lineup down` stops it",
        )
    if open_browser is None:
        open_browser = has_desktop() and not no_web
    if detach:
        _start_detached(home, argv, open_browser=open_browser)
    else:
        _become_daemon(home, argv, open_browser=open_browser)


def daemon_argv(home: Path, *, port: int | None, no_web: bool, demo: bool) -> list[str]:
    argv = [sys.executable, "-m", "lineup_supervisor", "run", "--home", str(home)]
    if port is not None:
        argv += ["--port", str(port)]
    if no_web:
        argv.append("--no-web")
    if demo:
        argv.append("--demo")
    return argv


def _become_daemon(home: Path, argv: list[str], *, open_browser: bool) -> None:
    """Replace this process by the daemon: pid, signals, exit code and readiness of `lineup up` are the daemon's own."""
    sys.stdout.flush()
    sys.stderr.flush()
    _leave_announcer(home, os.getpid(), open_browser=open_browser)
    os.execv(argv[0], argv)


def _leave_announcer(home: Path, daemon_pid: int, *, open_browser: bool) -> None:
    """Leave a short-lived process that says when the daemon is ready; it is nobody's child, so nobody must reap it."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    if os.fork():
        os._exit(0)
    code = EXIT_FAILURE
    try:
        with ProcessHandle(daemon_pid) as daemon:
            info = wait_ready(home, daemon, timeout_s=READY_WITHIN_S)
        if info is not None:
            announce(home, info, open_browser=open_browser)
            sys.stdout.flush()
        code = 0
    except (KeyboardInterrupt, OSError, CommandFailure):
        pass  # the daemon has said it already, or the terminal is gone
    finally:
        os._exit(code)


def wait_ready(home: Path, daemon: ProcessHandle, *, timeout_s: float) -> RuntimeInfo | None:
    """The Runtime once its runtime.json has appeared; None if the daemon ended first or time is over."""
    give_up_at = time.monotonic() + timeout_s
    while time.monotonic() < give_up_at:
        info = find_runtime(home)
        if info is not None and info.pid == daemon.pid:
            return info
        if daemon.wait_gone(_POLL_S):
            return None
    return None


def announce(home: Path, info: RuntimeInfo, *, open_browser: bool) -> None:
    """Print the way into the workspace; a browser that cannot be opened is no failure."""
    click.echo(f"LineUp Runtime {info.version} is ready (isolation {info.isolation}, pid {info.pid}).")
    if not info.workspace_url:
        return
    from lineup_hostshell.cli.open_command import fresh_link, show_in_browser
    from lineup_protocol.errors import LineUpError

    try:
        url = fresh_link(home, info, info.workspace_url)
    except LineUpError as problem:
        note(f"No link could be made ({problem}).")
        return
    click.echo(f"Workspace: {safe_line(url)}")
    say("The link works once, within ten minutes; `lineup open` makes another one.")
    if open_browser:
        show_in_browser(home, info, url)


def _start_detached(home: Path, argv: list[str], *, open_browser: bool) -> None:
    output = _detached_output(home)
    with output.open("wb") as stream:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True, cwd="/"
        )
    with ProcessHandle(child.pid) as daemon:
        info = wait_ready(home, daemon, timeout_s=READY_WITHIN_S)
        if info is not None:
            for line in _remarks(output):
                note(line)
            announce(home, info, open_browser=open_browser)
            return
        if not daemon.wait_gone(0):
            _end(daemon)
            raise CommandFailure(
                f"the Runtime was not ready within {READY_WITHIN_S:.0f} s and was stopped",
                f"`lineup logs` and {output} say how far it came",
            )
    code = child.wait()
    raise CommandFailure(
        _last_words(output) or _why_nothing_was_said(output, code),
        exit_code=code if code > 0 else EXIT_FAILURE,
    )


def _detached_output(home: Path) -> Path:
    """Where a detached daemon's own stdout and stderr go: an empty file of ours alone, in a home made like the daemon
    would."""
    logs = home / "logs"
    output = logs / "detached.out"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        logs.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)  # one of an earlier version
        finally:
            os.close(fd)
    except OSError as error:
        where = error.filename or output
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise CommandFailure(
                f"storage_full: {where} cannot be written: {error.strerror}",
                "free some disk space or choose another home with --home DIR",
            ) from error
        raise CommandFailure(
            f"home_unusable: {where} cannot be used: {error.strerror}", "choose another with --home DIR"
        ) from error
    return output


def _remarks(output: Path) -> list[str]:
    """What the daemon had to say while it started, for example that it took another port."""
    data = output.read_bytes()[:_ERROR_BYTES_MAX]
    return [line for line in data.decode("utf-8", "replace").splitlines() if line.startswith("lineup: ")]


def _last_words(output: Path) -> str:
    """The one sentence that the daemon left on stderr when it could not start."""
    data = output.read_bytes()[-_ERROR_BYTES_MAX:]
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("lineup: ").rstrip(".") if lines else ""


def _why_nothing_was_said(output: Path, code: int) -> str:
    """On a full disk the file that would have its last words is empty."""
    try:
        with output.open("ab", buffering=0) as stream:
            stream.write(b"\n")
    except OSError as error:
        return f"storage_full: {output} cannot be written ({error.strerror}); free disk space and start it again"
    return f"the Runtime ended with exit code {code} before it was ready; start it without --detach to see more"


@command("down", "lineup down")
@home_option
def down(home: Path) -> None:
    """Stop the Runtime of this home and wait until everything is gone."""
    info = find_runtime(home)
    pid = find_daemon(home) if info is None else info.pid  # one that is starting, or stopping, has no runtime.json
    if pid is None:
        click.echo(f"No Runtime is running for {home}.")
        return
    with ProcessHandle(pid) as daemon:
        # The handle is on the right process only if it is still there now.
        if find_daemon(home) != pid and find_runtime(home) is None:
            click.echo("The Runtime had just stopped.")
            return
        _ask_to_stop(home, daemon, is_up=info is not None)
        if not daemon.wait_gone(STOP_WITHIN_S):
            note(f"The Runtime (pid {pid}) did not stop within {STOP_WITHIN_S:.0f} s; ending the process.")
            _end(daemon)
    if info is not None:
        _remove_left_behind(home, info)
    click.echo("The Runtime has stopped.")


def _ask_to_stop(home: Path, daemon: ProcessHandle, *, is_up: bool) -> None:
    """Ask over the link, which one that stops already takes for nothing new; one that cannot be asked (not yet, or not
    any more, if it is not up) gets the signal that means the same."""
    from lineup_hostshell.cli.link import act
    from lineup_protocol.errors import LineUpError

    try:
        act(home, "runtime.stop", {})
    except (LineUpError, CommandFailure) as problem:
        if not daemon.wait_gone(0):
            if is_up:
                note(f"The Runtime does not answer ({problem}); sending it SIGTERM.")
            daemon.send(signal.SIGTERM)


def _end(daemon: ProcessHandle) -> None:
    """TERM, then KILL. The workers die with the supervisor."""
    daemon.send(signal.SIGTERM)
    if daemon.wait_gone(TERM_WITHIN_S):
        return
    daemon.send(signal.SIGKILL)
    if not daemon.wait_gone(TERM_WITHIN_S):
        raise CommandFailure(f"process {daemon.pid} cannot be ended", "look at it with your system's tools")


def _remove_left_behind(home: Path, info: RuntimeInfo) -> None:
    """A killed Runtime leaves its runtime.json; remove exactly that one."""
    path = runtime_json(home)
    try:
        if info.boot_id in path.read_text(encoding="utf-8"):
            path.unlink()
    except OSError:
        pass
