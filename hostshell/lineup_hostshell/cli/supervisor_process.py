"""Runs one short job of the supervisor's program (``python -m lineup_supervisor JOB …``) while no daemon serves.

The command line never opens a store itself: whoever touches one is the supervisor's own code, under its lock.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from lineup_hostshell.cli.failure import EXIT_FAILURE, CommandFailure

_SENTENCE_LENGTH_MAX = 2000


def run_job(job: str, *arguments: str, home: Path) -> str:
    """The job's standard output.

    Raises:
        CommandFailure: with the job's own last words.
    """
    argv = [sys.executable, "-m", "lineup_supervisor", job, *arguments, "--home", str(home)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        cause = words[-1][:_SENTENCE_LENGTH_MAX] if words else f"`{job}` ended with exit code {done.returncode}"
        raise CommandFailure(
            cause.removeprefix("lineup: "), exit_code=done.returncode if done.returncode > 0 else EXIT_FAILURE
        )
    return done.stdout


def run_json_job(job: str, *arguments: str, home: Path) -> Any:
    """The same for a job that prints one JSON value."""
    output = run_job(job, *arguments, home=home)
    try:
        return json.loads(output)
    except ValueError as error:
        raise CommandFailure(f"`{job}` printed no JSON", "report it with its output") from error
