"""The files of the store, looked at before LMDB maps them: the lock, the header and length of ``data.mdb``, the place.

This file owns what must be certain before a map exists, because a damaged map kills the process instead of raising:
one opener, both meta pages ours and plausible, no page of the newest transaction beyond the end of the file. It must
not know tables or rows, and it never writes into a file that it has not made itself (but for its length).

At a clean end the sum of both meta pages is kept in ``data.sum``: not one bit of them changes unnoticed at rest. So is
the time of the file's last change: what was written into it since is looked at all the more closely (``store_pages``).

``data.mdb`` is kept as long as its map, as a sparse file: a shorter one has lost its end. The layout of the meta pages
is that of LMDB 0.9 (``mdb.c``: MDB_page, MDB_meta, MDB_db) on a little-endian 64-bit machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges.file_faults import check_owner

DATA_NAME = "data.mdb"
LOCK_NAME = "lineup.lock"
_READERS = "readers"  # stands in the lock in place of a pid
LMDB_LOCK_NAME = "lock.mdb"
LMDB_LOCK_BYTES = 8_192  # what LMDB makes it for 126 readers
SUM_NAME = "data.sum"
MADE_ANEW = (LOCK_NAME, LMDB_LOCK_NAME, SUM_NAME)  # nothing is lost with them

PAGE_HEADER = struct.Struct("<QHHI")  # mp_pgno, mp_pad, mp_flags, mp_pb
_META = struct.Struct("<II Q Q")  # mm_magic, mm_version, mm_address, mm_mapsize
_DB = struct.Struct("<I HH QQQQ Q")  # md_pad, md_flags, md_depth, branch, leaf, overflow pages, entries, root
TREE_BYTES = _DB.size
_META_TAIL = struct.Struct("<QQ")  # mm_last_pg, mm_txnid
_META_BYTES = PAGE_HEADER.size + _META.size + 2 * _DB.size + _META_TAIL.size
_MAGIC = 0xBEEFC0DE
_VERSION = 1
FLAG_BRANCH, FLAG_LEAF, _FLAG_META = 0x01, 0x02, 0x08
FLAG_INTEGER_KEY = 0x08  # md_flags of the free list
NO_PAGE = (1 << 64) - 1

# Where an mmap and flock are not what they are on a local disk, or writes are kept less surely.
_DOUBTFUL_FILE_SYSTEMS = {
    "nfs": "a network file system",
    "nfs4": "a network file system",
    "cifs": "a network file system",
    "smb3": "a network file system",
    "ceph": "a network file system",
    "afs": "a network file system",
    "9p": "a file system shared with another machine",
    "virtiofs": "a file system shared with another machine",
    "vboxsf": "a file system shared with another machine",
    "fuse.sshfs": "a network file system",
    "overlay": "a container's own layer, which goes away with the container",
    "tmpfs": "memory, which is empty after a restart of the machine",
    "ramfs": "memory, which is empty after a restart of the machine",
}


class StoreLock:
    """One opener, or any number of readers of a store that is not open: a flock on a file of its own, so that LMDB's
    files can be replaced under it.
    """

    def __init__(self, directory: Path, *, to_read: bool = False) -> None:
        """Raises LineUpError ``store_locked`` naming the holder's pid."""
        self._to_read = to_read
        self._fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._fd, (fcntl.LOCK_SH if to_read else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            if holder == _READERS and not to_read:
                raise LineUpError(
                    "store_locked",
                    f"{directory.parent} is being read (by `lineup calls`, `story`, `audit` or the like); "
                    "try again when that has ended",
                ) from error
            raise LineUpError(
                "store_locked",
                f"process {holder or '(unknown)'} has {directory.parent} open; "
                "stop it with `lineup down` or choose another --home",
                detail={"pid": int(holder) if holder.isdigit() else None},
            ) from error
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same, only the pid is missing
            if not to_read:
                os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{_READERS if to_read else os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            if not self._to_read:  # of readers there may be others
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True)
class Tree:
    """What LMDB keeps of one of its trees."""

    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int

    @property
    def pages(self) -> int:
        return self.branch_pages + self.leaf_pages + self.overflow_pages


@dataclass(frozen=True)
class Header:
    """What the newest meta page says. ``map_bytes`` is the map at the last commit, ``used_bytes`` what it needs.

    ``trees`` are the list of free pages and the table of tables. ``is_as_it_was_left``: not a byte was written since
    a clean end, as far as the file system knows.
    """

    page_bytes: int
    map_bytes: int
    used_bytes: int
    last_page: int
    txn_id: int
    trees: tuple[Tree, Tree]
    is_as_it_was_left: bool


def read_header(path: Path) -> Header:
    """Check ``data.mdb`` without mapping it.

    Raises:
        LineUpError: ``store_damaged``, ``home_unusable`` if it is somebody else's; the file is untouched.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a FIFO would wait for a writer
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise damaged_file(path, "it is not a file")
        check_owner(fd, path)
        length = os.fstat(fd).st_size
        metas = [_read_meta(fd, path, 0, 0)]
        metas.append(_read_meta(fd, path, 1, metas[0].page_bytes))
        newest = max(metas, key=lambda meta: meta.txn_id)
        _check_pair(path, metas[0], metas[1])
        used = (newest.last_page + 1) * newest.page_bytes
        if used > max(length, newest.map_bytes):
            raise damaged_file(path, "its newest header points beyond the map")
        if used > length:
            raise damaged_file(path, f"it has {length} bytes but its newest header needs {used}")
        for db in newest.trees:
            _check_tree(path, db, newest.last_page)
            _check_root(fd, path, db, newest)
        kept_txn_id, kept_sum, changed_at_ns = _read_sum(path) or (-1, 0, 0)
        if kept_txn_id == newest.txn_id and kept_sum != _sum_of(fd, newest.page_bytes):
            raise damaged_file(path, "its headers are not those that were written")
        as_left = kept_txn_id == newest.txn_id and changed_at_ns == os.fstat(fd).st_ctime_ns
        return Header(newest.page_bytes, newest.map_bytes, used, newest.last_page, newest.txn_id, newest.trees, as_left)
    finally:
        os.close(fd)


def write_sum(path: Path) -> None:
    """Keep the sum of both headers beside the file, at a clean end, for the next ``read_header``. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        header = read_header(path)
        line = f"{header.txn_id} {_sum_of(fd, header.page_bytes)} {os.fstat(fd).st_ctime_ns}\n".encode()
    finally:
        os.close(fd)
    fd = os.open(path.with_name(SUM_NAME), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def forget_sum(path: Path) -> None:
    """From now on the headers change. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path.with_name(SUM_NAME))


def _read_sum(path: Path) -> tuple[int, int, int] | None:
    """Transaction, sum, and when the file was last changed; 0 if that was not kept."""
    try:
        fd = os.open(path.with_name(SUM_NAME), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            words = os.read(fd, 100).split()
        finally:
            os.close(fd)
        txn_id, crc = words[:2]
        return int(txn_id), int(crc), int(words[2]) if len(words) > 2 else 0
    except (OSError, ValueError):
        return None


def _sum_of(fd: int, page_bytes: int) -> int:
    return zlib.crc32(os.pread(fd, _META_BYTES, page_bytes), zlib.crc32(os.pread(fd, _META_BYTES, 0)))


def trace_of_store(directory: Path) -> Path | None:
    """A file that is made only beside a store that is there already, and never removed but ``SUM_NAME`` at a start."""
    left = (directory / name for name in (LMDB_LOCK_NAME, SUM_NAME))
    return next((path for path in left if os.path.lexists(path)), None)


def reserve_lock(directory: Path) -> None:
    """Have the blocks of LMDB's own lock file before it is mapped: on a full disk a write through that map is SIGBUS.

    Raises OSError.
    """
    fd = os.open(directory / LMDB_LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(fd, 0, LMDB_LOCK_BYTES)
    finally:
        os.close(fd)


def extend(path: Path, map_bytes: int) -> None:
    """Make the file as long as its map, without using disk. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_size < map_bytes:
            os.ftruncate(fd, map_bytes)
            os.fsync(fd)
    finally:
        os.close(fd)


def fsync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def file_system(directory: Path, mountinfo: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that holds ``directory``; "" where the kernel does not say."""
    try:
        lines = Path(mountinfo).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    where = os.path.realpath(directory)
    best, kind = -1, ""
    for line in lines:
        fields = line.split(" ")
        if "-" not in fields or len(fields) < 5:
            continue
        mount = fields[4].replace("\\040", " ").rstrip("/")
        if (where == mount or where.startswith(mount + "/")) and len(mount) >= best:
            best, kind = len(mount), fields[fields.index("-") + 1]
    return kind


def file_system_warning(directory: Path, mountinfo: str = "/proc/self/mountinfo") -> str | None:
    """One sentence if the store should not lie there, else None."""
    kind = file_system(directory, mountinfo)
    what = _DOUBTFUL_FILE_SYSTEMS.get(kind)
    return None if what is None else f"{directory} lies on {kind}, {what}; keep the home on a local disk"


@dataclass(frozen=True)
class _Meta:
    page_bytes: int
    map_bytes: int
    last_page: int
    txn_id: int
    trees: tuple[Tree, Tree]  # the free list, the main database


def _read_meta(fd: int, path: Path, number: int, at: int) -> _Meta:
    raw = os.pread(fd, _META_BYTES, at)
    if len(raw) < _META_BYTES:
        raise damaged_file(path, "it is too short to be one")
    page, _, flags, _ = PAGE_HEADER.unpack_from(raw, 0)
    offset = PAGE_HEADER.size
    magic, version, address, map_bytes = _META.unpack_from(raw, offset)
    if flags != _FLAG_META or magic != _MAGIC or version != _VERSION or page != number or address:
        raise damaged_file(path, f"header {number} is not that of an LMDB file")
    offset += _META.size
    page_bytes = _DB.unpack_from(raw, offset)[0]
    last_page, txn_id = _META_TAIL.unpack_from(raw, offset + 2 * _DB.size)
    if page_bytes not in (4096, 8192, 16384, 32768, 65536):
        raise damaged_file(path, f"header {number} names a page size of {page_bytes}")
    dbs = tuple(read_tree(raw, offset + n * _DB.size) for n in range(2))
    if (dbs[0].flags, dbs[1].flags) != (FLAG_INTEGER_KEY, 0) or last_page < 1 or map_bytes % page_bytes:
        raise damaged_file(path, f"header {number} is not plausible")
    return _Meta(page_bytes, map_bytes, last_page, txn_id, (dbs[0], dbs[1]))


def read_tree(raw: bytes, offset: int) -> Tree:
    _, flags, depth, branch, leaf, overflow, entries, root = _DB.unpack_from(raw, offset)
    return Tree(flags, depth, branch, leaf, overflow, entries, root)


def _check_tree(path: Path, db: Tree, last_page: int) -> None:
    """For the newest header alone: LMDB leaves new roots in the older one when it takes a failed commit back."""
    if db.root == NO_PAGE:
        plausible = db.depth == db.pages == db.entries == 0
    else:
        in_file = 2 <= db.root <= last_page and db.pages < last_page
        plausible = in_file and 1 <= db.depth <= 32 and db.depth <= db.pages and db.entries > 0
    if not plausible:
        raise damaged_file(path, "its newest header points to a tree that cannot be")


def _check_pair(path: Path, even: _Meta, odd: _Meta) -> None:
    """Transactions take turns: page 0 has the even ones, page 1 the odd ones, one apart (a new file has 0 in both)."""
    fresh = even.txn_id == odd.txn_id == 0
    in_turn = even.txn_id % 2 == 0 and odd.txn_id % 2 == 1 and abs(even.txn_id - odd.txn_id) == 1
    if not (fresh or in_turn) or even.page_bytes != odd.page_bytes:
        raise damaged_file(path, "its two headers do not belong together")


def _check_root(fd: int, path: Path, db: Tree, meta: _Meta) -> None:
    if db.root == NO_PAGE:
        return
    raw = os.pread(fd, PAGE_HEADER.size, db.root * meta.page_bytes)
    page, _, flags, _ = PAGE_HEADER.unpack(raw)
    if page != db.root or not flags & (FLAG_LEAF if db.depth == 1 else FLAG_BRANCH):
        raise damaged_file(path, f"page {db.root} is not the root that the header says")


def damaged_file(path: Path, why: str) -> LineUpError:
    return LineUpError(
        "store_damaged",
        f"{path} cannot be used: {why}; it was left as it is, `lineup restore` brings a backup into an empty home",
        detail={"path": str(path)},
    )
