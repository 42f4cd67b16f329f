"""Stands between LMDB and the kernel, in this process: records what LMDB writes and syncs, or lets one call fail.

The extension's own table of imported functions (its GOT) is pointed at callbacks here. Needs no tracer, no privilege
and no special file system. Linux with ELF64 only; LMDB's calls alone are touched, nobody else's in the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lmdb
import lmdb.cpython

_SLOT_TYPES = (7, 6, 1026, 1025)  # R_X86_64_JUMP_SLOT, _GLOB_DAT; R_AARCH64_JUMP_SLOT, _GLOB_DAT
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 2, 5, 6, 7, 8, 23

_libc = ctypes.CDLL(None, use_errno=True)
_c_off = ctypes.c_int64


class _Iov(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "pwrite": (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, _c_off),
    "writev": (ctypes.c_ssize_t, ctypes.c_int, ctypes.POINTER(_Iov), ctypes.c_int),
    "fdatasync": (ctypes.c_int, ctypes.c_int),
    "fsync": (ctypes.c_int, ctypes.c_int),
}


@dataclass(frozen=True)
class Write:
    """Bytes that were handed to the kernel. ``is_durable``: through a descriptor that syncs every write by itself."""

    at: int
    data: bytes
    is_durable: bool = False


@dataclass(frozen=True)
class Sync:
    """Everything written before it is on the disk."""


class FileCalls:
    """Use ``watching`` or ``failing``; both may be open at once, one of each."""

    def __init__(self) -> None:
        self.trace: list[Write | Sync] | None = None
        self.calls = 0  # since the last ``failing``
        self._fails_at = 0
        self._lasts = 0
        self._errno = 0
        self._is_done = False
        self._real = {name: _real(name, types) for name, types in _PROTOTYPES.items()}
        self._hooks: list[Any] = []

    @contextlib.contextmanager
    def installed(self) -> Iterator[FileCalls]:
        """Point the slots here, and back at the end."""
        slots = _slots(tuple(_PROTOTYPES))
        missing = {"pwrite", "fdatasync"} - slots.keys()
        assert not missing, f"LMDB does not import {missing}: this Python binding is built in another way"
        before = {}
        hooks = {"pwrite": self._pwrite, "writev": self._writev, "fdatasync": self._sync("fdatasync")}
        hooks["fsync"] = self._sync("fsync")
        for name, address in slots.items():
            hook = ctypes.CFUNCTYPE(*_PROTOTYPES[name], use_errno=True)(hooks[name])
            self._hooks.append(hook)
            before[address] = _poke(address, ctypes.cast(hook, ctypes.c_void_p).value or 0)
        try:
            yield self
        finally:
            for address, old in before.items():
                _poke(address, old)

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[Write | Sync]]:
        """Everything that LMDB does in the block, in order."""
        self.trace = []
        try:
            yield self.trace
        finally:
            self.trace = None

    @contextlib.contextmanager
    def failing(self, nth: int, code: int, *, times: int = 1, is_done: bool = False) -> Iterator[None]:
        """The ``nth`` write or sync in the block fails with ``code``, and the next ``times - 1`` too.

        ``is_done``: it is carried out all the same, as a disk may do that fails to say so.
        """
        self.calls, self._fails_at, self._lasts, self._errno, self._is_done = 0, nth, times, code, is_done
        try:
            yield
        finally:
            self._fails_at = 0

    def _is_to_fail(self) -> bool:
        self.calls += 1
        return bool(self._fails_at) and self._fails_at <= self.calls < self._fails_at + self._lasts

    def _failed(self, name: str, *args: Any) -> int:
        if self._is_done:
            self._real[name](*args)
        ctypes.set_errno(self._errno)
        return -1

    def _pwrite(self, fd: int, data: int, length: int, at: int) -> int:
        if self._is_to_fail():
            return self._failed("pwrite", fd, data, length, at)
        done = self._passed("pwrite", fd, data, length, at)
        if self.trace is not None and done > 0:
            self.trace.append(Write(at, ctypes.string_at(data, done), bool(_flags(fd) & os.O_DSYNC)))
        return done

    def _writev(self, fd: int, vector: Any, count: int) -> int:
        if self._is_to_fail():
            return self._failed("writev", fd, vector, count)
        at = os.lseek(fd, 0, os.SEEK_CUR)
        done = self._passed("writev", fd, vector, count)
        if self.trace is not None and done > 0:
            whole = b"".join(ctypes.string_at(vector[n].base, vector[n].length) for n in range(count))
            self.trace.append(Write(at, whole[:done], bool(_flags(fd) & os.O_DSYNC)))
        return done

    def _sync(self, name: str) -> Callable[[int], int]:
        def sync(fd: int) -> int:
            if self._is_to_fail():
                return self._failed(name, fd)
            done = self._passed(name, fd)
            if self.trace is not None and done == 0:
                self.trace.append(Sync())
            return done

        return sync

    def _passed(self, name: str, *args: Any) -> int:
        done = int(self._real[name](*args))
        if done < 0:
            ctypes.set_errno(ctypes.get_errno() or errno.EIO)
        return done


def _real(name: str, types: tuple[Any, ...]) -> Any:
    """libc's own function."""
    return ctypes.CFUNCTYPE(*types, use_errno=True)((name, _libc))


def _flags(fd: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_GETFL)


def _slots(names: tuple[str, ...]) -> dict[str, int]:
    """Where the loaded extension keeps the addresses of these imported functions."""
    path = lmdb.cpython.__file__
    base = _base_of(path)
    with open(path, "rb") as file:
        raw = file.read()
    assert raw[:5] == b"\x7fELF\x02", "not a 64-bit ELF file"
    first, size, count = struct.unpack_from("<Q", raw, 32)[0], *struct.unpack_from("<HH", raw, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", raw, first + n * size) for n in range(count)]

    def offset_of(address: int) -> int:
        for kind, _, offset, start, _, in_file, _, _ in segments:
            if kind == _PT_LOAD and start <= address < start + in_file:
                return int(offset + address - start)
        raise AssertionError(f"address {address:#x} is in no segment")

    (dynamic,) = [s for s in segments if s[0] == _PT_DYNAMIC]
    entries = dict(struct.iter_unpack("<QQ", raw[dynamic[2] : dynamic[2] + dynamic[5]]))
    found = {}
    for table, length in ((_DT_JMPREL, _DT_PLTRELSZ), (_DT_RELA, _DT_RELASZ)):
        if table not in entries:
            continue
        start = offset_of(entries[table])
        for address, info, _ in struct.iter_unpack("<QQq", raw[start : start + entries[length] // 24 * 24]):
            if info & 0xFFFFFFFF not in _SLOT_TYPES:
                continue
            name_at = struct.unpack_from("<I", raw, offset_of(entries[_DT_SYMTAB]) + 24 * (info >> 32))[0]
            begin = offset_of(entries[_DT_STRTAB]) + name_at
            name = raw[begin : raw.index(b"\0", begin)].decode()
            if name in names:
                found[name] = base + address
    return found


def _base_of(path: str) -> int:
    with open("/proc/self/maps") as maps:
        starts = [int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(os.path.realpath(path))]
    return min(starts)


def _poke(address: int, value: int) -> int:
    """Write one pointer, read-only page or not; the old one."""
    page = address & ~(mmap.PAGESIZE - 1)
    if _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE):
        raise OSError(ctypes.get_errno(), "mprotect")
    slot = ctypes.c_uint64.from_address(address)
    old, slot.value = slot.value, value
    return int(old)
