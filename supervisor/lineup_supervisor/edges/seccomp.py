"""Compiles the policy's system call lists into BPF programs, once per process.

Owns: the translation through libseccomp. Must not know: which worker gets them; they travel as bytes and the worker
loads them itself (``lineup_sdk.confine``), so that neither libseccomp nor its lookup is on the start path of a worker.
"""

from __future__ import annotations

import errno
import functools
import os
from types import ModuleType

from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges import sandbox_policy as policy

_LOW_32 = 0xFFFF_FFFF  # int arguments: what the kernel ignores above must not decide


@functools.cache
def compile_filter(level: policy.Level, *, children: bool) -> bytes:
    """The main filter: a ``struct sock_filter`` array.

    Raises:
        LineUpError: ``isolation_insufficient`` if libseccomp is missing or refuses.
    """
    sec = _binding()
    allow, deny = sec.ALLOW, sec.ERRNO(errno.EPERM)
    rules = sec.SyscallFilter(sec.ERRNO(errno.ENOSYS))
    rules.set_attr(sec.Attr.ACT_BADARCH, sec.KILL_PROCESS)  # the 32-bit entry would carry other numbers past the list
    allowed, denied = policy.ALLOWED, policy.DENIED
    if level == "S3":
        allowed += policy.ALLOWED_S3_ONLY
    else:
        denied += policy.ALLOWED_S3_ONLY
    if children:
        allowed += ("fork", "vfork")
        denied = tuple(name for name in denied if name not in ("fork", "vfork"))
    for name in allowed:
        _add(sec, rules, allow, name)
    for name in denied:
        _add(sec, rules, deny, name)
    for name, pairs in (("socket", policy.SOCKETS), ("socketpair", policy.SOCKETPAIRS)):
        for domain, kind in pairs:
            _add(
                sec, rules, allow, name,
                sec.Arg(0, sec.MASKED_EQ, _LOW_32, domain),
                sec.Arg(1, sec.MASKED_EQ, policy.SOCKET_TYPE_MASK, kind),
            )  # fmt: skip
    thread = sec.Arg(0, sec.MASKED_EQ, policy.CLONE_THREAD | policy.CLONE_NAMESPACES, policy.CLONE_THREAD)
    _add(sec, rules, allow, "clone", thread)
    if children:
        _add(sec, rules, allow, "clone", sec.Arg(0, sec.MASKED_EQ, policy.CLONE_THREAD | policy.CLONE_NAMESPACES, 0))
    else:
        _add(sec, rules, deny, "clone", sec.Arg(0, sec.MASKED_EQ, policy.CLONE_THREAD, 0))
    for request in policy.IOCTLS.values():
        _add(sec, rules, allow, "ioctl", sec.Arg(1, sec.MASKED_EQ, _LOW_32, request))
    for option in policy.PRCTLS.values():
        _add(sec, rules, allow, "prctl", sec.Arg(0, sec.MASKED_EQ, _LOW_32, option))
    _add(sec, rules, allow, "sched_setscheduler", sec.Arg(1, sec.MASKED_EQ, _LOW_32, policy.SCHED_OTHER))
    _add(sec, rules, allow, "prlimit64", sec.Arg(0, sec.MASKED_EQ, _LOW_32, 0))  # its own limits, nobody else's
    return _export(rules)


@functools.cache
def compile_seal() -> bytes:
    """The second filter, added before app code runs: everything that it does not name is left to the first."""
    sec = _binding()
    rules = sec.SyscallFilter(sec.ALLOW)
    for name in policy.SEALED:
        _add(sec, rules, sec.ERRNO(errno.EPERM), name)
    return _export(rules)


def _add(sec: ModuleType, rules: object, action: int, name: str, *args: object) -> None:
    """Add one rule; a call that this libseccomp or processor does not know keeps the default (ENOSYS)."""
    try:
        known = sec.resolve_syscall(sec.Arch.NATIVE, name) >= 0
    except (OSError, ValueError):
        known = False
    if known:
        rules.add_rule(action, name, *args)  # type: ignore[attr-defined]


def _binding() -> ModuleType:
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise LineUpError(
            "isolation_insufficient",
            "libseccomp is missing; install it (apt install libseccomp2, or dnf install libseccomp)",
            detail={"layer": "seccomp", "fix": "install libseccomp and start again", "cause": str(error)},
        ) from error
    module: ModuleType = pyseccomp
    return module


def _export(rules: object) -> bytes:
    """The compiled program. An anonymous file, because libseccomp writes to descriptors only."""
    descriptor = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w+b", buffering=0) as file:
        rules.export_bpf(file)  # type: ignore[attr-defined]
        file.seek(0)
        return file.read()
