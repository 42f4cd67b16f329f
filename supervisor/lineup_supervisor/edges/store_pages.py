"""Every page that the newest transaction of ``data.mdb`` reaches, looked at before LMDB follows it.

This file owns the check of the trees' structure: LMDB trusts what it reads, so that one damaged page ends the process
by an assertion or a fault of memory instead of an error. Each page must be what the one above it says, and a table
must have as many rows and pages as it has counted. Unless nobody has touched the file since a clean end, or it is
large, each row must lie within its page and keys must be in their order too. What rows and keys mean is not looked at.
Pages are read, not mapped: a disk that fails is an error too.

The layout is that of LMDB 0.9 (``mdb.c``: MDB_page, MDB_node, MDB_db) on a little-endian 64-bit machine.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

from lineup_supervisor.edges.store_file import (
    FLAG_BRANCH,
    FLAG_INTEGER_KEY,
    FLAG_LEAF,
    NO_PAGE,
    PAGE_HEADER,
    TREE_BYTES,
    Header,
    Tree,
    damaged_file,
    read_tree,
)

# A start must not wait long for a large store: what is beyond these is found when it is read. In pages of 4 KiB:
LEFT_PAGES_MAX = 16_384  # 64 MiB of heads, if nobody has touched the file since a clean end
CHECKED_PAGES_MAX = 131_072  # 512 MiB of heads otherwise, some ten times as long
THOROUGH_PAGES_MAX = 32_768  # a store of up to 128 MiB: rows and keys too
_KIND_FLAGS = 0x2F  # branch, leaf, overflow, meta, rows of a fixed size; the others are of the moment of writing
_FLAG_OVERFLOW = 0x04
_ROW_IS_ELSEWHERE, _ROW_IS_TREE = 0x01, 0x02
_NODE = struct.Struct("<HHHH")  # mn_lo, mn_hi, mn_flags, mn_ksize
_LENGTHS = struct.Struct("<HH")  # pb_lower, pb_upper
_PAGE_NUMBER = struct.Struct("<Q")
_DEPTH_MAX = 32  # LMDB's own

_Bound = bytes | int | None  # a key; integers in the list of free pages, where they are compared as such


class _TooMany(Exception):
    """The rest is not looked at."""


def check_pages(path: Path, header: Header) -> None:
    """Walk what ``header`` reaches; past the rows in the pages if the file is as a clean end has left it.

    Raises:
        LineUpError: ``store_damaged``; the file is untouched. OSError if it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        pages = LEFT_PAGES_MAX if header.is_as_it_was_left else CHECKED_PAGES_MAX
        os.posix_fadvise(fd, 0, min(header.used_bytes, pages * header.page_bytes), os.POSIX_FADV_WILLNEED)
        walk = _Walk(fd, path, header, pages)
        try:
            walk.trees(header, thorough=not header.is_as_it_was_left and header.last_page < THOROUGH_PAGES_MAX)
        except _TooMany:
            return
        except struct.error as error:
            raise damaged_file(path, f"a page is not one: {error}") from error
    finally:
        os.close(fd)


class _Walk:
    """One walk over all trees. No page belongs to two of them."""

    def __init__(self, fd: int, path: Path, header: Header, pages: int = CHECKED_PAGES_MAX) -> None:
        self._fd = fd
        self._path = path
        self._size = header.page_bytes
        self._last_page = header.last_page
        self._seen = bytearray(header.last_page + 1)
        self._left = pages
        self._tree: Tree
        self._thorough = True
        self._previous: _Bound
        self._counts = [0, 0, 0, 0]  # branch, leaf and overflow pages, rows

    def trees(self, header: Header, *, thorough: bool) -> None:
        """All of them; ``thorough`` is for the tables, the lists of pages and tables are always read to the end."""
        free, tables = header.trees
        self.tree(free, thorough=True)
        for tree in self.tree(tables, thorough=True):
            self.tree(tree, thorough=thorough)

    def tree(self, tree: Tree, *, thorough: bool) -> list[Tree]:
        """The trees that its rows are."""
        if tree.root == NO_PAGE:
            if tree.depth or tree.pages or tree.entries:
                raise damaged_file(self._path, "a table without pages has rows")
            return []
        if not 1 <= tree.depth <= _DEPTH_MAX:
            raise damaged_file(self._path, f"a table cannot be {tree.depth} pages deep")
        self._tree, self._thorough, self._previous, self._counts = tree, thorough, None, [0, 0, 0, 0]
        inner: list[Tree] = []
        self._page(tree.root, 1, None, None, inner)
        counted = [tree.branch_pages, tree.leaf_pages, tree.overflow_pages if thorough else 0, tree.entries]
        if self._counts != counted:
            raise damaged_file(self._path, "a table does not have the rows and pages that it has counted")
        return inner

    def _page(self, number: int, depth: int, low: _Bound, high: _Bound, inner: list[Tree]) -> None:
        """``low`` is the smallest key that may stand in this page or below, ``high`` the first one that may not."""
        tree = self._tree
        is_leaf = depth == tree.depth
        raw = self._read(number, self._size)
        found, _, flags, _ = PAGE_HEADER.unpack_from(raw)
        lower, upper = _LENGTHS.unpack_from(raw, 12)
        if found != number or flags & _KIND_FLAGS != (FLAG_LEAF if is_leaf else FLAG_BRANCH):
            raise self._bad(number)
        count = (lower - PAGE_HEADER.size) // 2
        if count < (1 if is_leaf else 2) or not lower <= upper <= self._size:
            raise self._bad(number)
        offsets = struct.unpack_from(f"<{count}H", raw, PAGE_HEADER.size)
        if min(offsets) < upper or max(offsets) > self._size - _NODE.size:
            raise self._bad(number)
        self._counts[1 if is_leaf else 0] += 1
        if is_leaf:
            self._counts[3] += count
            if self._thorough:
                self._rows(number, raw, offsets, low, high, inner)
        else:
            self._children(number, depth, raw, offsets, low, high, inner)

    def _rows(
        self,
        number: int,
        raw: bytes,
        offsets: tuple[int, ...],
        low: _Bound,
        high: _Bound,
        inner: list[Tree],
    ) -> None:
        unpack, size, previous = _NODE.unpack_from, self._size, self._previous
        integers = self._tree.flags & FLAG_INTEGER_KEY
        key: Any
        for offset in offsets:
            low_size, high_size, flags, key_size = unpack(raw, offset)
            start = offset + 8
            at = start + key_size
            key = raw[start:at]
            if integers:
                key = int.from_bytes(key, "little")
            if not key or (previous is not None and previous >= key):
                raise self._bad(number)
            if low is not None:  # of the first one alone: the others are above it
                if key < low:
                    raise self._bad(number)
                low = None
            previous = key
            if flags:
                self._row_apart(number, raw, at, flags, low_size | high_size << 16, inner)
            elif at + (low_size | high_size << 16) > size:
                raise self._bad(number)
        if high is not None and previous >= high:  # type: ignore[operator]
            raise self._bad(number)
        self._previous = previous

    def _row_apart(self, number: int, raw: bytes, at: int, flags: int, length: int, inner: list[Tree]) -> None:
        if flags == _ROW_IS_ELSEWHERE and at + _PAGE_NUMBER.size <= self._size:
            self._overflow(number, _PAGE_NUMBER.unpack_from(raw, at)[0], length)
        elif flags == _ROW_IS_TREE and length == TREE_BYTES and at + length <= self._size:
            inner.append(read_tree(raw, at))
        else:
            raise self._bad(number)

    def _children(
        self,
        number: int,
        depth: int,
        raw: bytes,
        offsets: tuple[int, ...],
        low: _Bound,
        high: _Bound,
        inner: list[Tree],
    ) -> None:
        integers = bool(self._tree.flags & FLAG_INTEGER_KEY)
        children: list[tuple[int, _Bound]] = []
        for offset in offsets:
            low_part, middle, high_part, key_size = _NODE.unpack_from(raw, offset)
            key = raw[offset + 8 : offset + 8 + key_size]
            if len(key) != key_size:
                raise self._bad(number)
            start: _Bound = int.from_bytes(key, "little") if integers else key
            children.append((low_part | middle << 16 | high_part << 32, start if children else low))
        for at, (child, start) in enumerate(children):
            end = children[at + 1][1] if at + 1 < len(children) else high
            self._page(child, depth + 1, start, end, inner)

    def _overflow(self, number: int, first: int, length: int) -> None:
        raw = self._read(first, PAGE_HEADER.size)
        found, _, flags, pages = PAGE_HEADER.unpack_from(raw)
        wanted = -(-(PAGE_HEADER.size + length) // self._size)
        if found != first or flags & _KIND_FLAGS != _FLAG_OVERFLOW or pages != wanted:
            raise self._bad(first)
        if first + pages - 1 > self._last_page or any(self._seen[first + 1 : first + pages]):
            raise self._bad(number)
        self._seen[first + 1 : first + pages] = b"\1" * (pages - 1)
        self._counts[2] += pages

    def _read(self, number: int, length: int) -> bytes:
        if not 2 <= number <= self._last_page or self._seen[number]:
            raise damaged_file(self._path, f"page {number} stands where it cannot be")
        if self._left == 0:
            raise _TooMany
        self._left -= 1
        self._seen[number] = 1
        try:
            raw = os.pread(self._fd, length, number * self._size)
        except OSError as error:
            raise damaged_file(self._path, f"page {number} cannot be read ({error.strerror})") from error
        if len(raw) < length:
            raise damaged_file(self._path, f"it ends before page {number}")
        return raw

    def _bad(self, number: int) -> Exception:
        return damaged_file(self._path, f"page {number} is damaged")
