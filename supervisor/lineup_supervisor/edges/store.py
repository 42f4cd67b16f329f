"""The durable store: ``core.txn`` over one LMDB environment, one named database per table.

This file owns the environment's life (create, open, migrate, grow, copy, close) and the transactions. It must not know
what a row means. Its laws:

- One opener (``StoreLock``), one writing thread, any number of short reads.
- Every commit is on the disk when ``write`` or ``transact`` returns. No writemap: a full disk raises, it does not kill.
- A file that is not provably ours and whole is refused and left as it is. Each commit keeps its own transaction number
  in the ``_store`` database; a header that was altered points to an older tree and is found out by it. It names the
  tables too: one that was there once is never made anew in place of one that a damaged page hides.
- The map grows only while no transaction is open; ``transact`` then runs its work again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import lmdb

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges.file_faults import FULL_ERRNOS, MAKE_ROOM, file_fault
from lineup_supervisor.edges.store_copy import CopyStop
from lineup_supervisor.edges.store_file import (
    DATA_NAME,
    MADE_ANEW,
    StoreLock,
    extend,
    file_system_warning,
    forget_sum,
    fsync_directory,
    read_header,
    reserve_lock,
    trace_of_store,
    write_sum,
)
from lineup_supervisor.edges.store_migration import BadRow, RawTxn
from lineup_supervisor.edges.store_migration import Migration as Migration
from lineup_supervisor.edges.store_pages import check_pages
from lineup_supervisor.edges.store_rows import Unreadable
from lineup_supervisor.edges.store_txn import LmdbTxn

T = TypeVar("T")

MAP_BYTES_START = 64 << 20  # address space and a sparse file, not memory or disk
MAP_BYTES_MAX = 256 << 30  # far beyond any home; a runaway ends here, typed
TABLES_MAX = 256  # named databases; handles are an array, so room is cheap
READERS_MAX = 126  # LMDB's default; one process with a few threads needs a handful
META_TABLE = b"_store"
_TXN_ID = b"txn_id"
_VERSION = b"schema_version"
_MADE = b"tables"  # their names, a line each
# The last two: a page that leads in a circle.
_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.IncompatibleError,
    lmdb.CursorFullError,
    lmdb.PageFullError,
)
_STORAGE_ERRNOS = (*FULL_ERRNOS, errno.EROFS)


class MapFull(Exception):
    """The map has no room for this transaction. ``transact`` grows it; ``write`` alone lets this through."""


@dataclass(frozen=True)
class StoreStat:
    """Sizes in bytes. ``used_bytes`` are pages of the newest transaction, free ones among them included."""

    used_bytes: int
    map_bytes: int
    disk_bytes: int
    readers: int


class Store:
    """See the module. Open with ``Store.open``."""

    def __init__(self, directory: Path, tables: Sequence[Table[Any]], lock: StoreLock) -> None:
        self.directory = directory
        self._tables = tuple(tables)
        self._lock = lock
        self._gate = _Gate()
        self._env: lmdb.Environment | None = None
        self._dbs: dict[str, Any] = {}
        self._map_bytes = MAP_BYTES_START
        self._is_closed = False

    @classmethod
    def open(
        cls,
        directory: Path,
        tables: Sequence[Table[Any]],
        *,
        schema_version: int = 1,
        migrations: Sequence[Migration] = (),
        map_bytes: int = MAP_BYTES_START,
        trace: Callable[[], Path | None] = lambda: None,
    ) -> Store:
        """Open the store in ``directory`` (which exists), made anew if there is none.

        ``trace()`` is a file elsewhere that cannot be there unless a store was: then none is made in its place.

        Raises:
            LineUpError: ``store_locked``, ``store_newer``, ``store_damaged``, ``storage_full``, ``home_unusable``;
                nothing was changed.
        """
        assert len({table.name for table in tables}) == len(tables) < TABLES_MAX
        assert all(table.name != "_store" for table in tables)
        with opening(directory):
            lock = StoreLock(directory)
            store = cls(directory, tables, lock)
            try:
                store._start(schema_version, migrations, map_bytes, trace)
            except BaseException:
                store.close()
                raise
        return store

    def _start(
        self,
        schema_version: int,
        migrations: Sequence[Migration],
        map_bytes: int,
        trace: Callable[[], Path | None],
    ) -> None:
        path = self.directory / DATA_NAME
        if not os.path.lexists(path):
            if (left := trace_of_store(self.directory) or trace()) is not None:
                raise gone(path, left)
            self._create(schema_version)
        header = read_header(path)
        check_pages(path, header)
        check_content(path, header.txn_id, schema_version)
        wanted = max(map_bytes, header.map_bytes)
        while header.used_bytes * 2 > wanted and wanted < MAP_BYTES_MAX:
            wanted *= 2
        extend(path, wanted)
        forget_sum(path)
        self._open_env(wanted)
        assert self._env is not None
        self._env.reader_check()
        self._prepare(schema_version, migrations)

    def _create(self, schema_version: int) -> None:
        """Make a whole, empty store beside its place and rename it there: a kill leaves all of it or none."""
        fresh = self.directory / "new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        reserve_lock(fresh)
        env = lmdb.open(str(fresh), map_size=1 << 20, max_dbs=1, mode=0o600)
        try:
            meta = env.open_db(META_TABLE)
            with env.begin(write=True, db=meta) as txn:
                txn.put(_VERSION, str(schema_version).encode())
                txn.put(_TXN_ID, str(txn.id()).encode())
        finally:
            env.close()
        os.rename(fresh / DATA_NAME, self.directory / DATA_NAME)
        fsync_directory(self.directory)
        shutil.rmtree(fresh, ignore_errors=True)

    def _open_env(self, map_bytes: int) -> None:
        reserve_lock(self.directory)
        try:
            self._env = lmdb.open(
                str(self.directory),
                map_size=map_bytes,
                max_dbs=TABLES_MAX,
                max_readers=READERS_MAX,
                mode=0o600,
                create=False,
                writemap=False,
                metasync=True,
                sync=True,
            )
        except (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError) as error:
            raise damaged(self.directory, str(error)) from error

    def _prepare(self, schema_version: int, migrations: Sequence[Migration]) -> None:
        """Open every table, migrate, all in one transaction that is committed only if something changed."""
        env = self._environment()
        txn = env.begin(write=True)
        try:
            meta = env.open_db(META_TABLE, txn=txn, create=False)
            version = int(txn.get(_VERSION, db=meta) or b"0")
            made, names = made_tables(txn, meta), {table.name for table in self._tables}
            for name in sorted(names):
                self._dbs[name] = _open_table(self.directory, env, txn, name, create=name not in made)
            changed = made != names
            if changed:
                txn.put(_MADE, "\n".join(sorted(names)).encode(), db=meta)
            for at in range(version, schema_version):
                (step,) = [m for m in migrations if m.source == at]
                step.run(RawTxn(env, txn))
                changed = True
            if changed:
                txn.put(_VERSION, str(schema_version).encode(), db=meta)
                txn.put(_TXN_ID, str(txn.id()).encode(), db=meta)
        except BaseException as error:
            txn.abort()
            if isinstance(error, BadRow):
                raise damaged(self.directory, str(error)) from error
            raise
        if changed:
            txn.commit()
            self._dbs["_store"] = meta
            return
        txn.abort()  # handles that a transaction opened end with it
        self._dbs = {table.name: env.open_db(table.name.encode(), create=False) for table in self._tables}
        self._dbs["_store"] = env.open_db(META_TABLE, create=False)

    @contextmanager
    def write(self) -> Iterator[LmdbTxn]:
        """One write transaction for the calling thread: on the disk at the end of the block, undone if it raises.

        Raises:
            LineUpError: ``storage_full``: nothing was written.
            MapFull: nothing was written; call ``grow`` and run the block again.
        """
        with self._gate.shared(), _typed(self.directory):
            inner = self._environment().begin(write=True)
            txn = LmdbTxn(inner, self._dbs, writable=True)
            try:
                yield txn
                txn.write_out()
                if txn.dirty:
                    inner.put(_TXN_ID, str(inner.id()).encode(), db=self._dbs["_store"])
                inner.commit()
            except BaseException:
                with contextlib.suppress(lmdb.Error):
                    inner.abort()
                raise
            finally:
                txn.close()

    @contextmanager
    def read(self) -> Iterator[LmdbTxn]:
        """A snapshot of the last commit. Keep it short: pages that it sees cannot be used again meanwhile."""
        with self._gate.shared(), _typed(self.directory):
            inner = self._environment().begin(write=False)
            txn = LmdbTxn(inner, self._dbs, writable=False)
            try:
                yield txn
            finally:
                txn.close()
                inner.abort()

    def transact(self, work: Callable[[LmdbTxn], T]) -> T:
        """``work`` in one write transaction; its result after the commit. It is run again if the map has to grow.

        Raises:
            LineUpError: ``storage_full``: nothing was written. The store is usable again as soon as the disk is.
        """
        while True:
            if self._env is None:
                self._reopen()
            number, result = 0, None
            try:
                with self.write() as txn:
                    result = work(txn)
                    number = txn.number if txn.dirty else 0
                return result
            except MapFull:
                self.grow()
            except LineUpError:
                if not self._mended(number):
                    raise
                return cast(T, result)

    def grow(self) -> None:
        """Double the map. Waits until no transaction is open. Raises LineUpError ``storage_full`` at the limit."""
        with self._gate.exclusive(), _typed(self.directory):
            env = self._environment()
            wanted: int = env.info()["map_size"] * 2
            if wanted > MAP_BYTES_MAX:
                raise LineUpError("storage_full", f"the store is at its limit of {MAP_BYTES_MAX} bytes")
            extend(self.directory / DATA_NAME, wanted)
            env.set_mapsize(wanted)

    def copy(self, destination: Path, stop: CopyStop | None = None) -> None:
        """A hot, consistent, compact copy as the file ``destination``, which must not exist; durable at the end.

        ``stop`` ends it from another thread; it raises then. Two copies at once need two destinations.
        """
        assert not destination.exists()
        partial = destination.with_name(destination.name + ".partial")
        with _typed(self.directory):
            partial.mkdir(mode=0o700)
            try:
                with open(partial / DATA_NAME, "xb", buffering=0) as file:
                    fd = file.fileno()
                    with self._gate.shared(), (stop or CopyStop()).of(fd):
                        self._environment().copyfd(fd, compact=True)
                _finish_copy(partial)  # which takes as long as the disk wants: the store itself may be closed meanwhile
                os.rename(partial / DATA_NAME, destination)
                fsync_directory(destination.parent)
            finally:
                shutil.rmtree(partial, ignore_errors=True)

    def stat(self) -> StoreStat | None:
        """Never waits. None while it cannot be said: it is being opened anew or grown, or its file is not there."""
        with self._gate.tried() as is_in, contextlib.suppress(OSError, lmdb.Error):
            if is_in and self._env is not None:
                info = self._env.info()
                page: int = self._env.stat()["psize"]
                blocks = os.stat(self.directory / DATA_NAME).st_blocks
                return StoreStat((info["last_pgno"] + 1) * page, info["map_size"], blocks * 512, info["num_readers"])
        return None

    def warning(self) -> str | None:
        """One sentence about where the store lies, if there is something to say."""
        return file_system_warning(self.directory)

    def close(self) -> None:
        """Close and let go of the lock. No transaction may be open."""
        with self._gate.exclusive():
            self._is_closed = True
            if self._env is not None:
                self._env.close()
                self._env = None
                with contextlib.suppress(LineUpError, OSError):  # without it, the next start checks a little less
                    write_sum(self.directory / DATA_NAME)
        self._lock.release()

    def _mended(self, number: int) -> bool:
        """After an error in the middle of a commit LMDB refuses everything until it is opened anew: do that.

        True if transaction ``number`` is there all the same: the disk has done it and reported a failure.
        """
        try:
            with self.read():
                return False
        except LineUpError as error:
            if not isinstance(error.__cause__, lmdb.PanicError):
                raise
        self._reopen()
        with _typed(self.directory):
            env = self._environment()
            if not number or env.info()["last_txnid"] != number:
                return False
            env.sync(True)
            return True

    def _reopen(self) -> None:
        """Raises LineUpError ``storage_full`` if even that fails, for any reason; the next transaction tries again."""
        with self._gate.exclusive(), _typed(self.directory):
            assert not self._is_closed, "the store is closed"
            if self._env is not None:
                self._map_bytes = self._env.info()["map_size"]
                self._env.close()
                self._env = None
            try:
                self._open_env(self._map_bytes)
                self._dbs = {name: self._environment().open_db(name.encode(), create=False) for name in self._dbs}
            except BaseException as error:
                if self._env is not None:
                    self._env.close()
                    self._env = None
                if isinstance(error, OSError) or getattr(error, "code", 0) in errno.errorcode:
                    raise _full(self.directory, str(error)) from error
                raise

    def _environment(self) -> lmdb.Environment:
        assert not self._is_closed, "the store is closed"
        if self._env is None:
            raise _full(self.directory, "it could not be opened anew yet")
        return self._env


def _finish_copy(directory: Path) -> None:
    """A compact copy counts its transactions anew; write that number into it, durably. It also shows that it opens."""
    os.chmod(directory / DATA_NAME, 0o600)
    reserve_lock(directory)
    env = lmdb.open(
        str(directory), map_size=(directory / DATA_NAME).stat().st_size + (1 << 20), max_dbs=1, create=False
    )
    try:
        meta = env.open_db(META_TABLE, create=False)
        with env.begin(write=True, db=meta) as txn:
            txn.put(_TXN_ID, str(txn.id()).encode())
    finally:
        env.close()


class _Gate:
    """Many transactions, or one change of the map. A waiting change lets no new transaction in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shared = 0
        self._exclusive = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            self._shared += 1
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def tried(self) -> Iterator[bool]:
        """The same without waiting: False if that would be necessary, and then nothing is held."""
        with self._changed:
            is_in = not self._exclusive
            self._shared += is_in
        try:
            yield is_in
        finally:
            if is_in:
                self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._shared -= 1
            self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            self._exclusive = True
            self._changed.wait_for(lambda: not self._shared)
        try:
            yield
        finally:
            with self._changed:
                self._exclusive = False
                self._changed.notify_all()


@contextmanager
def _typed(directory: Path) -> Iterator[None]:
    """What the disk says becomes an operating error; everything else passes."""
    try:
        yield
    except Unreadable as met:
        raise met.error from met
    except lmdb.MapFullError as error:
        raise MapFull(str(error)) from error
    except _DAMAGE as error:
        raise damaged(directory, str(error)) from error
    except (lmdb.DiskError, lmdb.PanicError) as error:
        raise _full(directory, str(error)) from error
    except lmdb.Error as error:
        if getattr(error, "code", None) in _STORAGE_ERRNOS:
            raise _full(directory, str(error)) from error
        raise
    except OSError as error:
        if error.errno in _STORAGE_ERRNOS:
            raise _full(directory, error.strerror or str(error)) from error
        raise


@contextmanager
def opening(directory: Path) -> Iterator[None]:
    """The same while a store is being opened: a file that refuses is the operator's to mend, and no fault of ours."""
    try:
        with _typed(directory):
            yield
    except OSError as error:
        raise _refused(error, directory) from error
    except lmdb.Error as error:
        number = getattr(error, "code", 0)
        if number not in errno.errorcode:
            raise
        raise _refused(OSError(number, os.strerror(number)), directory) from error


def _refused(error: OSError, directory: Path) -> LineUpError:
    if error.errno == errno.EISDIR and Path(str(error.filename)).name in MADE_ANEW:
        return file_fault(error, directory, remedy="remove it, everything is kept: the file is made anew")
    return file_fault(error, directory / DATA_NAME)


def _full(directory: Path, why: str) -> LineUpError:
    return LineUpError("storage_full", f"the store in {directory} cannot be written ({why}); {MAKE_ROOM}")


def gone(path: Path, left: Path) -> LineUpError:
    return LineUpError(
        "store_damaged",
        f"{path} is gone, but {left} shows that there was a store; nothing was made in its place: put the file back, "
        "or restore a backup with `lineup restore` into an empty home, or begin anew in an empty home with --home DIR",
        detail={"path": str(path)},
    )


def damaged(directory: Path, why: str) -> LineUpError:
    return LineUpError(
        "store_damaged",
        f"the store in {directory} cannot be used: {why}; it was left as it is, "
        "`lineup restore` brings a backup into an empty home",
    )


def made_tables(txn: lmdb.Transaction, meta: Any) -> set[str]:
    """The names of the tables that a store has; none of one that no program of today has opened yet."""
    return set(bytes(txn.get(_MADE, db=meta) or b"").decode("utf-8", "replace").split())


def _open_table(directory: Path, env: lmdb.Environment, txn: lmdb.Transaction, name: str, *, create: bool) -> Any:
    try:
        return env.open_db(name.encode(), txn=txn, create=create)
    except lmdb.NotFoundError as error:
        raise damaged(directory, f"its table {name} is gone") from error


def check_content(path: Path, txn_id: int, schema_version: int) -> int:
    """Look into the file through a mapping that cannot write: is it ours, whole, and of a known version? Its version.

    Raises LineUpError ``store_newer`` or ``store_damaged``.
    """
    try:
        env = lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=1, map_size=0)
    except lmdb.Error as error:
        raise damaged(path.parent, str(error)) from error
    try:
        with env.begin(db=env.open_db(META_TABLE, create=False)) as txn:
            version, written = txn.get(_VERSION), txn.get(_TXN_ID)
    except lmdb.NotFoundError as error:
        raise damaged(path.parent, "it is an LMDB file, but not one of ours") from error
    finally:
        env.close()
    if version is None or not version.isdigit() or written != str(txn_id).encode():
        raise damaged(path.parent, "its header does not belong to its newest transaction")
    if int(version) > schema_version:
        raise LineUpError(
            "store_newer",
            f"the store in {path.parent} has version {int(version)}, this program knows up to {schema_version}; "
            "install the newer program",
        )
    return int(version)
