"""What the probe worker runs inside a level: it confines itself like any worker, then tries to get out.

Runs in the sandbox, as text, with the interpreter's library and ``lineup_sdk.confine`` alone; prints one JSON object
per attempt, ``{name: "denied: …" | "open: …"}``. Every attempt is harmless where it succeeds. The supervisor's side,
which knows what each answer means, is ``probe``.
"""

import ctypes
import errno
import json
import os
import socket
import sys
from collections.abc import Callable

TARGETS = json.loads(os.environ["LINEUP_PROBE"])  # see probe._targets
sys.path.append(TARGETS["confine_dir"])  # the one module, without the package around it: a start should not wait for it
import confine  # type: ignore[import-not-found]  # noqa: E402


def read_file(path: str) -> str:
    with open(path, "rb") as file:
        return f"read {len(file.read(64))} bytes of {path}"


def list_folder(path: str) -> str:
    return f"listed {len(os.listdir(path))} names in {path}"


def list_home() -> str:
    # Inside a sandbox the folder may exist, empty but for the interpreter; what counts is the person's own content.
    found = sorted(set(os.listdir(TARGETS["home"])) & set(TARGETS["home_names"]))
    if not found:
        raise PermissionError(errno.EACCES, "nothing of the person's there")
    return f"listed {len(found)} names of the person's"


def write_beside_bundle() -> str:
    with open(os.path.join(os.environ["LINEUP_BUNDLE"], ".probe"), "w") as file:
        file.write("x")
    os.unlink(file.name)
    return "wrote into the bundle"


def write_root() -> str:
    os.mkdir("/lineup-probe")
    os.rmdir("/lineup-probe")
    return "made a folder in /"


def make_socket(family: int, kind: int) -> str:
    socket.socket(family, kind).close()
    return "made one"


def connect_unix(address: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(1)
        peer.connect(address)
    return "connected"


def fork() -> str:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "forked"


def execute() -> None:
    # The interpreter itself is there at every level. A refused exec raises; one that succeeds says so in our place.
    said = 'print(\'{"execute": "open: executed"}\')'
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", said])


def call(name: str, *arguments: object) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    function = getattr(libc, name)
    function.restype = ctypes.c_long
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "the kernel took it"


def system_call(number: int, *arguments: int) -> str:
    return call("syscall", ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))


def supervisor() -> int:
    # Its number as it sees itself. If that is ours (both are first in a PID namespace), we do not see it at all.
    pid = int(TARGETS["supervisor_pid"])
    if pid == os.getpid():
        raise ProcessLookupError(errno.ESRCH, "that number is our own here")
    return pid


def signal_supervisor() -> str:
    os.kill(supervisor(), 0)
    return "could signal it"


def foreign_descriptors() -> str:
    # 0-2, and the folder being listed; the lifeline was closed by confine.
    found = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    if len(found) > 4:
        return f"inherited {found}"
    raise PermissionError(errno.EACCES, "none")


def foreign_environment() -> str:
    known = {"HOME", "TMPDIR", "LANG", "PWD", "LC_CTYPE"}  # bubblewrap adds PWD, the interpreter LC_CTYPE
    found = [name for name in os.environ if not name.startswith("LINEUP_") and name not in known]
    if found:
        return f"inherited {found}"
    raise PermissionError(errno.EACCES, "none")


ARM = os.uname().machine == "aarch64"
ATTEMPTS: dict[str, Callable[[], object]] = {
    "read_home": list_home,
    "stat_home": lambda: os.stat(TARGETS["canary"]) and "found a file by its path",
    "read_canary": lambda: read_file(TARGETS["canary"]),
    "read_passwd": lambda: read_file("/etc/passwd"),
    "supervisor_environ": lambda: read_file(f"/proc/{supervisor()}/environ"),
    "supervisor_fds": lambda: list_folder(f"/proc/{supervisor()}/fd"),
    "write_bundle": write_beside_bundle,
    "write_root": write_root,
    "inherited_fds": foreign_descriptors,
    "inherited_environment": foreign_environment,
    "tcp4": lambda: make_socket(socket.AF_INET, socket.SOCK_STREAM),
    "udp4": lambda: make_socket(socket.AF_INET, socket.SOCK_DGRAM),
    "tcp6": lambda: make_socket(socket.AF_INET6, socket.SOCK_STREAM),
    "netlink": lambda: make_socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "vsock": lambda: make_socket(40, socket.SOCK_STREAM),
    "unix_datagram": lambda: make_socket(socket.AF_UNIX, socket.SOCK_DGRAM),
    "abstract_unix": lambda: connect_unix("\0" + TARGETS["abstract_unix"]),
    "path_unix": lambda: connect_unix(TARGETS["unix_path"]),
    "signal_supervisor": signal_supervisor,
    "fork": fork,
    "ptrace": lambda: system_call(117 if ARM else 101, 0, 0, 0, 0),
    "process_vm_readv": lambda: system_call(270 if ARM else 310, os.getpid(), 0, 0, 0, 0, 0),
    "pidfd_getfd": lambda: system_call(438, 0, 0, 0),
    "keyctl": lambda: system_call(219 if ARM else 250, 0, -3, 0),
    "io_uring": lambda: system_call(425, 1, 0),
    "bpf": lambda: system_call(280 if ARM else 321, 0, 0, 0),
    "unshare": lambda: call("unshare", 0x10000000),
    "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "memfd": lambda: os.fdopen(os.memfd_create("probe"), "wb").close(),
    "execute": execute,  # last: it may not come back
}


# Not every failure is a refusal: a call that got as far as looking at its (empty) arguments was let in.
LET_IN = {"EFAULT", "EINVAL", "EBADF", "ENXIO"}


def attempt(action: Callable[[], object]) -> str:
    try:
        return f"open: {action()}"
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, str(error))
        return f"open: reached the kernel ({name})" if name in LET_IN else f"denied: {name}"


def main() -> None:
    level = os.environ["LINEUP_LEVEL"]
    confine.apply(level)
    if level != "S1":
        confine.seal()  # as while an app runs
    for name, action in ATTEMPTS.items():
        # One line each: whatever an attempt does to this process, what came before it has been said.
        print(json.dumps({name: attempt(action)}), flush=True)


main()
