"""Homes that were damaged, moved, upgraded, opened twice or set read-only: refused with a way out, never made anew.

Real jobs of ``python -m lineup_supervisor`` where a person would use them (H2, H3, H4, H5, H6, I1, I2, I3).
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import msgspec
import pytest

from lineup_protocol.errors import LineUpError
from lineup_protocol.shapes import shape
from lineup_supervisor.core import merge_patch
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import SCHEMA_VERSION, SURFACE_PARTS, TABLES, SurfacePart
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_file import DATA_NAME, forget_sum, read_header
from storage.homes import MAP_BYTES, child, dump, faults_of, hide_table, job, open_store
from storage.traffic import Traffic

# damage


def cut(path: Path) -> None:
    os.truncate(path, read_header(path).used_bytes // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for page in (0, 4096):
        content[page + 40] ^= 0x10
    path.write_bytes(bytes(content))


def another(path: Path) -> None:
    path.write_bytes(random.Random(3).randbytes(65_536))


@pytest.mark.parametrize("damage", [cut, empty, flipped, another])
def test_a_damaged_store_is_refused_kept_and_restored_from_a_backup(
    home: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    backup, data = tmp_path / "backup.tar", home / "data" / DATA_NAME
    assert job("backup", backup, home=home).returncode == 0
    store = open_store(home / "data")
    before = dump(store)
    store.close()
    damage(data)
    damaged = data.read_bytes()
    for arguments in (("run", "--no-web"), ("backup", tmp_path / "second.tar")):
        done = job(*arguments, home=home)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "store_damaged" in done.stderr
        assert "restore" in done.stderr
        assert data.read_bytes() == damaged
    assert not (tmp_path / "second.tar").exists()
    assert "conflict" in job("restore", backup, home=home).stderr, "a restore never writes over a home"
    assert data.read_bytes() == damaged
    other = tmp_path / "restored"
    done = job("restore", backup, home=other)
    assert done.returncode == 0, done.stderr
    store = open_store(other / "data")
    assert dump(store) == before
    assert faults_of(store) == []
    store.close()


def test_a_backup_that_is_cut_restores_nothing(home: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.tar"
    assert job("backup", backup, home=home).returncode == 0
    os.truncate(backup, backup.stat().st_size // 3)
    other = tmp_path / "restored"
    done = job("restore", backup, home=other)
    assert done.returncode == 1
    assert "store_damaged" in done.stderr
    assert not other.exists()


@pytest.mark.parametrize("where", [0.2, 0.5])
def test_a_backup_with_a_flipped_bit_restores_nothing(home: Path, tmp_path: Path, where: float) -> None:
    backup = tmp_path / "backup.tar"
    assert job("backup", backup, home=home).returncode == 0
    size = backup.stat().st_size
    with backup.open("r+b") as file:
        at = int(size * where)
        file.seek(at)
        octet = file.read(1)[0]
        file.seek(at)
        file.write(bytes((octet ^ 1,)))
    done = job("restore", backup, home=tmp_path / "restored")
    assert done.returncode == 1
    assert "is not what was backed up" in done.stderr or "broken one" in done.stderr
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("name", ["calls", TABLES[-1].name])
def test_a_table_that_a_damaged_page_hides_is_not_made_anew(home: Path, name: str) -> None:
    hide_table(home / "data", name)
    before = (home / "data" / DATA_NAME).read_bytes()
    for _ in range(2):
        done = job("run", "--no-web", home=home)
        assert done.returncode == 1
        assert f"store_damaged: the store in {home / 'data'} cannot be used: its table {name} is gone" in done.stderr
        assert (home / "data" / DATA_NAME).read_bytes()[8192 : len(before)] == before[8192:]


def test_a_store_from_before_tables_were_named_in_it_opens_and_names_them(home: Path) -> None:
    store = open_store(home / "data")
    before = dump(store)
    store.close()
    env = lmdb.open(str(home / "data"), max_dbs=1)
    meta = env.open_db(b"_store", create=False)
    with env.begin(write=True, db=meta) as txn:
        assert txn.delete(b"tables")
        txn.put(b"txn_id", str(txn.id()).encode())
    env.close()
    forget_sum(home / "data" / DATA_NAME)
    store = open_store(home / "data")
    assert dump(store) == before
    store.close()
    hide_table(home / "data", "calls")
    with pytest.raises(LineUpError, match="its table calls is gone"):
        open_store(home / "data")


FLIPPER = """
import random, sys
from pathlib import Path
from storage.homes import dump, faults_of, open_store
from lineup_protocol.errors import LineUpError
try:
    store = open_store(Path(sys.argv[1]))
    rows = dump(store)
    print("changed" if faults_of(store) else "whole")
    store.close()
except LineUpError as error:
    print(error.code)
"""


def test_flips_inside_pages_are_found_by_the_audit_or_named_when_read_and_never_make_a_store_anew(
    home: Path, tmp_path: Path
) -> None:
    """LMDB keeps no sum of its pages: what no check finds is at least never taken for an empty store."""
    rng = random.Random(11)
    path = home / "data" / DATA_NAME
    used = read_header(path).used_bytes
    original = path.read_bytes()
    verdicts = []
    for _ in range(12):
        content = bytearray(original)
        for _ in range(200):
            content[rng.randrange(8192, used)] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(content))
        done = child(FLIPPER, home / "data")
        verdicts.append(done.stdout.strip() or f"ended with {done.returncode}")
        assert path.stat().st_size == len(original)
    assert "whole" not in verdicts, verdicts


# readers, openers


READERS = """
import os, signal, sys
import lmdb
children = []
for _ in range(200):
    pid = os.fork()
    if pid == 0:
        try:
            env = lmdb.open(sys.argv[1], create=False, max_dbs=64)
            txn = env.begin()
        except lmdb.ReadersFullError:
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    children.append(os.waitpid(pid, 0)[1])
print(sum(os.WIFSIGNALED(status) for status in children), sum(status == 3 << 8 for status in children))
"""


def test_two_hundred_killed_readers_keep_nobody_out_and_hold_no_page(home: Path) -> None:
    done = child(READERS, home / "data")
    killed, full = map(int, done.stdout.split())
    assert killed + full == 200
    assert killed >= 126, "the table of readers was filled"
    store = open_store(home / "data")
    assert store.stat().readers <= 2
    traffic = Traffic(store, Policy(calls_kept_max=10))
    traffic.boot()
    traffic.calls(100, 40, batch=1)
    used = store.stat().used_bytes
    for _ in range(200):
        store.transact(lambda txn: txn.put(*first_row(txn)))
    assert store.stat().used_bytes <= used + (1 << 20)
    assert faults_of(store) == []
    store.close()


def first_row(txn: object) -> tuple[object, object, object]:
    from lineup_supervisor.core.schema import AGENTS

    key, row = next(iter(txn.scan(AGENTS)))  # type: ignore[attr-defined]
    return AGENTS, key, row


def test_a_second_runtime_and_offline_jobs_are_refused_while_one_runs(home: Path, tmp_path: Path) -> None:
    store = open_store(home / "data")
    (home / "data" / "lock.mdb").unlink(missing_ok=True)
    for arguments in (("run", "--no-web"), ("backup", tmp_path / "b.tar")):
        done = job(*arguments, home=home)
        assert done.returncode == 1
        assert f"process {os.getpid()} has {home} open" in done.stderr
    store.close()
    assert job("backup", tmp_path / "b.tar", home=home).returncode == 0


# growth


def test_the_map_grows_under_traffic_and_no_call_is_lost(tmp_path: Path) -> None:
    """H2: between transactions only; ids stay monotonic, results stay one each."""
    data = tmp_path / "data"
    data.mkdir()
    store = Store.open(data, TABLES, map_bytes=1 << 20)
    start = store.stat().map_bytes
    traffic = Traffic(store, Policy())
    traffic.boot()
    traffic.calls(0, 600, batch=50)
    assert store.stat().map_bytes > start
    assert len(traffic.results) == 600
    seqs = [key[0] for key, _ in dump(store)["audit"]]
    assert seqs == list(range(1, len(seqs) + 1))
    assert faults_of(store) == []
    store.close()


# upgrades


MIGRATING = """
import os, signal, sys
from pathlib import Path
from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
from lineup_supervisor.edges import store as module
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_migration import Migration
from storage.homes import MAP_BYTES

directory, kill_at = Path(sys.argv[1]), int(sys.argv[2])
passed = 0

def step(name):
    global passed
    passed += 1
    if passed == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

def change(by):
    def run(txn):
        step("before")
        for key, row in list(txn.scan("calls")):
            txn.put("calls", key, {**row, "attempt": row.get("attempt", 1) * 10 + by})
            step("inside")
        step("after")
    return run

commit = module.check_content
steps = [Migration(SCHEMA_VERSION, change(1)), Migration(SCHEMA_VERSION + 1, change(2))]
store = Store.open(directory, TABLES, schema_version=SCHEMA_VERSION + 2, migrations=steps, map_bytes=MAP_BYTES)
step("committed")
with store.read() as txn:
    (table,) = [t for t in TABLES if t.name == "calls"]
    print(sorted({call.attempt for _, call in txn.scan(table)}), passed)
store.close()
"""


def test_an_upgrade_that_is_killed_at_any_step_runs_again_to_the_same_end(home: Path) -> None:
    """A store of an older version; SIGKILL before, inside, between and after the steps, and after the commit."""
    kept = home / "old"
    shutil.copytree(home / "data", kept)
    whole = child(MIGRATING, home / "data", 0)
    assert whole.returncode == 0, whole.stderr
    attempts, steps = whole.stdout.rsplit(maxsplit=1)
    assert attempts == "[112]"
    for kill_at in (1, 2, 12, 21, 22, 23, 24, 40, 43, 44, int(steps)):
        shutil.rmtree(home / "data")
        shutil.copytree(kept, home / "data")
        assert child(MIGRATING, home / "data", kill_at).returncode == -signal.SIGKILL
        again = child(MIGRATING, home / "data", 0)
        assert again.returncode == 0, again.stderr
        assert again.stdout.rsplit(maxsplit=1)[0] == attempts, f"killed at step {kill_at}"


def test_states_of_the_version_before_are_laid_out_anew(home: Path, tmp_path: Path) -> None:
    """Each member was a row, and a name that a key could not hold a digest; what they say stays as it is."""
    old = {
        ("f-1",): SurfacePart(split=True, count=3, bytes=9, nodes=9),
        ("f-1", "=a"): SurfacePart(name="a", split=True, count=20_000, bytes=9, nodes=9),
        **{("f-1", "=a", f"={n:x}"): SurfacePart(name=f"{n:x}", value=n, bytes=1, nodes=1) for n in range(20_000)},
        ("f-1", "=b\x01"): SurfacePart(name="b\x01", value={"c": [None, 1.5]}, bytes=9, nodes=9),
        ("f-1", "=n"): SurfacePart(name="n", bytes=4, nodes=1),
        ("f-2",): SurfacePart(split=True, bytes=2, nodes=1),
    }
    shutil.rmtree(home / "data")
    (home / "data").mkdir(mode=0o700)
    store = Store.open(home / "data", TABLES, schema_version=1, map_bytes=MAP_BYTES)
    with store.write() as txn:
        for key, row in old.items():
            txn.put(SURFACE_PARTS, key, row)
    store.close()
    state = {"a": {f"{n:x}": n for n in range(20_000)}, "b\x01": {"c": [None, 1.5]}, "n": None}
    assert job("backup", tmp_path / "b.tar", home=home).returncode == 0, "which brings it up to date first"
    restored = tmp_path / "restored"
    assert job("restore", tmp_path / "b.tar", home=restored).returncode == 0
    for each in (home, restored):
        store = open_store(each / "data")
        with store.read() as txn:
            assert (merge_patch.load(txn, "f-1"), merge_patch.load(txn, "f-2")) == (state, {})
            rows, root = dict(txn.scan(SURFACE_PARTS)), merge_patch.root_of(txn, "f-1")
        assert rows == merge_patch.laid_out("f-1", state) | merge_patch.laid_out("f-2", {})
        assert (root.bytes, root.nodes) == (len(msgspec.json.encode(state)), shape(state)[0])
        assert root.rows == len(rows) - 1 < 100
        store.close()


def test_a_store_of_a_newer_program_is_refused_and_nothing_is_written(home: Path, tmp_path: Path) -> None:
    open_store(home / "data").close()
    child(MIGRATING, home / "data", 0)
    before = {path.name: path.read_bytes() for path in (home / "data").iterdir() if path.name != "lock.mdb"}
    for arguments in (("run", "--no-web"), ("backup", tmp_path / "b.tar")):
        done = job(*arguments, home=home)
        assert done.returncode == 1
        assert "store_newer" in done.stderr
        assert "install the newer program" in done.stderr
    after = {path.name: path.read_bytes() for path in (home / "data").iterdir() if path.name != "lock.mdb"}
    assert after == before


# a place that cannot be written


@pytest.fixture
def read_only(home: Path) -> Iterator[Path]:
    """The home on a file system that was mounted read-only, or without the right to write."""
    if os.geteuid() != 0:
        os.chmod(home / "data", 0o500)
        yield home
        os.chmod(home / "data", 0o700)
        return
    if subprocess.run(["mount", "--bind", str(home), str(home)], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here, and root may write everywhere")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(home)], check=True)
        yield home
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def test_a_read_only_home_is_one_sentence_and_stays_as_it_is(read_only: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(read_only.rglob("*"))}
    done = job("run", "--no-web", home=read_only)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert any(code in done.stderr for code in ("home_unusable", "storage_full"))
    assert {path: path.stat().st_mtime_ns for path in sorted(read_only.rglob("*"))} == before


def test_a_store_that_belongs_to_somebody_else_is_refused(home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    for path in (home / "data" / DATA_NAME, home):
        os.chown(path, 12_345, 12_345)
        before = (home / "data" / DATA_NAME).read_bytes()
        done = job("run", "--no-web", home=home)
        assert done.returncode == 1
        assert f"home_unusable: {path} belongs to user 12345" in done.stderr
        assert (home / "data" / DATA_NAME).read_bytes() == before


@pytest.mark.parametrize("name", [DATA_NAME, "lineup.lock", "lock.mdb"])
def test_a_link_in_place_of_a_file_is_said_with_the_file_and_the_way_out(home: Path, name: str) -> None:
    path = home / "data" / name
    path.rename(home / "elsewhere")
    path.symlink_to(home / "elsewhere")
    for arguments in (("run", "--no-web"), ("backup", home.parent / "b.tar")):
        done = job(*arguments, home=home)
        assert done.returncode == 1, done.stderr
        assert done.stderr == (
            f"lineup: home_unusable: {path} cannot be used (it is a symbolic link); "
            "put the file itself there or choose another home with --home DIR\n"
        )


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EPERM, "may be marked as immutable); `lsattr` shows the mark and `chattr -ia` takes it away"),
        (errno.EACCES, "(Permission denied); give it back to the user who runs LineUp"),
        (errno.EMFILE, "(Too many open files); choose another home"),
    ],
)
def test_a_file_that_cannot_be_opened_is_a_typed_refusal(
    home: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    """An immutable ``data.mdb`` is EPERM to root too."""
    path, opened = home / "data" / DATA_NAME, os.open

    def refusing(name: str | Path, flags: int, *rest: int, **more: int) -> int:
        if Path(name) == path and flags & os.O_RDWR:
            raise OSError(number, os.strerror(number), str(name))
        return opened(name, flags, *rest, **more)

    os.truncate(path, path.stat().st_size)
    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(LineUpError) as refused:
        Store.open(home / "data", TABLES, schema_version=SCHEMA_VERSION, map_bytes=2 * MAP_BYTES)
    assert refused.value.code == "home_unusable"
    assert refused.value.message.startswith(f"{path} cannot be used (")
    assert words in refused.value.message


def test_an_immutable_store_is_said_as_that(home: Path) -> None:
    path = home / "data" / DATA_NAME
    if subprocess.run(["chattr", "+i", path], capture_output=True).returncode:
        pytest.skip("no file can be marked as immutable here")
    try:
        done = job("run", "--no-web", home=home)
    finally:
        subprocess.run(["chattr", "-i", path], check=True)
    assert done.returncode == 1
    assert f"home_unusable: {path} cannot be used (Operation not permitted" in done.stderr


def test_a_backup_that_cannot_be_made_there_is_about_its_place_and_not_about_the_home(home: Path) -> None:
    done = job("backup", "/proc/lineup.backup", home=home)
    assert done.returncode == 1
    assert done.stderr.startswith("lineup: file_unusable: /proc/lineup.backup cannot be used (")
    assert done.stderr.endswith("); name another place for the backup\n")


def test_files_that_hold_the_store_stay_private(home: Path) -> None:
    assert stat.S_IMODE((home / "data" / DATA_NAME).stat().st_mode) == 0o600


def test_the_refusals_are_typed(home: Path) -> None:
    store = open_store(home / "data")
    with pytest.raises(LineUpError) as caught:
        open_store(home / "data")
    assert caught.value.code == "store_locked"
    store.close()
