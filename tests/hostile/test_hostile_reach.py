"""MiniApps that reach for what is not theirs: files, sockets, processes, the kernel, and what they were born with."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hostile.support.stage import Stage, assert_harmless
from processes.support.family import descendants


def assert_all_denied(found: dict[str, str]) -> None:
    assert found
    assert {name: said for name, said in found.items() if not said.startswith("denied")} == {}


def level_of(stage: Stage) -> str:
    return str(stage.runtime.facts()["isolation"])


async def test_files_that_are_not_its_own(on_confined: Stage) -> None:
    stage, home = on_confined, on_confined.runtime.home
    await stage.completed("bystander.echo", {"text": "there are others"})
    other = next(path for path in (home / "apps").glob("*/app.py") if "Minds its own" in path.read_text())
    sockets = [path for path in (home / "run").rglob("*") if path.is_socket()]
    files = {
        "token": home / "run" / "agent.token",
        "discovery": home / "run" / "runtime.json",
        "store": next((home / "data").glob("*.mdb")),
        "log": home / "logs" / "runtime.log",
        "another bundle": other,
        "config": home / "config.toml",
        "passwd": Path("/etc/passwd"),
        "shell": Path("/bin/sh"),
        "host socket": home / "run" / "host.sock",
        **{f"socket {n}": path for n, path in enumerate(sockets)},
    }
    folders = {
        "home": Path.home(),
        "lineup home": home,
        "data": home / "data",
        "run": home / "run",
        "workers": home / "run" / "w",
        "apps": home / "apps",
        "another bundle": other.parent,
        "root": Path("/"),
        "etc": Path("/etc"),
    }
    before = {
        name: path.read_bytes() for name, path in files.items() if path.is_file() and name not in ("log", "store")
    }
    wanted = {"files": {k: str(v) for k, v in files.items()}, "folders": {k: str(v) for k, v in folders.items()}}
    found = await assert_harmless(stage, lambda: stage.completed("prowler.files", wanted))
    if level_of(stage) == "S3":  # its own view has a root, and in it what it needs itself; not this machine's
        assert set(os.listdir("/")) - set(re.findall(r"'([^']+)'", found.pop("root: list")))
    assert_all_denied(found)
    assert {name: files[name].read_bytes() for name in before} == before


async def test_every_kind_of_socket(on_confined: Stage) -> None:
    stage, home = on_confined, on_confined.runtime.home
    facts = stage.runtime.facts()
    ports = {name: urlsplit(facts[f"{name}_url"]).port for name in ("agent", "workspace")}
    name = f"@lineup-hostile-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.create_server(("127.0.0.1", 0)) as tcp:
        abstract.bind("\0" + name[1:])
        abstract.listen(1)
        ports["another"] = tcp.getsockname()[1]
        sockets = {"host": str(home / "run" / "host.sock"), "abstract": name, "dbus": "/run/dbus/system_bus_socket"}
        wanted = {"ports": ports, "sockets": sockets}
        call_id, found = await assert_harmless(stage, lambda: stage.tried("caller.network", wanted))
    assert_all_denied(found)
    denied = await stage.denied(call_id)
    assert denied >= {f"socket {kind}" for kind in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_VSOCK")}


async def test_the_runtimes_own_socket_through_zeromq(on_confined: Stage) -> None:
    """libzmq may take its process down when it is refused a socket: then that is the answer."""
    stage = on_confined
    host = stage.runtime.home / "run" / "host.sock"
    endpoints = (f"ipc://{host}", stage.runtime.facts()["agent_url"].replace("ws://", "tcp://").split("/agent")[0])
    for payload in await asyncio.gather(*(stage.call("caller.zmq", {"endpoint": endpoint}) for endpoint in endpoints)):
        if payload["status"] == "completed":
            assert payload["result"] == {"zmq": "denied: no answer"}
        else:
            assert payload["error"]["code"] == "outcome_unknown", payload
    assert await stage.completed("bystander.echo", {"text": "x"}) == {"text": "x", "version": 1}


DENIED = """
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_open pidfd_getfd pidfd_send_signal
    keyctl add_key io_uring_setup bpf perf_event_open userfaultfd mount init_module open_by_handle_at memfd_secret
    unshare setns execve execveat memfd_create clone setpriority sched_setaffinity sched_setscheduler prlimit64
    setuid sethostname
"""
DENIED_ASKED = {"ioctl TIOCSTI", "ioctl TIOCLINUX", "prctl PR_SET_PDEATHSIG", "prctl PR_SET_DUMPABLE"}


async def test_processes_and_the_kernel(on_confined: Stage) -> None:
    stage = on_confined
    await stage.completed("bystander.echo", {"text": "there are others"}, "sibling")
    sibling = await asyncio.to_thread(stage.runtime.worker, "bystander", "sibling")
    assert sibling is not None
    pids = {"supervisor": stage.runtime.pid, "sibling": sibling, "test": os.getpid()}
    before: set[int] = set()
    heard: list[int] = []

    async def attack() -> tuple[str, dict[str, str]]:
        before.clear()
        before.update(member.pid for member in descendants(stage.runtime.pid))
        return await stage.tried("breaker.processes", {"pids": pids})

    was = signal.signal(signal.SIGWINCH, lambda number, _: heard.append(number))  # whoever does not listen ignores it
    try:
        call_id, found = await assert_harmless(stage, attack)
    finally:
        signal.signal(signal.SIGWINCH, was)
    found.pop("everybody: signal")  # the kernel says yes to kill(-1) even if nobody got the signal
    assert heard == []
    assert_all_denied(found)
    denied = await stage.denied(call_id)
    assert denied >= {*DENIED.split(), *DENIED_ASKED}, "everything that was tried stands in the audit"
    grown = {member.pid for member in descendants(stage.runtime.pid)} - before
    assert len(grown) <= 2, "bubblewrap and the worker itself"
    assert await stage.completed("bystander.echo", {"text": "x"}, "sibling") == {"text": "x", "version": 1}
    assert await asyncio.to_thread(stage.runtime.worker, "bystander", "sibling") == sibling


async def test_children_are_as_confined_as_their_parent(on_sandboxed: Stage) -> None:
    """Where a manifest asks for children (S3 alone has them), they may run no program and reach nothing either."""
    call_id, found = await assert_harmless(on_sandboxed, lambda: on_sandboxed.tried("brood.programs"))
    assert_all_denied(found)
    assert await on_sandboxed.denied(call_id) >= {"execve", "memfd_create", "socket AF_INET", "ptrace"}


ENVIRONMENT = {"LINEUP_SOCKET", "LINEUP_LEVEL", "LINEUP_BUNDLE", "HOME", "TMPDIR", "LANG", "PWD", "LC_CTYPE"}
DESCRIPTORS = re.compile(r"/dev/null|pipe:\[\d+\]|socket:\[\d+\]|anon_inode:\[?(eventpoll|eventfd)\]?")


async def test_what_it_was_born_with(on_confined: Stage) -> None:
    stage = on_confined
    found: dict[str, Any] = await stage.completed("snoop.inherited")
    secrets = [(stage.runtime.home / "run" / "agent.token").read_text().strip(), str(stage.runtime.home / "data")]
    text = json.dumps(found)
    assert [secret for secret in secrets if secret in text] == []
    assert set(found["environment"]) <= ENVIRONMENT
    assert not [v for v in os.environ.values() if len(v) > 24 and v in text and not v.startswith("/")]
    strange = {n: to for n, to in found["descriptors"].items() if not DESCRIPTORS.fullmatch(to)}
    assert strange == {}
    kinds = [to.split(":")[0] for to in found["descriptors"].values()]
    assert kinds.count("pipe") == 2, "stdout and stderr; no lifeline, no pipe of the Runtime's"
    if level_of(stage) == "S3":
        assert (found["pid"], found["parent"], found["host"]) == (1, 0, "lineup")
        assert found["user"] == 65534
