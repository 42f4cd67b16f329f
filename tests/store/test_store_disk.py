"""LMDB alone: durability, damage, locking, growth, versions, full disks, copies (catalogue A8, H1 to H7, I2, I3)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges import store as store_module
from lineup_supervisor.edges.store import LmdbTxn, MapFull, Store
from lineup_supervisor.edges.store_file import file_system, file_system_warning, read_header
from lineup_supervisor.edges.store_migration import Migration, RawTxn


class Item(msgspec.Struct, frozen=True, kw_only=True):
    n: int = 0
    data: bytes = b""


ITEMS = Table("items", Item)
TABLES = (ITEMS,)


def put(store: Store, n: int, data: bytes = b"") -> None:
    store.transact(lambda txn: txn.put(ITEMS, (n,), Item(n=n, data=data)))


def count(store: Store) -> int:
    with store.read() as txn:
        return sum(1 for _ in txn.scan(ITEMS))


def contents(directory: Path) -> dict[str, bytes]:
    """The bytes that matter: everything but LMDB's reader table and our lock, which hold no data."""
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.name not in ("lock.mdb", "lineup.lock")}


def refuses(directory: Path, code: str, **options: Any) -> LineUpError:
    """Opening is refused with ``code`` and changes nothing."""
    before = contents(directory)
    with pytest.raises(LineUpError) as caught:
        Store.open(directory, TABLES, **options)
    assert caught.value.code == code
    assert contents(directory) == before
    return caught.value


@pytest.fixture
def home(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    return data


@pytest.fixture
def filled(home: Path) -> Path:
    store = Store.open(home, TABLES)
    for n in range(50):
        put(store, n, bytes(200))
    store.close()
    return home


def test_what_was_committed_is_there_after_reopening(filled: Path) -> None:
    store = Store.open(filled, TABLES)
    assert count(store) == 50
    store.close()


def test_files_are_for_the_owner_alone(filled: Path) -> None:
    assert {p.name: oct(p.stat().st_mode & 0o777) for p in filled.iterdir()} == {
        "data.mdb": "0o600",
        "data.sum": "0o600",
        "lock.mdb": "0o600",
        "lineup.lock": "0o600",
    }


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_store_disk import ITEMS, TABLES, put, Store
store = Store.open(Path(sys.argv[1]), TABLES)
n = int(sys.argv[2])
while True:
    put(store, n, bytes(300))
    print(n, flush=True)
    n += 1
"""


def start_writer(directory: Path, first: int) -> subprocess.Popen[str]:
    code = CHILD.format(here=str(Path(__file__).parent))
    return subprocess.Popen([sys.executable, "-c", code, str(directory), str(first)], stdout=subprocess.PIPE, text=True)


def test_a_killed_writer_loses_nothing_that_it_reported(home: Path) -> None:
    rng = random.Random(7)
    first = 0
    for _ in range(3):
        writer = start_writer(home, first)
        assert writer.stdout is not None
        reported = -1
        for _ in range(rng.randint(1, 60)):
            reported = int(writer.stdout.readline())
        writer.kill()
        reported = max([reported, *(int(line) for line in writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()
        store = Store.open(home, TABLES)
        assert reported + 1 <= count(store) <= reported + 2
        first = count(store)
        store.close()


def test_a_kill_while_the_store_is_made_leaves_all_of_it_or_none(home: Path) -> None:
    (home / "new").mkdir()
    (home / "new" / "data.mdb").write_bytes(b"")
    store = Store.open(home, TABLES)
    put(store, 1)
    store.close()
    assert not (home / "new").exists()


def test_a_second_opener_is_refused_by_the_pid_of_the_first(home: Path) -> None:
    store = Store.open(home, TABLES)
    with pytest.raises(LineUpError) as caught:
        Store.open(home, TABLES)
    assert caught.value.code == "store_locked"
    assert str(os.getpid()) in caught.value.message
    (home / "lock.mdb").unlink()
    with pytest.raises(LineUpError, match="store_locked"):
        Store.open(home, TABLES)
    put(store, 1)
    store.close()
    Store.open(home, TABLES).close()


def test_killed_readers_do_not_keep_anybody_out(filled: Path) -> None:
    code = "import lmdb, os, sys; e = lmdb.open(sys.argv[1], create=False); t = e.begin(); os.kill(os.getpid(), 9)"
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", code, str(filled)]).returncode == -signal.SIGKILL
    store = Store.open(filled, TABLES)
    assert store.stat().readers <= 3
    for _ in range(200):
        assert count(store) == 50
    store.close()


# --- damage


def cut_to(size: int) -> Any:
    return lambda path: os.truncate(path, size)


def overwrite(at: int, data: bytes) -> Any:
    def run(path: Path) -> None:
        with path.open("r+b") as f:
            f.seek(at)
            f.write(data)

    return run


@pytest.mark.parametrize(
    "damage",
    [
        cut_to(0),
        cut_to(100),
        cut_to(4096),
        cut_to(8192),
        cut_to(12288),
        lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(100_000)),
        lambda path: path.write_bytes(random.Random(1).randbytes(65536)),
        overwrite(0, bytes(4096)),
        overwrite(4096, bytes(4096)),
        overwrite(0, bytes(8192)),
    ],
    ids=["0", "100", "1page", "2pages", "3pages", "sqlite", "random", "meta0", "meta1", "both"],
)
def test_a_damaged_file_is_refused_and_kept(filled: Path, damage: Any) -> None:
    damage(filled / "data.mdb")
    error = refuses(filled, "store_damaged")
    assert "data" in error.message


def test_half_of_what_is_in_use_is_refused(filled: Path) -> None:
    os.truncate(filled / "data.mdb", read_header(filled / "data.mdb").used_bytes // 2)
    refuses(filled, "store_damaged")


def test_another_lmdb_file_is_refused(home: Path) -> None:
    env = lmdb.open(str(home), max_dbs=2)
    with env.begin(write=True, db=env.open_db(b"theirs")) as txn:
        txn.put(b"a", b"b")
    env.close()
    refuses(home, "store_damaged")


def test_a_directory_in_its_place_is_refused(home: Path) -> None:
    (home / "data.mdb").mkdir()
    with pytest.raises((LineUpError, OSError)):
        Store.open(home, TABLES)
    assert (home / "data.mdb").is_dir()


def open_or_code(directory: Path) -> int | str:
    """How many rows it has, or with which code it is refused."""
    try:
        store = Store.open(directory, TABLES)
    except LineUpError as error:
        return error.code
    try:
        return count(store)
    finally:
        store.close()


META_BYTES = 16 + 24 + 96 + 16  # header, magic to mapsize, two databases, last page and transaction


@pytest.mark.parametrize("ended", ["cleanly", "killed"])
def test_every_flipped_bit_of_the_newest_header_is_refused_or_harmless(filled: Path, ended: str) -> None:
    """No flip may kill the process, lose a row, or pass as an older state; after a clean end none passes at all."""
    path, sum_path = filled / "data.mdb", filled / "data.sum"
    newest = read_header(path).txn_id % 2
    original, sums = path.read_bytes(), sum_path.read_bytes()
    passed = []
    for byte in range(META_BYTES):
        for bit in range(8):
            at = newest * 4096 + byte
            overwrite(at, bytes((original[at] ^ (1 << bit),)))(path)
            sum_path.unlink(missing_ok=True) if ended == "killed" else sum_path.write_bytes(sums)
            if (found := open_or_code(filled)) not in ("store_damaged", "storage_full"):
                assert found == 50, f"byte {byte} bit {bit}: {found}"
                passed.append((byte, bit))
            with path.open("r+b") as f:
                f.write(original[: 2 * 4096])
    assert len(passed) <= (0 if ended == "cleanly" else META_BYTES * 8 // 4), passed


def test_a_row_that_is_garbage_is_named_when_it_is_read(home: Path) -> None:
    store = Store.open(home, TABLES)
    with store.write() as txn:
        txn._txn.put(b"\x01" + bytes(8), b"\xc1", db=txn._dbs["items"])
    with pytest.raises(LineUpError, match="items") as caught, store.read() as txn:
        txn.get(ITEMS, (0,))
    assert caught.value.code == "store_damaged"
    store.close()


# --- growth, copies, versions


def test_the_map_grows_between_transactions_and_the_work_runs_again(home: Path) -> None:
    store = Store.open(home, TABLES, map_bytes=1 << 20)
    runs = 0

    def work(txn: Any) -> None:
        nonlocal runs
        runs += 1
        for n in range(40):
            txn.put(ITEMS, (n,), Item(n=n, data=bytes(100_000)))

    store.transact(work)
    assert runs == 3
    assert count(store) == 40
    assert store.stat().map_bytes == 4 << 20
    store.close()
    store = Store.open(home, TABLES)
    assert count(store) == 40
    store.close()


def test_growth_waits_for_readers(home: Path) -> None:
    store = Store.open(home, TABLES, map_bytes=1 << 20)
    grown = threading.Event()

    def grow() -> None:
        store.grow()
        grown.set()

    with store.read():
        thread = threading.Thread(target=grow)
        thread.start()
        assert not grown.wait(0.05)
    assert grown.wait(5)
    thread.join()
    store.close()


def put_many(txn: LmdbTxn) -> None:
    for n in range(40):
        txn.put(ITEMS, (n,), Item(n=n, data=bytes(100_000)))


def test_write_alone_says_that_the_map_is_full(home: Path) -> None:
    store = Store.open(home, TABLES, map_bytes=1 << 20)
    with pytest.raises(MapFull), store.write() as txn:
        put_many(txn)
    assert count(store) == 0
    store.close()


def test_a_map_at_its_limit_is_storage_full(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAP_BYTES_MAX", 1 << 20)
    store = Store.open(home, TABLES, map_bytes=1 << 20)
    with pytest.raises(LineUpError) as caught:
        store.transact(put_many)
    assert caught.value.code == "storage_full"
    put(store, 1)
    assert count(store) == 1
    store.close()


def test_a_hot_copy_opens_as_a_store_of_that_moment(filled: Path, tmp_path: Path) -> None:
    store = Store.open(filled, TABLES)
    store.copy(tmp_path / "backup.mdb")
    put(store, 99)
    store.close()
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "backup.mdb", other / "data.mdb")
    copy = Store.open(other, TABLES)
    assert count(copy) == 50
    put(copy, 100)
    copy.close()
    copy = Store.open(other, TABLES)
    assert count(copy) == 51
    copy.close()
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []


def test_a_copy_beside_writes_is_consistent(home: Path, tmp_path: Path) -> None:
    store = Store.open(home, TABLES)
    stop = threading.Event()

    def write_pairs() -> None:
        n = 0
        while not stop.is_set():
            n += 2
            store.transact(lambda txn, n=n: (txn.put(ITEMS, (n,), Item(n=n)), txn.put(ITEMS, (n + 1,), Item(n=n))))

    thread = threading.Thread(target=write_pairs)
    thread.start()
    try:
        for i in range(3):
            store.copy(tmp_path / f"{i}.mdb")
    finally:
        stop.set()
        thread.join()
    store.close()
    for i in range(3):
        other = tmp_path / str(i)
        other.mkdir()
        shutil.move(tmp_path / f"{i}.mdb", other / "data.mdb")
        copy = Store.open(other, TABLES)
        assert count(copy) % 2 == 0
        copy.close()


def test_a_newer_store_is_refused_untouched(home: Path) -> None:
    Store.open(home, TABLES, schema_version=3, migrations=()).close()
    error = refuses(home, "store_newer", schema_version=2)
    assert "version 3" in error.message


def rename_field(txn: RawTxn) -> None:
    for key, row in list(txn.scan("items")):
        txn.put("items", key, {**row, "n": row["n"] + 1000})


def fail(txn: RawTxn) -> None:
    rename_field(txn)
    raise KeyboardInterrupt


def test_migrations_run_in_order_in_one_transaction(filled: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Store.open(filled, TABLES, schema_version=3, migrations=[Migration(1, rename_field), Migration(2, fail)])
    store = Store.open(filled, TABLES)
    with store.read() as txn:
        assert txn.get(ITEMS, (3,)) == Item(n=3, data=bytes(200))
    store.close()
    both = [Migration(2, rename_field), Migration(1, rename_field)]
    for _ in range(2):
        store = Store.open(filled, TABLES, schema_version=3, migrations=both)
        with store.read() as txn:
            assert txn.get(ITEMS, (3,)) == Item(n=2003, data=bytes(200))
        store.close()


def test_a_table_that_is_new_is_added(filled: Path) -> None:
    more: Table[Item] = Table("more", Item)
    store = Store.open(filled, (*TABLES, more))
    with store.write() as txn:
        txn.put(more, (1,), Item(n=1))
    store.close()
    store = Store.open(filled, TABLES)
    assert count(store) == 50
    store.close()


# --- a disk that is full, slow to admit it, or read-only


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root; the file size limit below covers the same path")
    where = tmp_path / "small"
    where.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(where)], capture_output=True)
    if done.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def fill(store: Store) -> int:
    for n in range(10_000):
        try:
            put(store, n, bytes(20_000))
        except LineUpError as error:
            if error.code != "storage_full":
                raise
            return n
    raise AssertionError("the disk never filled")


def test_a_full_disk_refuses_and_recovers(small_disk: Path) -> None:
    store = Store.open(small_disk, TABLES)
    written = fill(store)
    assert written > 10
    for _ in range(3):
        assert count(store) == written
        with pytest.raises(LineUpError, match="storage_full"):
            put(store, 99_999, bytes(2_000_000))
    store.close()
    store = Store.open(small_disk, TABLES)
    assert count(store) == written
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    put(store, 100_000, bytes(20_000))
    assert count(store) == written + 1
    store.close()


def test_a_full_disk_at_the_start_is_one_typed_error_and_leaves_nothing_half_made(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes((2 << 20) - 4096 * 2))
    with pytest.raises(LineUpError) as caught:
        Store.open(small_disk, TABLES)
    assert caught.value.code == "storage_full"
    assert not (small_disk / "data.mdb").exists()
    (small_disk / "ballast").unlink()
    Store.open(small_disk, TABLES).close()


LIMITED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_store_disk import TABLES, Store, count, fill
store = Store.open(Path(sys.argv[1]), TABLES, map_bytes=1 << 20)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
written = fill(store)
assert written > 5 and count(store) == written
print(written)
"""


def test_a_file_size_limit_is_storage_full(home: Path) -> None:
    code = LIMITED.format(here=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", code, str(home)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    store = Store.open(home, TABLES)
    assert count(store) == int(done.stdout)
    store.close()


# --- where it lies


MOUNTINFO = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /mnt/far rw - nfs4 server:/x rw
31 22 0:41 / /mnt/with\\040space rw - 9p share rw
32 22 0:42 / /var/lib/box rw shared:1 - overlay overlay rw
33 30 254:1 / /mnt/far/near rw - ext4 /dev/vdb rw
"""


def test_the_file_system_is_found_and_named(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTINFO)
    kinds = {
        "/home/x": "ext4",
        "/mnt/far/home": "nfs4",
        "/mnt/far": "nfs4",
        "/mnt/farther": "ext4",
        "/mnt/far/near/x": "ext4",
        "/mnt/with space/x": "9p",
        "/var/lib/box/y": "overlay",
    }
    assert {where: file_system(Path(where), str(table)) for where in kinds} == kinds
    assert file_system_warning(Path("/home/x"), str(table)) is None
    for where in ("/mnt/far/home", "/mnt/with space/x", "/var/lib/box/y"):
        warning = file_system_warning(Path(where), str(table))
        assert warning is not None
        assert "local disk" in warning
    assert file_system(tmp_path, str(tmp_path / "absent")) == ""
