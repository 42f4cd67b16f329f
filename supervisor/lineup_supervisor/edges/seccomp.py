"""Compiles the policy's system call lists into BPF programs, once per process.

Owns: the translation through libseccomp. Must not know: which worker gets them; they travel as bytes and the worker
loads them itself (``lineup_sdk.confine``), so that neither libseccomp nor its lookup is on the start path of a worker.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges import sandbox_policy as policy

_LOW_32 = 0xFFFF_FFFF  # int arguments: what the kernel ignores above must not decide
_API_OF_LISTENERS = 6  # libseccomp's number for a kernel with a listener for all threads at once (Linux 5.7)
_FORKS = ("fork", "vfork")


@dataclass(frozen=True)
class Filters:
    """The programs of one kind of worker. ``reporting_seal`` is there where the kernel can tell us what it denies."""

    main: bytes
    seal: bytes
    reporting_seal: bytes | None
    last: bytes


@functools.cache
def compile_filters(level: policy.Level, *, children: bool) -> Filters:
    """A ``struct sock_filter`` array each.

    ``main``, from before ZeroMQ on: what is allowed. ``seal``, added before app code runs: no new sockets either; the
    first filter decides what it does not name. ``reporting_seal`` is the same, and what it denies is answered by the
    supervisor (``denials``), which so learns of it. That needs ``main`` not to deny the same by itself: there it hands
    over to a listener that does not exist, which the kernel answers with ENOSYS. It lets through what its own hand-over
    needs (``SEALED_LAST``), which ``last``, added after it, denies.

    Raises:
        LineUpError: ``isolation_insufficient`` if libseccomp is missing or refuses.
    """
    sec = _binding()
    reports = sec.get_api() >= _API_OF_LISTENERS
    refuse = sec.ERRNO(errno.EPERM)
    main = _compile_main(sec, level, children=children, deny=sec.NOTIFY if reports else refuse)
    seal = functools.partial(_compile_seal, sec, level, children=children)
    reporting = seal(deny=sec.NOTIFY, lets_through_last=True) if reports else None
    return Filters(main, seal(deny=refuse), reporting, _compile_last(sec, deny=refuse))


def _compile_main(sec: ModuleType, level: policy.Level, *, children: bool, deny: int) -> bytes:
    allow = sec.ALLOW
    rules = sec.SyscallFilter(sec.ERRNO(errno.ENOSYS))
    rules.set_attr(sec.Attr.ACT_BADARCH, sec.KILL_PROCESS)  # the 32-bit entry would carry other numbers past the list
    for name in policy.ALLOWED + (policy.ALLOWED_S3_ONLY if level == "S3" else ()):
        _add(sec, rules, allow, name)
    if children:
        for name in _FORKS:
            _add(sec, rules, allow, name)
    for name, pairs in (("socket", policy.SOCKETS), ("socketpair", policy.SOCKETPAIRS)):
        for domain, kind in pairs:
            _add(sec, rules, allow, name, *_socket(sec, domain, kind))
    thread = sec.Arg(0, sec.MASKED_EQ, policy.CLONE_THREAD | policy.CLONE_NAMESPACES, policy.CLONE_THREAD)
    _add(sec, rules, allow, "clone", thread)
    if children:
        _add(sec, rules, allow, "clone", sec.Arg(0, sec.MASKED_EQ, policy.CLONE_THREAD | policy.CLONE_NAMESPACES, 0))
    for request in policy.IOCTLS.values():
        _add(sec, rules, allow, "ioctl", sec.Arg(1, sec.MASKED_EQ, _LOW_32, request))
    for command in policy.FCNTLS.values():
        _add(sec, rules, allow, "fcntl", sec.Arg(1, sec.MASKED_EQ, _LOW_32, command))
    for option in policy.PRCTLS.values():
        _add(sec, rules, allow, "prctl", sec.Arg(0, sec.MASKED_EQ, _LOW_32, option))
    _add(sec, rules, allow, "sched_setscheduler", sec.Arg(1, sec.MASKED_EQ, _LOW_32, policy.SCHED_OTHER))
    _add(sec, rules, allow, "prlimit64", sec.Arg(0, sec.MASKED_EQ, _LOW_32, 0))  # its own limits, nobody else's
    _deny_always(sec, rules, deny, level, children=children)
    for domain in range(policy.DOMAINS):
        if domain not in {allowed for allowed, _ in policy.SOCKETS}:
            _add(sec, rules, deny, "socket", sec.Arg(0, sec.MASKED_EQ, _LOW_32, domain))
        else:
            for kind in range(policy.SOCKET_TYPES):
                if (domain, kind) not in policy.SOCKETS:
                    _add(sec, rules, deny, "socket", *_socket(sec, domain, kind))
    return _export(rules)


def _compile_seal(
    sec: ModuleType, level: policy.Level, *, children: bool, deny: int, lets_through_last: bool = False
) -> bytes:
    rules = sec.SyscallFilter(sec.ALLOW)
    for name in policy.SEALED:
        _add(sec, rules, deny, name)
    for name, argument, value in policy.SEALED_LAST:
        _add(sec, rules, deny, name, *([sec.Arg(argument, sec.NE, value)] if lets_through_last else []))
    is_add = sec.Arg(1, sec.MASKED_EQ, _LOW_32, policy.EPOLL_CTL_ADD)
    _add(sec, rules, deny, "epoll_ctl", is_add, sec.Arg(2, sec.GE, policy.EPOLL_NUMBERS))
    _deny_always(sec, rules, deny, level, children=children)
    return _export(rules)


def _compile_last(sec: ModuleType, *, deny: int) -> bytes:
    rules = sec.SyscallFilter(sec.ALLOW)
    for name, argument, value in policy.SEALED_LAST:
        _add(sec, rules, deny, name, sec.Arg(argument, sec.EQ, value))
    return _export(rules)


def _deny_always(sec: ModuleType, rules: object, deny: int, level: policy.Level, *, children: bool) -> None:
    """What is denied before the seal and after it."""
    for name in policy.DENIED + (() if level == "S3" else policy.ALLOWED_S3_ONLY):
        if not (children and name in _FORKS):
            _add(sec, rules, deny, name)
    for bit in policy.CLONE_NAMESPACE_BITS:
        _add(sec, rules, deny, "clone", sec.Arg(0, sec.MASKED_EQ, bit, bit))
    if not children:
        _add(sec, rules, deny, "clone", sec.Arg(0, sec.MASKED_EQ, policy.CLONE_THREAD, 0))
    for request in policy.DENIED_IOCTLS.values():
        _add(sec, rules, deny, "ioctl", sec.Arg(1, sec.MASKED_EQ, _LOW_32, request))
    for command in policy.DENIED_FCNTLS.values():
        _add(sec, rules, deny, "fcntl", sec.Arg(1, sec.MASKED_EQ, _LOW_32, command))
    for option in policy.DENIED_PRCTLS.values():
        _add(sec, rules, deny, "prctl", sec.Arg(0, sec.MASKED_EQ, _LOW_32, option))
    _add(sec, rules, deny, "prlimit64", sec.Arg(0, sec.NE, 0))


def _socket(sec: ModuleType, domain: int, kind: int) -> tuple[object, object]:
    return (
        sec.Arg(0, sec.MASKED_EQ, _LOW_32, domain),
        sec.Arg(1, sec.MASKED_EQ, policy.SOCKET_TYPE_MASK, kind),
    )


@functools.cache
def names_by_number() -> Mapping[int, str]:
    """The system calls that are denied by name, by their numbers on this machine."""
    sec = _binding()
    found: dict[int, str] = {}
    for name in {
        *policy.DENIED,
        *policy.ALLOWED_S3_ONLY,
        *policy.SEALED,
        *(name for name, _, _ in policy.SEALED_LAST),
        "clone",
        "epoll_ctl",
        "fcntl",
        "ioctl",
        "prctl",
        "prlimit64",
    }:
        with contextlib.suppress(OSError, ValueError):
            found[sec.resolve_syscall(sec.Arch.NATIVE, name)] = name
    return found


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
