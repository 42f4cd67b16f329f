"""What code inside a worker can do and cannot, at each level, measured on real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineup_supervisor.edges import sandbox, sandbox_policy

CONFINED = ("S3", "S2")

PRELUDE = """
import json, os, socket, sys
from lineup_sdk import confine
import zmq, asyncio, threading
confine.apply(os.environ["LINEUP_LEVEL"])
context = zmq.Context()
confine.seal()
def attempt(action):
    try:
        return "done: " + repr(action())
    except BaseException as error:
        return type(error).__name__ + ": " + str(error)
def say(**found):
    print(json.dumps(found), flush=True)
"""


class Stage:
    def __init__(self, home: Path) -> None:
        self.home = home
        for name in ("app", "other-app", "data", "g", "t"):
            (home / name).mkdir()
        (home / "app" / "app.py").write_text("the bundle")
        (home / "other-app" / "app.py").write_text("another's secret")
        (home / "data" / "store").write_text("the store")
        (home / "agent.token").write_text("the token")

    def run(self, level: str, code: str, **limits: int) -> dict[str, Any]:
        """Run code in a worker of this level; what it said last, as ``say(**found)``."""
        command = sandbox.build_command(
            sandbox.SandboxRequest(
                level=level,  # type: ignore[arg-type]
                bundle_path=str(self.home / "app"),
                socket_path=str(self.home / "g" / "s"),
                scratch_dir=str(self.home / "t"),
                limits=sandbox_policy.WorkerLimits.from_mapping(limits),
                entry=PRELUDE + code,
            )
        )
        info = os.open(os.devnull, os.O_WRONLY)
        lifeline, held = os.pipe2(os.O_CLOEXEC)
        try:
            done = subprocess.run(
                sandbox.with_descriptors(command.argv, info=info),
                env=command.env,
                cwd=command.cwd,
                pass_fds=(info,) if command.sandboxed else (),
                stdin=lifeline,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        finally:
            for descriptor in (info, lifeline, held):
                os.close(descriptor)
        assert done.stdout, f"it ended with {done.returncode}: {done.stderr[-2000:]}"
        found = json.loads(done.stdout.splitlines()[-1])
        assert isinstance(found, dict)
        return found


@pytest.fixture
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="lu-") as directory:
        yield Stage(Path(directory))


# EROFS; and EXDEV, which is Landlock's word for a link out of what it allows.
REFUSALS = ("PermissionError", "FileNotFoundError", "ProcessLookupError", "OSError: [Errno 30]", "OSError: [Errno 18]")


def assert_all_refused(found: dict[str, Any]) -> None:
    let_through = {name: said for name, said in found.items() if not said.startswith(REFUSALS)}
    assert let_through == {}


@pytest.mark.parametrize("level", CONFINED)
def test_other_peoples_files(stage: Stage, level: str) -> None:
    home, me = str(stage.home), os.getpid()
    assert_all_refused(
        stage.run(
            level,
            f"""
say(
    home=attempt(lambda: open(os.path.join({str(Path.home())!r}, ".bashrc")).read()),
    token=attempt(lambda: open({home!r} + "/agent.token").read()),
    store=attempt(lambda: open({home!r} + "/data/store").read()),
    store_folder=attempt(lambda: os.listdir({home!r} + "/data")),
    other_bundle=attempt(lambda: open({home!r} + "/other-app/app.py").read()),
    passwd=attempt(lambda: open("/etc/passwd").read()),
    root=attempt(lambda: os.listdir("/")),
    environ=attempt(lambda: open("/proc/{me}/environ").read()),
    memory=attempt(lambda: open("/proc/{me}/mem", "rb").read(1)),
    descriptors=attempt(lambda: os.listdir("/proc/{me}/fd")),
    write_bundle=attempt(lambda: open(os.environ["LINEUP_BUNDLE"] + "/x", "w")),
    append_bundle=attempt(lambda: open(os.environ["LINEUP_BUNDLE"] + "/app.py", "a")),
    write_home=attempt(lambda: open({home!r} + "/x", "w")),
    remove_store=attempt(lambda: os.unlink({home!r} + "/data/store")),
    rename_store=attempt(lambda: os.rename({home!r} + "/data/store", {home!r} + "/data/gone")),
    link_store=attempt(lambda: os.link({home!r} + "/data/store", os.environ["TMPDIR"] + "/store")),
    chmod_store=attempt(lambda: os.chmod({home!r} + "/data/store", 0o777)),
    chmod_bundle=attempt(lambda: os.fchmod(os.open(os.environ["LINEUP_BUNDLE"] + "/app.py", os.O_RDONLY), 0o777)),
    chmod_library=attempt(lambda: os.fchmod(os.open(json.__file__, os.O_RDONLY), 0o777)),
    touch_library=attempt(lambda: os.utime(os.open(json.__file__, os.O_RDONLY))),
    truncate_store=attempt(lambda: os.truncate({home!r} + "/data/store", 0)),
    symlink_read=attempt(lambda: (os.symlink({home!r} + "/agent.token", os.environ["TMPDIR"] + "/l"),
                                  open(os.environ["TMPDIR"] + "/l").read())),
    socket_folder=attempt(lambda: open(os.path.dirname(os.environ["LINEUP_SOCKET"][6:]) + "/x", "w")),
    fake_proc=attempt(lambda: os.listdir("/proc")),
    kernel=attempt(lambda: open("/proc/kallsyms").read(10)),
    system=attempt(lambda: os.listdir("/sys")),
)
""",
        )
    )
    assert (stage.home / "data" / "store").read_text() == "the store"
    assert (stage.home / "data" / "store").stat().st_mode & 0o777 != 0o777


@pytest.mark.parametrize("level", CONFINED)
def test_the_network_in_every_form(stage: Stage, level: str) -> None:
    path = str(stage.home / "host.sock")
    with (
        socket.socket(socket.AF_UNIX) as by_path,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.create_server(("127.0.0.1", 0)) as tcp,
    ):
        by_path.bind(path)
        by_path.listen(1)
        abstract.bind(f"\0lu-{os.getpid()}")
        abstract.listen(1)
        assert_all_refused(
            stage.run(
                level,
                f"""
left, right = socket.socketpair()
say(
    tcp4=attempt(lambda: socket.create_connection(("127.0.0.1", {tcp.getsockname()[1]}))),
    udp4=attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    tcp6=attempt(lambda: socket.socket(socket.AF_INET6)),
    raw=attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
    packet=attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
    netlink=attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
    vsock=attempt(lambda: socket.socket(40, socket.SOCK_STREAM)),
    unix_path=attempt(lambda: socket.socket(socket.AF_UNIX).connect({path!r})),
    unix_abstract=attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0lu-{os.getpid()}")),
    unix_datagram=attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)),
    reused_end=attempt(lambda: left.connect({path!r})),
    listening=attempt(lambda: left.bind(os.environ["TMPDIR"] + "/s")),
)
""",
            )
        )


@pytest.mark.parametrize("level", CONFINED)
def test_processes_and_the_kernel(stage: Stage, level: str) -> None:
    me = os.getpid()
    found = stage.run(
        level,
        f"""
import ctypes, fcntl, resource, signal, subprocess
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def ioctl_tiocsti():
    fcntl.ioctl(0, 0x5412, b"x")
say(
    fork=attempt(os.fork),
    subprocess=attempt(lambda: subprocess.run(["/bin/sh", "-c", "true"])),
    posix_spawn=attempt(lambda: os.posix_spawn(sys.executable, [sys.executable], dict())),
    execve=attempt(lambda: os.execv(sys.executable, [sys.executable, "-c", "pass"])),
    memfd=attempt(lambda: os.memfd_create("x")),
    kill_supervisor=attempt(lambda: os.kill({me}, 0)),
    signal_queue=attempt(lambda: call(129, {me}, 0, 0)),
    ptrace=attempt(lambda: call(101, 16, {me}, 0, 0)),
    process_vm_readv=attempt(lambda: call(310, {me}, 0, 0, 0, 0, 0)),
    pidfd_open=attempt(lambda: os.pidfd_open({me})),
    pidfd_getfd=attempt(lambda: call(438, 0, 0, 0)),
    keyctl=attempt(lambda: call(250, 0, -3, 0)),
    bpf=attempt(lambda: call(321, 0, 0, 0)),
    perf=attempt(lambda: call(298, 0, 0, -1, -1, 0)),
    userfaultfd=attempt(lambda: call(323, 0)),
    unshare_user=attempt(lambda: call(272, 0x10000000)),
    clone_newuser=attempt(lambda: call(56, 0x10000000 | 17, 0, 0, 0, 0)),
    clone_newuser_thread=attempt(lambda: call(56, 0x10000000 | 0x10000, 0, 0, 0, 0)),
    setns=attempt(lambda: call(308, 0, 0)),
    mount=attempt(lambda: call(165, 0, 0, 0, 0, 0)),
    chroot=attempt(lambda: os.chroot("/tmp")),
    setuid=attempt(lambda: os.setuid(0)),
    tiocsti=attempt(ioctl_tiocsti),
    others_limits=attempt(lambda: call(302, {me}, 7, 0, 0)),
    others_priority=attempt(lambda: os.setpriority(os.PRIO_PROCESS, {me}, 19)),
    others_class=attempt(lambda: os.sched_setscheduler({me}, os.SCHED_OTHER, os.sched_param(0))),
    others_idle_class=attempt(lambda: os.sched_setscheduler({me}, os.SCHED_IDLE, os.sched_param(0))),
    others_parameters=attempt(lambda: os.sched_setparam({me}, os.sched_param(0))),
    others_affinity=attempt(lambda: os.sched_setaffinity({me}, {{0}})),
    own_class=attempt(lambda: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))),
    shared_memory=attempt(lambda: call(29, 0, 4096, 0o1600)),
    raise_limit=attempt(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100000, 100000))),
    dumpable=attempt(lambda: call(157, 4, 1, 0, 0, 0)),
    untie=attempt(lambda: call(157, 1, 0, 0, 0, 0)),
    io_uring=attempt(lambda: call(425, 1, 0)),
    clone3=attempt(lambda: call(435, 0, 0)),
    new_landlock=attempt(lambda: call(444, 0, 0, 1)),
)
""",
    )
    # Unknown or absent to a worker (ENOSYS), so that libraries fall back: everything else is a plain refusal.
    for name in ("clone3", "new_landlock"):
        assert found.pop(name).startswith("OSError: [Errno 38]"), name
    assert found.pop("raise_limit").startswith(("PermissionError", "ValueError")), "hard limits stay"
    assert found.pop("subprocess").startswith("PermissionError")
    assert_all_refused(found)


@pytest.mark.parametrize("level", CONFINED)
def test_kill_of_everybody_reaches_nobody(stage: Stage, level: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        found = stage.run(level, "say(kill=attempt(lambda: os.kill(-1, 9)))")
        assert bystander.poll() is None
        bystander.kill()
    assert found["kill"].startswith(("PermissionError", "ProcessLookupError", "done"))


@pytest.mark.parametrize("level", CONFINED)
def test_what_a_worker_is_born_with(stage: Stage, level: str) -> None:
    os.environ["LINEUP_TEST_SECRET"] = "s3cret"
    try:
        found = stage.run(
            level,
            """
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
own = os.path.realpath("/proc/self/fd/0")
say(names=sorted(os.environ), argv="".join(sys.argv), descriptors=sorted(map(int, os.listdir("/proc/self/fd"))),
    caps=status["CapEff"].strip(), bounding=status["CapBnd"].strip(), no_new_privs=status["NoNewPrivs"].strip(),
    seccomp=status["Seccomp"].strip(), pid=os.getpid(), cwd=os.getcwd(), path=sys.path, stdin=own,
    environ=open("/proc/self/environ").read())
""",
        )
    finally:
        del os.environ["LINEUP_TEST_SECRET"]
    known = {"HOME", "LANG", "TMPDIR", "LINEUP_SOCKET", "LINEUP_LEVEL", "LINEUP_BUNDLE"}
    assert set(found["names"]) - known <= {"PWD", "LC_CTYPE"}
    assert "s3cret" not in found["environ"]
    assert found["no_new_privs"] == "1"
    assert found["seccomp"] == "2"
    if level == "S3":
        assert found["caps"] == found["bounding"] == "0" * 16
        assert found["pid"] == 1
        assert found["cwd"] == "/tmp"
        assert str(stage.home) not in json.dumps(found), "it does not learn where the Runtime lives"


@pytest.mark.parametrize("level", CONFINED)
def test_of_its_own_process_it_reads_what_it_needs(stage: Stage, level: str) -> None:
    """And not what its folder in ``/proc`` tells of the machine: connections, sockets, mounts."""
    code = """
def read(path):
    return bool(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(100))
me = str(os.getpid())
say(**{path: attempt(lambda: read("/proc/" + path)) for path in %r})
"""
    own = [f"self/{name}" for name in sandbox_policy.PROC_SELF]
    found = stage.run(level, code % [*own, "thread-self/stat"])
    assert found.pop("thread-self/stat").startswith("PermissionError"), "nobody needs the folder of a thread"
    assert set(found.values()) == {"done: True"}, found
    tables = ["tcp", "tcp6", "udp", "unix", "netlink", "dev", "route", "arp"]
    others = ["mountinfo", "mounts", "mountstats", "cgroup", "task", "ns", "io", "attr/current", "mem"]
    paths = [f"{at}/{name}" for at in ("self/net", "net", "thread-self/net") for name in tables]
    paths += ["self", "self/net", "net", "self/task", *(f"self/{name}" for name in others)]
    assert_all_refused(stage.run(level, code % paths))
    assert_all_refused(
        stage.run(
            level,
            """
say(**{name: attempt(lambda: open(f"/proc/{os.getpid()}/{name}").read()) for name in ("net/tcp", "mountinfo")},
    task=attempt(lambda: open(f"/proc/self/task/{threading.get_native_id()}/net/unix").read()),
    link=attempt(lambda: (os.symlink("/proc/self/net", os.environ["TMPDIR"] + "/n"),
                          open(os.environ["TMPDIR"] + "/n/tcp").read())))
""",
        )
    )


@pytest.mark.parametrize("level", CONFINED)
def test_what_may_only_be_read_is_not_held_or_watched(stage: Stage, level: str) -> None:
    """A lease would make the machine's owner wait who opens the file for writing; a watch tells who else reads."""
    found = stage.run(
        level,
        """
import ctypes, fcntl
files = {"own": os.environ["LINEUP_BUNDLE"] + "/app.py", "shared": json.__file__, "library": confine.__file__}
def of(path, command, value):
    return fcntl.fcntl(os.open(path, os.O_RDONLY), command, value)
def inotify():
    if ctypes.CDLL(None, use_errno=True).inotify_init() < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
left, right = socket.socketpair()
say(**{"lease " + name: attempt(lambda: of(path, fcntl.F_SETLEASE, fcntl.F_RDLCK)) for name, path in files.items()},
    **{"watch " + name: attempt(lambda: of(os.path.dirname(path), fcntl.F_NOTIFY, fcntl.DN_ACCESS))
       for name, path in files.items()},
    high_bits=attempt(lambda: ctypes.CDLL(None).syscall(72, left.fileno(), ctypes.c_ulong(1 << 32 | 1024), 2)),
    owner=attempt(lambda: fcntl.fcntl(left, fcntl.F_SETOWN, -1)),
    signal=attempt(lambda: fcntl.fcntl(left, fcntl.F_SETSIG, 9)),
    unknown=attempt(lambda: fcntl.fcntl(left, 1040, 0)),
    inotify=attempt(inotify))
""",
    )
    assert found.pop("high_bits") == "done: -1", "what the kernel does not look at does not get it past"
    for name in ("unknown", "inotify"):
        assert found.pop(name).startswith("OSError: [Errno 38]"), name
    assert_all_refused(found)


@pytest.mark.parametrize("level", CONFINED)
def test_locks_of_its_own_files_work(stage: Stage, level: str) -> None:
    """Of a database with two connections in each of SQLite's modes, of libraries that lock their files; and pipes."""
    found = stage.run(
        level,
        """
import fcntl, sqlite3
tmp = os.environ["TMPDIR"]
def database(mode):
    path = f"{tmp}/{mode}.db"
    one, two = (sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(2))
    said = one.execute(f"pragma journal_mode={mode}").fetchone()[0]
    one.execute("create table t (x)")
    one.execute("begin immediate"); one.execute("insert into t values (1)")
    try:
        two.execute("begin immediate")
    except sqlite3.OperationalError as error:
        held = str(error)
    one.execute("commit")
    two.execute("insert into t values (2)")
    return said, held, one.execute("select count(*) from t").fetchone()[0]
def locks(take, release):
    with open(f"{tmp}/locked", "w") as one, open(f"{tmp}/locked", "w") as two:
        take(one, fcntl.LOCK_EX)
        try:
            take(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
            said = "not held"
        except BlockingIOError:
            said = "held"
        take(one, release)
    return said
def pipe():
    read, write = os.pipe()
    return fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
def descriptors():
    copy = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 30)
    os.set_blocking(copy, os.get_blocking(1)); os.set_inheritable(copy, True)
    return copy >= 30 and os.get_inheritable(copy)
say(delete=attempt(lambda: database("delete")), wal=attempt(lambda: database("wal")),
    flock=attempt(lambda: locks(fcntl.flock, fcntl.LOCK_UN)), lockf=attempt(lambda: locks(fcntl.lockf, fcntl.LOCK_UN)),
    pipe=attempt(pipe), descriptors=attempt(descriptors))
""",
    )
    assert found == {
        "delete": "done: ('delete', 'database is locked', 2)",
        "wal": "done: ('wal', 'database is locked', 2)",
        "flock": "done: 'held'",
        "lockf": "done: 'not held'",
        "pipe": "done: 65536",
        "descriptors": "done: True",
    }, "POSIX locks are of the whole process"


@pytest.mark.parametrize("level", CONFINED)
def test_what_an_honest_app_needs_works(stage: Stage, level: str) -> None:
    found = stage.run(
        level,
        """
import concurrent.futures, datetime, decimal, hashlib, random, shutil, sqlite3, ssl, tempfile, uuid, zoneinfo, msgpack
def threads():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return sum(pool.map(lambda x: x * x, range(10)))
def files():
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/x", "w") as file: file.write("x")
        os.rename(folder + "/x", folder + "/y")
        return open(folder + "/y").read()
def database():
    link = sqlite3.connect(os.environ["TMPDIR"] + "/db")
    link.execute("create table t (x)"); link.execute("insert into t values (1)"); link.commit()
    return link.execute("select x from t").fetchone()[0]
from lineup_sdk import worker
worker._use_plain_loops()  # as a worker does at its birth
async def loop():
    await asyncio.sleep(0.001)
    return await asyncio.to_thread(lambda: 5)
say(threads=attempt(threads), files=attempt(files), database=attempt(database),
    loop=attempt(lambda: asyncio.run(loop())),
    bundle=attempt(lambda: open(os.environ["LINEUP_BUNDLE"] + "/app.py").read()),
    uuid=attempt(lambda: len(str(uuid.uuid4()))),
    zone=attempt(lambda: zoneinfo.ZoneInfo("UTC").key),
    hash=attempt(lambda: len(os.urandom(8))))
""",
    )
    assert found == {
        "threads": "done: 285",
        "files": "done: 'x'",
        "database": "done: 1",
        "loop": "done: 5",
        "bundle": "done: 'the bundle'",
        "uuid": "done: 36",
        "zone": "done: 'UTC'",
        "hash": "done: 8",
    }


@pytest.mark.parametrize("level", CONFINED)
def test_limits_hold(stage: Stage, level: str) -> None:
    found = stage.run(
        level,
        """
import mmap, resource
def many_files():
    kept = []
    while True: kept.append(open("/dev/null"))
def big_file():
    with open(os.environ["TMPDIR"] + "/big", "wb") as file:
        for _ in range(100): file.write(bytes(1 << 20))
def shared():
    return [mmap.mmap(-1, 256 << 20) for _ in range(100)]
say(memory=attempt(lambda: bytearray(10 << 30)), shared=attempt(lambda: len(shared())), files=attempt(many_files),
    file=attempt(big_file), core=attempt(lambda: resource.getrlimit(resource.RLIMIT_CORE)),
    nice=os.getpriority(os.PRIO_PROCESS, 0))
""",
        memory_bytes=128 << 20,
        file_bytes=8 << 20,
        open_files=64,
    )
    assert found["memory"].startswith("MemoryError")
    assert found["shared"].startswith("OSError: [Errno 12]")
    assert found["files"].startswith("OSError: [Errno 24]")
    assert found["file"].startswith("OSError: [Errno 27]")
    assert found["core"] == "done: (0, 0)"
    assert found["nice"] == min(19, os.getpriority(os.PRIO_PROCESS, 0) + sandbox_policy.WORKER_NICENESS)


def test_the_private_tmp_is_capped_and_the_rest_is_read_only(stage: Stage) -> None:
    found = stage.run(
        "S3",
        """
def fill():
    for number in range(100):
        with open(f"/tmp/{number}", "wb") as file: file.write(bytes(1 << 20))
say(fill=attempt(fill), dev=attempt(lambda: open("/dev/x", "w")), run=attempt(lambda: open("/run/x", "w")),
    shm=attempt(lambda: open("/dev/shm/x", "w")))
""",
        tmp_bytes=8 << 20,
    )
    assert found.pop("fill").startswith("OSError: [Errno 28]")
    assert_all_refused(found)


@pytest.mark.parametrize("level", CONFINED)
def test_children_only_where_they_are_asked_for(stage: Stage, level: str) -> None:
    code = """
def child():
    pid = os.fork()
    if pid == 0:
        try: os.execv(sys.executable, [sys.executable])
        except PermissionError: os._exit(7)
        os._exit(8)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
say(child=attempt(child))
"""
    assert stage.run(level, code)["child"].startswith("PermissionError")
    found = stage.run(level, code, processes=4)["child"]
    if level == "S3":
        assert found == "done: 7", "forked, and still no exec"
    else:
        assert found.startswith("PermissionError"), "nothing would take a child along when the supervisor is killed"


def test_a_missing_layer_is_an_error_never_less(stage: Stage) -> None:
    code = """
import lineup_sdk.confine as confine
say(unknown=attempt(lambda: confine.apply("S9", "{}")),
    no_filter=attempt(lambda: confine.apply("S3", '{"seccomp": null}')),
    no_landlock=attempt(lambda: confine.apply("S2", '{"seccomp": "AAAA", "parent_pid": 1}')),
    no_json=attempt(lambda: confine.apply("S3", "nonsense")), absent=attempt(lambda: confine.apply("S3")),
    bad_filter=attempt(lambda: confine.apply("S3", '{"seccomp": "AAAA"}')),
    bad_limit=attempt(lambda: confine.apply("S3", '{"seccomp": "AAAA", "rlimits": {"magic": 1}}')))
"""
    found = stage.run("S1", code)
    assert all(said.startswith("ConfineError") for said in found.values()), found


def test_landlock_alone_also_forbids(stage: Stage) -> None:
    """Defence in depth: the same rules without bubblewrap and without a filter on files."""
    found = stage.run(
        "S2", "say(listed=attempt(lambda: os.listdir('/usr/bin')), stat=attempt(lambda: os.stat('/usr/bin')))"
    )
    assert found["listed"].startswith("PermissionError")
    assert found["stat"].startswith("done"), "a published gap of S2: what exists can be seen"
