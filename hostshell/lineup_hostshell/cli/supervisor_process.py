"""Runs one job of the supervisor's program (``python -m lineup_supervisor JOB …``) while no daemon serves.

The command line never opens a store itself: whoever touches one is the supervisor's own code, under its lock.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from lineup_hostshell.cli.failure import EXIT_FAILURE, EXIT_NO_RUNTIME, CommandFailure, no_runtime
from lineup_protocol.errors import CODES, LineUpError

# How LMDB ends a process that follows a damaged page.
_FALLS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_SENTENCE_LENGTH_MAX = 2000


def run_job(job: str, *arguments: str, home: Path) -> str:
    """The job's standard output.

    Raises:
        CommandFailure: with the job's own last words.
    """
    argv = _argv(job, *arguments, home=home)
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise _failure(job, done.returncode, done.stderr, home)
    return done.stdout


def _argv(job: str, *arguments: str, home: Path) -> list[str]:
    return [sys.executable, "-m", "lineup_supervisor", job, *arguments, "--home", str(home)]


def _failure(job: str, code: int, said: str, home: Path) -> CommandFailure:
    if -code in _FALLS:
        return CommandFailure(
            f"store_damaged: the store in {home / 'data'} cannot be used: whoever reads it is ended by "
            f"{signal.Signals(-code).name}; it was left as it is",
            "restore a backup into an empty home with `lineup restore FILE`",
        )
    words = [line.strip() for line in said.splitlines() if line.strip()]
    cause = words[-1][:_SENTENCE_LENGTH_MAX] if words else f"`{job}` ended with exit code {code}"
    return CommandFailure(cause.removeprefix("lineup: "), exit_code=code if code > 0 else EXIT_FAILURE)


def run_json_job(job: str, *arguments: str, home: Path) -> Any:
    """The same for a job that prints one JSON value."""
    output = run_job(job, *arguments, home=home)
    try:
        return json.loads(output)
    except ValueError as error:
        raise CommandFailure(f"`{job}` printed no JSON", "report it with its output") from error


class StoppedHome:
    """Questions to the store of a home that no Runtime has open: ``query`` as a running Runtime would answer it, out of
    one snapshot. No Runtime can start there meanwhile. Use as a context manager.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._job: subprocess.Popen[str] | None = None

    def __enter__(self) -> StoppedHome:
        """Raises CommandFailure: exit 7 if nothing was ever kept there, or a Runtime is just about to start or end."""
        if not (self._home / "data").is_dir():
            raise no_runtime(self._home)
        pipe = subprocess.PIPE
        self._job = subprocess.Popen(_argv("look", home=self._home), stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        try:
            self._answer()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.kill()  # it only reads
            job.communicate()

    def query(self, name: str, args: dict[str, Any] | None = None) -> Any:
        """The detail of one query. Raises LineUpError with the refusal's code, as the link to a Runtime does."""
        job = self._live()
        self._stream(job.stdin).write(json.dumps({"name": name, "args": args or {}}) + "\n")
        self._stream(job.stdin).flush()
        answer = self._answer()
        if answer["accepted"]:
            return answer.get("detail")
        assert answer["code"] in CODES
        raise LineUpError(answer["code"], answer["message"])

    def _answer(self) -> dict[str, Any]:
        job = self._live()
        line = self._stream(job.stdout).readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        _, said = job.communicate()
        self._job = None
        if "store_locked" in said:
            raise CommandFailure(
                f"the Runtime of {self._home} is starting or stopping just now", "try again", exit_code=EXIT_NO_RUNTIME
            )
        if "lineup: no_runtime: " in said:
            raise no_runtime(self._home)
        raise _failure("look", job.returncode, said, self._home)

    def _live(self) -> subprocess.Popen[str]:
        assert self._job is not None, "it is closed"
        return self._job

    @staticmethod
    def _stream(stream: TextIO | Any) -> TextIO:
        assert stream is not None
        return stream
