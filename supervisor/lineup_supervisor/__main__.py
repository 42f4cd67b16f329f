"""``python -m lineup_supervisor``: the daemon (``run``), and jobs without one (``backup``, ``restore``, ``look``,
``doctor``).

This file owns the command line, the exit codes and the one sentence on stderr. The ``lineup`` command is what people
use; it calls this.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import json
import os
import resource
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from lineup_protocol.errors import LineUpError
from lineup_supervisor.config import DEFAULT_PORT, Config, read_config
from lineup_supervisor.edges.file_faults import file_fault
from lineup_supervisor.home import Home, default_home, open_home, trace_of_past

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_BUG = 0, 1, 2, 70
LOOPBACK = "127.0.0.1"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.job(options))
    except LineUpError as error:
        _complain(str(error))
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_FAILED
    except OSError as error:
        if not _is_of_home(error, options.home or default_home()):
            return _bug(error)
        _complain(str(file_fault(error, "")))
        return EXIT_FAILED
    except Exception as error:
        return _bug(error)


def _bug(error: Exception) -> int:
    traceback.print_exception(error)
    _complain(f"internal_error: {error!r}; please report it with the story above")
    return EXIT_BUG


def _is_of_home(error: OSError, root: Path) -> bool:
    """A file of the home that refuses, whichever it is, is the operator's to mend and no fault of the program."""
    named = error.filename
    return isinstance(named, str) and Path(named).is_relative_to(os.path.abspath(root))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("lineup_supervisor", description="The LineUp Runtime's supervisor.")
    jobs = parser.add_subparsers(required=True, metavar="JOB")
    run = _job(jobs, "run", _run, "be the daemon, in the foreground")
    run.add_argument("--port", type=_port, help="loopback port of workspace and agent link; 0: any free one")
    run.add_argument("--no-web", action="store_true", help="without workspace and agent link")
    run.add_argument("--demo", action="store_true", help="with the demo agent")
    backup = _job(jobs, "backup", _backup, "write a backup of a home that no daemon has open")
    backup.add_argument("file", type=Path)
    restore = _job(jobs, "restore", _restore, "make a home out of a backup; it must be empty")
    restore.add_argument("file", type=Path)
    _job(jobs, "look", _look, "answer questions about a home that no daemon has open")
    doctor = _job(jobs, "doctor", _doctor, "probe what this machine can isolate")
    doctor.add_argument("--json", action="store_true", help="print the report as JSON (it always is)")
    return parser


def _job(jobs: Any, name: str, job: Any, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = jobs.add_parser(name, help=help_text)
    parser.add_argument("--home", type=Path, default=None, help="else $LINEUP_HOME, else the user data directory")
    parser.set_defaults(job=job)
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    from lineup_supervisor.crash_points import arm

    arm()
    allow_all_descriptors()
    if options.port is not None and not options.no_web:
        check_port(options.port)  # before a home is made that nobody wanted under another port
    home = open_home(options.home or default_home())
    config = read_config(home.config)
    if not options.no_web:
        options.port = usable_port(config, options.port)
    return _run_daemon(home, config, options)


def allow_all_descriptors() -> None:
    """As many as this process may have, for hostshell too, which inherits it; a worker is told its own number.

    The soft limit is usually 1,024, for the sake of programs that use select(); 64 workers take up to a thousand.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # then with what there is
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def usable_port(config: Config, wanted: int | None) -> int | None:
    """What was asked for, or nothing asked; 0 for any, when nobody chose a port and the usual one is taken.

    Raises:
        LineUpError: ``port_unusable`` for a port that was chosen, on the command line or in the configuration.
    """
    try:
        check_port(config.web_port if wanted is None else wanted)
    except LineUpError:
        if wanted is not None or config.web_port != DEFAULT_PORT:
            raise
        _complain(f"port {DEFAULT_PORT} is in use, so this Runtime takes another one")
        return 0
    return wanted


def _run_daemon(home: Home, config: Config, options: argparse.Namespace) -> int:
    """Open the store first: whoever holds its lock is the one Runtime of this home, and nothing was touched before."""
    from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
    from lineup_supervisor.daemon import Daemon, Fatal, Options
    from lineup_supervisor.edges.store import Store
    from lineup_supervisor.runtime_log import RuntimeLog
    from lineup_supervisor.store_migrations import MIGRATIONS

    store = Store.open(
        home.data,
        TABLES,
        schema_version=SCHEMA_VERSION,
        migrations=MIGRATIONS,
        trace=lambda: trace_of_past(home),
    )
    log = RuntimeLog(home.logs / "runtime.log", config.log_level)
    try:
        if (warning := store.warning()) is not None:
            log.warning("store in a doubtful place", detail=warning)
            print(f"lineup: {warning}", file=sys.stderr)
        if (fault := log.fault()) is not None:
            print(f"lineup: {fault}", file=sys.stderr)
        daemon = Daemon(home, config, Options(options.port, not options.no_web, options.demo), store, log)
        # Programs and tables live as long as the process, and a step leaves nothing behind that refers to itself.
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(daemon.run())
        _say_goodbye()
        return EXIT_OK
    except Fatal as error:
        from lineup_supervisor.store_rules import contradiction

        if (found := contradiction(store)) is not None:
            raise found from error
        _complain(f"internal_error: {error}; {home.logs / 'runtime.log'} has the story")
        return EXIT_BUG
    finally:
        store.close()
        log.close()


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _backup(options: argparse.Namespace) -> int:
    from lineup_supervisor.backup import remove_half_made, write_backup
    from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
    from lineup_supervisor.edges.store import Store
    from lineup_supervisor.store_migrations import MIGRATIONS

    root = options.home or default_home()
    if not (root / "data" / "data.mdb").exists():
        raise LineUpError("not_found", f"there is nothing to back up in {root}")
    home = open_home(root)
    store = Store.open(home.data, TABLES, schema_version=SCHEMA_VERSION, migrations=MIGRATIONS)
    try:
        remove_half_made(home)
        write_backup(store, home, options.file.absolute())
    finally:
        store.close()
    return EXIT_OK


def _restore(options: argparse.Namespace) -> int:
    from lineup_supervisor.backup import restore_backup
    from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
    from lineup_supervisor.store_migrations import MIGRATIONS

    root = Path(os.path.abspath(options.home or default_home()))
    restore_backup(options.file.absolute(), root, TABLES, SCHEMA_VERSION, MIGRATIONS)
    return EXIT_OK


def _look(options: argparse.Namespace) -> int:
    from lineup_supervisor.stopped_home import serve

    serve(Path(os.path.abspath(options.home or default_home())), sys.stdin, sys.stdout)
    return EXIT_OK


def _doctor(options: argparse.Namespace) -> int:
    from lineup_supervisor.isolation import probe_without_daemon

    print(json.dumps(probe_without_daemon()))
    return EXIT_OK


def check_port(port: int) -> None:
    """Raises LineUpError ``usage`` if somebody else listens there; hostshell takes the port a moment later."""
    if port == 0:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            why = "in use" if error.errno == errno.EADDRINUSE else f"not usable ({error.strerror})"
            raise LineUpError(
                "port_unusable", f"port {port} is {why}; choose another with --port, 0 takes any free one"
            ) from error


def _say_goodbye() -> None:
    """Past the buffers: a reader that has left must not turn a clean end into another exit code."""
    try:
        os.write(1, b"The Runtime has stopped.\n")
    except OSError:
        pass


def _complain(sentence: str) -> None:
    try:
        print(f"lineup: {sentence}", file=sys.stderr)
    except OSError:
        pass  # a closed terminal; the exit code says it too


if __name__ == "__main__":
    sys.exit(main())
