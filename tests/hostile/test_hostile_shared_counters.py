"""What the kernel counts for all programs of a person together: a worker cannot take it from the others.

See "What all of a person's programs share" in docs/isolation.md.
"""

from __future__ import annotations

import fcntl
import os
import platform
import select
import socket

import pytest

from hostile.support.stage import Stage
from lineup_protocol import limits

DENIED, UNKNOWN = "Operation not permitted", "Function not implemented"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the MiniApp has the numbers of that processor")
async def test_nothing_that_all_programs_share_can_be_used_up(on_confined: Stage) -> None:
    stage = on_confined
    call_id, found = await stage.tried("sharer.take")
    assert found.pop("timers") <= limits.WORKER_PENDING_SIGNALS_MAX
    assert found.pop("pending_signals") == [limits.WORKER_PENDING_SIGNALS_MAX] * 2
    assert found.pop("watches") == 0, "only under the link's own numbers"
    is_bare_root = os.geteuid() == 0 and stage.runtime.facts()["isolation"] != "S3"  # for whom no such limit counts
    assert (found.pop("locked memory") != "done") or is_bare_root
    assert found == {
        **dict.fromkeys(("sendmsg", "sendmsg as at the hand-over", "sendmmsg", "seccomp"), DENIED),
        **dict.fromkeys(("big pipe", "epoll", "epoll_create"), DENIED),
        **dict.fromkeys(("inotify", "mlock", "aio"), UNKNOWN),
        **dict.fromkeys(
            ("fanotify", "message queue", "io_uring", "bpf", "perf", "userfaultfd", "key", "memfd"), DENIED
        ),
    }
    assert {"sendmsg", "sendmmsg", "fcntl F_SETPIPE_SZ", "epoll_create1", "epoll_ctl"} <= await stage.denied(call_id)
    # It lives on with all that it has: others start and work, and so does whatever else the person runs.
    await stage.completed("bystander.echo", {"text": "a new one"})
    await stage.completed("bystander.echo", {"text": "another"})
    assert_others_have_all_of_it()


def assert_others_have_all_of_it() -> None:
    ends = socket.socketpair()
    reader, writer = os.pipe()
    with ends[0], ends[1], select.epoll() as poll:
        socket.send_fds(ends[0], [b"x"], [reader] * 200)
        poll.register(reader)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.close(reader)
    os.close(writer)


async def test_an_apps_own_event_loops_do_without(on_confined: Stage) -> None:
    assert await on_confined.completed("sharer.loops") == {"heard": 600_000, "heard_here": 600_000}
