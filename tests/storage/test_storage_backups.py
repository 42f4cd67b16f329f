"""Backups of a home in use: one at a time, whatever stands in the way, and ended when the Runtime ends.

And a store that cannot be opened anew after a failed commit: it refuses, and goes on by itself.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor import backup
from lineup_supervisor.backup import remove_half_made, restore_backup, write_backup
from lineup_supervisor.backups import Backups
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges import store as store_module
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_copy import CopyStop
from lineup_supervisor.home import Home, open_home


class Row(msgspec.Struct, frozen=True):
    value: bytes


ROWS = Table("rows", Row)


class Kept:
    """A home with a store of some MiB, open."""

    def __init__(self, root: Path) -> None:
        self.home: Home = open_home(root / "home")
        self.store = Store.open(self.home.data, [ROWS])
        self.fill(1_000)

    def fill(self, rows: int) -> None:
        def work(txn: Any) -> None:
            for n in range(rows):
                txn.put(ROWS, (n,), Row(os.urandom(3_000)))

        self.store.transact(work)

    def left(self) -> set[str]:
        return {path.name for path in self.home.data.iterdir()} - {"data.mdb", "lock.mdb", "lineup.lock", "data.sum"}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.store.close()


def rows_in(file: Path, root: Path) -> int:
    restore_backup(file, root, [ROWS], 1)
    store = Store.open(root / "data", [ROWS])
    with store.read() as txn:
        found = len(list(txn.scan(ROWS)))
    store.close()
    return found


async def test_a_second_backup_is_refused_while_one_is_made(kept: Kept, tmp_path: Path) -> None:
    backups = Backups(kept.store, kept.home)
    first = asyncio.create_task(backups.make(tmp_path / "first.tar"))
    await asyncio.sleep(0)
    with pytest.raises(LineUpError, match="another backup") as refused:
        await backups.make(tmp_path / "second.tar")
    assert refused.value.code == "conflict"
    assert await first == (tmp_path / "first.tar").stat().st_size
    assert await backups.make(tmp_path / "second.tar") > 3_000_000
    assert rows_in(tmp_path / "first.tar", tmp_path / "restored") == 1_000
    assert kept.left() == set()


def test_backups_that_get_in_each_other_s_way_all_the_same_are_whole(kept: Kept, tmp_path: Path) -> None:
    """Whoever calls it: no two ever share a file. A map of one that another still writes would end the process."""
    files = [tmp_path / f"{n}.tar" for n in range(4)]
    threads = [threading.Thread(target=write_backup, args=(kept.store, kept.home, file)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for n, file in enumerate(files):
        assert rows_in(file, tmp_path / f"restored-{n}") == 1_000
    assert kept.left() == set()


def test_what_a_killed_backup_left_is_cleared_and_nothing_else(kept: Kept) -> None:
    for name in ("backup.mdb", "backup-0123456789abcdef.mdb"):
        (kept.home.data / name).write_bytes(b"x")
        (kept.home.data / f"{name}.partial").mkdir()
        (kept.home.data / f"{name}.partial" / "data.mdb").write_bytes(b"x")
    (kept.home.data / "backup-notes.txt").write_text("mine")
    remove_half_made(kept.home)
    assert kept.left() == {"backup-notes.txt"}


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_there_are_no_hard_links_a_backup_is_made_all_the_same(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """On FAT and exFAT, as most sticks have it."""

    def refuse(source: Path, destination: Path) -> None:
        raise OSError(number, os.strerror(number), str(source))

    (tmp_path / "stick").mkdir()
    monkeypatch.setattr(backup.os, "link", refuse)
    write_backup(kept.store, kept.home, tmp_path / "stick" / "b.tar")
    assert [path.name for path in (tmp_path / "stick").iterdir()] == ["b.tar"]
    assert rows_in(tmp_path / "stick" / "b.tar", tmp_path / "restored") == 1_000


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_appears_meanwhile_is_never_overwritten(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    destination = tmp_path / "b.tar"
    link = os.link

    def appear(source: Path, target: Path) -> None:
        destination.write_text("mine")
        if not has_links:
            raise OSError(errno.EPERM, "Operation not permitted")
        link(source, target)

    monkeypatch.setattr(backup.os, "link", appear)
    with pytest.raises(LineUpError, match="exists already"):
        write_backup(kept.store, kept.home, destination)
    assert destination.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["b.tar"]


def test_a_backup_does_not_lie_beside_the_store(kept: Kept) -> None:
    """The next start clears that folder of what is not the store's."""
    kept.home.data.joinpath("link").symlink_to(kept.home.data)
    for destination in (kept.home.data / "backup.mdb", kept.home.data / "link" / "x.tar"):
        with pytest.raises(LineUpError, match="somewhere else") as refused:
            write_backup(kept.store, kept.home, destination)
        assert refused.value.code == "conflict"
        assert not destination.exists()


# --- the end of one before its time


def copying_stands_still(fd: int) -> Callable[[], None]:
    """Makes LMDB's writes to the copy wait: a pipe in its file's place. What is returned lets them go on."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.dup2(writer, fd)
    os.close(writer)
    return lambda: os.close(reader)


async def test_stopped_in_the_middle_of_the_copy_it_ends_and_leaves_nothing(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB asks nobody while it copies; a disk that is slow is played by a pipe that is not read."""
    started = threading.Event()
    let_go: list[Callable[[], None]] = []
    of = CopyStop.of

    def slow(self: CopyStop, fd: int) -> Any:
        let_go.append(copying_stands_still(fd))
        started.set()
        return of(self, fd)

    monkeypatch.setattr(CopyStop, "of", slow)
    backups = Backups(kept.store, kept.home)
    making = asyncio.create_task(backups.make(tmp_path / "b.tar"))
    await asyncio.to_thread(started.wait, 5)
    await asyncio.sleep(0.05)
    assert not await backups.ended(0.05)
    backups.stop()
    let_go[0]()
    with pytest.raises(LineUpError) as refused:
        await making
    assert refused.value.code == "runtime_stopping"
    assert await backups.ended(1)
    assert (kept.left(), (tmp_path / "b.tar").exists()) == (set(), False)
    with pytest.raises(LineUpError, match="going down"):
        await backups.make(tmp_path / "b.tar")


def test_the_copy_of_a_store_ends_at_its_next_write_once_it_is_asked(kept: Kept, tmp_path: Path) -> None:
    stop = CopyStop()
    stop.ask()
    with pytest.raises(lmdb.Error):
        kept.store.copy(tmp_path / "copy.mdb", stop)
    assert list(tmp_path.glob("copy*")) == []
    kept.store.copy(tmp_path / "copy.mdb")


def test_stopped_while_the_file_is_written_it_ends_and_leaves_nothing(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = CopyStop()
    add = backup._add

    def then_stop(*args: Any) -> None:
        stop.ask()
        add(*args)

    monkeypatch.setattr(backup, "_add", then_stop)
    with pytest.raises(LineUpError) as refused:
        write_backup(kept.store, kept.home, tmp_path / "b.tar", stop)
    assert refused.value.code == "runtime_stopping"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert kept.left() == set()


def test_the_store_may_be_closed_while_its_copy_is_still_being_synced(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    finish = store_module._finish_copy

    def slow(directory: Path) -> None:
        entered.set()
        assert go_on.wait(10)
        finish(directory)

    monkeypatch.setattr(store_module, "_finish_copy", slow)
    thread = threading.Thread(target=kept.store.copy, args=(tmp_path / "copy.mdb",))
    thread.start()
    assert entered.wait(10)
    kept.store.close()
    go_on.set()
    thread.join(10)
    assert (tmp_path / "copy.mdb").is_file()


def test_a_backup_is_a_plain_tar_file_with_sums(kept: Kept, tmp_path: Path) -> None:
    size = write_backup(kept.store, kept.home, tmp_path / "b.tar")
    assert size == (tmp_path / "b.tar").stat().st_size
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert [member.name for member in tar] == ["data/data.mdb", "SHA256SUMS"]


# --- a store that cannot be opened anew


@pytest.mark.parametrize("number", [errno.EROFS, errno.EMFILE, errno.EACCES, errno.EIO])
def test_a_store_that_cannot_be_opened_anew_refuses_until_it_can(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(directory: Path) -> None:
        raise OSError(number, os.strerror(number), str(directory / "lock.mdb"))

    put = lambda txn: txn.put(ROWS, (0,), Row(b"new"))  # noqa: E731
    with monkeypatch.context() as patched:
        patched.setattr(store_module, "reserve_lock", refuse)
        for _ in range(3):
            with pytest.raises(LineUpError) as refused:
                kept.store._reopen() if kept.store._env is not None else kept.store.transact(put)
            assert refused.value.code == "storage_full"
            assert kept.store.stat() is None
    kept.store.transact(put)
    assert kept.store.stat() is not None


def test_tables_that_cannot_be_opened_anew_leave_no_half_open_store(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its handles would be those of a store that is closed, and every transaction a fault of ours."""

    class HalfOpen:
        def __init__(self, real: lmdb.Environment) -> None:
            self._real = real

        def open_db(self, *args: Any, **more: Any) -> Any:
            raise OSError(errno.EIO, "Input/output error")

        def close(self) -> None:
            self._real.close()

    real = lmdb.open
    with monkeypatch.context() as patched:
        patched.setattr(store_module.lmdb, "open", lambda *args, **more: HalfOpen(real(*args, **more)))
        with pytest.raises(LineUpError) as refused:
            kept.store._reopen()
        assert refused.value.code == "storage_full"
    kept.store.transact(lambda txn: txn.put(ROWS, (0,), Row(b"new")))


def test_sizes_are_never_waited_for(kept: Kept) -> None:
    assert kept.store.stat() is not None
    with kept.store._gate.exclusive():
        assert kept.store.stat() is None
    os.rename(kept.home.data / "data.mdb", kept.home.data / "aside")
    assert kept.store.stat() is None
    os.rename(kept.home.data / "aside", kept.home.data / "data.mdb")
    stat = kept.store.stat()
    assert stat is not None
    assert stat.used_bytes > 3_000_000
