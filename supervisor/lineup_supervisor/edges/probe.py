"""Decides which isolation level holds on this machine, by a worker that tries to escape.

Owns: running ``probe_escapes`` inside each candidate level, judging what it could do, saying cause and fix in words.
Must not know: what the daemon does with the answer. A level holds if every attempt that it must stop was stopped;
looking for a binary or a sysctl only ever explains a failure.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges import sandbox
from lineup_supervisor.edges import sandbox_policy as policy

PROBE_S_MAX = 15.0

# What a level publishes as a gap instead of stopping it (docs/isolation.md).
GAPS: dict[policy.Level, frozenset[str]] = {"S3": frozenset(), "S2": frozenset({"stat_home"}), "S1": frozenset()}

_LAYER_OF = {
    "files": {"read_home", "stat_home", "read_canary", "read_passwd", "write_bundle", "write_root"},
    "supervisor": {
        "supervisor_environ",
        "supervisor_fds",
        "signal_supervisor",
        "inherited_fds",
        "inherited_environment",
    },
    "network": {"tcp4", "udp4", "tcp6", "netlink", "vsock", "unix_datagram", "abstract_unix", "path_unix"},
    "system calls": {
        *(
            "fork",
            "ptrace",
            "process_vm_readv",
            "pidfd_getfd",
            "keyctl",
            "io_uring",
            "bpf",
            "unshare",
            "mount",
            "memfd",
        ),
        "execute",
    },
}


@dataclass(frozen=True)
class Layer:
    """One layer of one level: whether it holds, and if not, why and what to do. Plain strings, for people."""

    name: str
    ok: bool
    cause: str = ""
    fix: str = ""

    def as_dict(self) -> dict[str, object]:
        return {"name": self.name, "ok": self.ok, "cause": self.cause, "fix": self.fix}


@dataclass(frozen=True)
class ProbeReport:
    """``level``: the strongest that holds and is allowed, or "none". ``attempts``: what the probe said, per level."""

    level: str
    layers: tuple[Layer, ...]
    attempts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def levels(self) -> tuple[policy.Level, ...]:
        """What workers may be started at; the operator's S1 for system MiniApps is not the probe's to add."""
        return tuple(level for level in policy.LEVELS if level == self.level)

    @property
    def why_not(self) -> str:
        """Cause and fix of what failed, as one sentence; empty if the default level holds."""
        return "; ".join(f"{layer.cause} ({layer.fix})" for layer in self.layers if not layer.ok and layer.cause)

    def as_dict(self) -> dict[str, object]:
        return {"level": self.level, "layers": [layer.as_dict() for layer in self.layers]}


def probe_isolation(run_dir: Path, store_dir: Path, *, allow_s2: bool = False, bwrap: str | None = None) -> ProbeReport:
    """Try S3, and S2 if the operator's configuration allows it and S3 does not hold. Blocks for 0.1 to 0.3 s per level.

    S1 confines nothing that could be probed; whether a system MiniApp may use it is the operator's decision alone.
    """
    layers: list[Layer] = []
    attempts: dict[str, dict[str, str]] = {}
    candidates: tuple[policy.Level, ...] = ("S3", "S2") if allow_s2 else ("S3",)
    for level in candidates:
        found, said = _probe_level(level, run_dir, store_dir, bwrap)
        layers += found
        attempts[level] = said
        if said and all(layer.ok for layer in found if layer.name != f"{level} landlock") and _holds(level, said):
            return ProbeReport(level, tuple(layers), attempts)
    return ProbeReport("none", tuple(layers), attempts)


def _holds(level: policy.Level, said: Mapping[str, str]) -> bool:
    expected = set().union(*_LAYER_OF.values())
    return expected <= set(said) and not _open_attempts(level, said)


def _open_attempts(level: policy.Level, said: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in said.items() if not text.startswith("denied") and name not in GAPS[level]}


def _probe_level(
    level: policy.Level, run_dir: Path, store_dir: Path, bwrap: str | None
) -> tuple[list[Layer], dict[str, str]]:
    try:
        with _stage(run_dir, store_dir) as stage:
            code, output, errors = _run(_command(level, stage, bwrap))
    except LineUpError as error:
        detail = error.detail if isinstance(error.detail, dict) else {}
        return [
            Layer(f"{level} {detail.get('layer', 'sandbox')}", False, error.message, str(detail.get("fix", "")))
        ], {}
    except OSError as error:
        return [Layer(f"{level} sandbox", False, f"the probe could not be run: {error}", "see `lineup doctor`")], {}
    said = _parse(output)
    if not said:
        return [_explain(level, code, errors)], {}
    layers = [_judge_landlock(level)]
    stopped = _open_attempts(level, said)
    for name, members in _LAYER_OF.items():
        missing = members - set(said)
        escaped = [f"{attempt} ({stopped[attempt]})" for attempt in sorted(members & set(stopped))]
        if missing:
            cause = f"the probe ended ({code}) before it had tried {', '.join(sorted(missing))}: {errors[-300:]}"
            layers.append(Layer(f"{level} {name}", False, cause, "run `lineup doctor` and report its output"))
        elif escaped:
            cause = f"a probe worker could do what {level} must stop: {', '.join(escaped)}"
            layers.append(Layer(f"{level} {name}", False, cause, _fix_for(name)))
        else:
            layers.append(Layer(f"{level} {name}", True))
    return layers, said


def _fix_for(layer: str) -> str:
    if layer in ("system calls", "network"):
        return "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER) and libseccomp 2.5 or newer"
    return "use a kernel with Landlock (5.13 or newer, `landlock` in /sys/kernel/security/lsm) and a current bubblewrap"


def _judge_landlock(level: policy.Level) -> Layer:
    abi = sandbox.landlock_abi()
    if abi:
        return Layer(f"{level} landlock", True)
    return Layer(
        f"{level} landlock",
        False,
        "the kernel has no Landlock or it is switched off",
        "use Linux 5.13 or newer and add `landlock` to the `lsm=` boot parameter",
    )


@dataclass(frozen=True)
class _Stage:
    """What the probe worker is pointed at; made for one run and removed after it."""

    bundle: str
    socket_path: str
    scratch: str
    targets: dict[str, object]


@contextmanager
def _stage(run_dir: Path, store_dir: Path) -> Iterator[_Stage]:
    store_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="p", dir=run_dir) as place,
        tempfile.NamedTemporaryFile(prefix="probe-", dir=store_dir) as canary,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as by_path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as abstract,
    ):
        canary.write(b"the store is readable")
        canary.flush()
        for name in ("app", "g", "t"):
            os.mkdir(f"{place}/{name}", 0o700)
        by_path.bind(f"{place}/u")
        by_path.listen(4)
        name = f"lineup-probe-{os.getpid()}-{os.path.basename(place)}"
        abstract.bind("\0" + name)
        abstract.listen(4)
        targets = {
            "home": os.path.expanduser("~"),
            "home_names": _home_names(),
            "canary": canary.name,
            "supervisor_pid": os.getpid(),
            "unix_path": f"{place}/u",
            "abstract_unix": name,
        }
        yield _Stage(f"{place}/app", f"{place}/g/s", f"{place}/t", targets)


def _home_names() -> list[str]:
    """A few names from the person's home that have nothing to do with the interpreter."""
    home = os.path.expanduser("~")
    needed = {
        path[len(home) + 1 :].split("/")[0] for path in sandbox.python_layout().read if path.startswith(home + "/")
    }
    try:
        return [name for name in sorted(os.listdir(home)) if name not in needed][:50]
    except OSError:
        return []


def _command(level: policy.Level, stage: _Stage, bwrap: str | None) -> sandbox.Command:
    source = Path(__file__).with_name("probe_escapes.py").read_text(encoding="utf-8")
    sdk = f"{policy.PACKAGES_DIR}/lineup_sdk" if level == "S3" else sandbox.python_layout().sdk
    return sandbox.build_command(
        sandbox.SandboxRequest(
            level=level,
            bundle_path=stage.bundle,
            socket_path=stage.socket_path,
            scratch_dir=stage.scratch,
            entry=source,
            extra_env=(("LINEUP_PROBE", json.dumps({**stage.targets, "confine_dir": sdk})),),
        ),
        bwrap=bwrap,
    )


def _run(command: sandbox.Command) -> tuple[int, str, str]:
    """Exit code, output and errors of the probe; a hanging one is killed and gives -9."""
    info = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    lifeline, held = os.pipe2(os.O_CLOEXEC)
    argv = sandbox.with_descriptors(command.argv, info=info)
    try:
        done = subprocess.run(
            argv,
            env=command.env,
            cwd=command.cwd,
            pass_fds=(info,) if command.sandboxed else (),
            stdin=lifeline,
            capture_output=True,
            start_new_session=True,
            timeout=PROBE_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return -9, (late.stdout or b"").decode("utf-8", "replace"), f"no answer within {PROBE_S_MAX:g} s"
    finally:
        for descriptor in (info, lifeline, held):
            os.close(descriptor)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def _parse(output: str) -> dict[str, str]:
    said: dict[str, str] = {}
    for line in output.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            said.update({str(name): str(text) for name, text in found.items()})
    return said


_APPARMOR_FIX = (
    "install Ubuntu's AppArmor profile for bubblewrap (apt install apparmor-profiles, then "
    "`sudo ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/` and "
    "`sudo systemctl reload apparmor`), or allow them all: `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
)


def _explain(level: policy.Level, code: int, errors: str) -> Layer:
    """The sandbox did not come up: which of the known causes was it?"""
    last = (errors.strip().splitlines() or [f"it ended with {code} and said nothing"])[-1][:300]
    name = f"{level} {'bubblewrap' if level == 'S3' else 'sandbox'}"
    if _sysctl("user/max_user_namespaces") == "0" or _sysctl("kernel/unprivileged_userns_clone") == "0":
        return Layer(
            name,
            False,
            f"user namespaces are switched off on this machine: {last}",
            "`sudo sysctl user.max_user_namespaces=15000` (on Debian also kernel.unprivileged_userns_clone=1)",
        )
    apparmor = _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1"
    denied = "uid map: Permission denied" in errors or "RTM_NEWADDR" in errors
    if denied or (apparmor and "ermission denied" in errors) or (apparmor and "not permitted" in errors):
        return Layer(
            name, False, f"AppArmor forbids user namespaces to bubblewrap (Ubuntu 24.04): {last}", _APPARMOR_FIX
        )
    if "proc" in errors and "mount" in errors.lower():
        return Layer(
            name,
            False,
            f"/proc cannot be mounted, as in a container with a masked /proc: {last}",
            "run the container with --security-opt systempaths=unconfined (Docker), or the Runtime outside of it",
        )
    if "namespace" in errors or "not permitted" in errors:
        return Layer(
            name,
            False,
            f"this environment forbids new namespaces: {last}",
            "in a container allow them (Docker: --security-opt seccomp=unconfined), or run the Runtime outside of it",
        )
    if "nknown option" in errors:
        wanted = ".".join(map(str, sandbox.BWRAP_VERSION_MIN))
        return Layer(name, False, f"bubblewrap is too old: {last}", f"install bubblewrap {wanted} or newer")
    return Layer(name, False, f"the sandbox did not start: {last}", "run `lineup doctor --debug` and report its output")


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    except OSError:
        return ""
