"""Files that follow from the store: archived rows of the audit, copies of bundles, what a check of one has said."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lineup_hostshell.cli.audit_chain import check_archive
from lineup_protocol.errors import LineUpError
from lineup_protocol.strict_json import canonical_json
from lineup_supervisor import home_files
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import ARTIFACTS, AUDIT, BLOBS, EXPORTED_ARTIFACTS, TABLES, Artifact, Blob, Mark
from lineup_supervisor.core.txn import Txn
from lineup_supervisor.edges import audit_archive, bundles
from lineup_supervisor.edges.audit_archive import AuditArchive
from lineup_supervisor.edges.bundles import drop_unused, own_bundles
from lineup_supervisor.edges.store_memory import MemoryStore
from lineup_supervisor.home import open_home
from lineup_supervisor.home_files import HomeFiles
from storage.traffic import Traffic


@pytest.fixture
def traffic() -> Traffic:
    made = Traffic(MemoryStore(TABLES, encoded=True), Policy())
    made.boot()
    made.calls(0, 100)
    return made


def anchor_at(traffic: Traffic, seq: int) -> dict[str, Any]:
    with traffic.store.read() as txn:
        row = txn.get(AUDIT, (seq,))
    assert row is not None
    return {"seq": seq, "hash": row.hash}


def archive(traffic: Traffic, logs: Path, *ends: int) -> dict[str, Any]:
    """Files up to each of ``ends``; the anchor at the last one."""
    writer, after = AuditArchive(logs), 0
    for end in ends:
        assert writer.write(traffic.store.read, after, end) == anchor_at(traffic, end)["hash"]
        after = end
    return anchor_at(traffic, after)


def test_archived_rows_are_a_chain_over_all_files_up_to_the_anchor(traffic: Traffic, tmp_path: Path) -> None:
    anchor = archive(traffic, tmp_path, 50, 100, 230)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == "audit-000000000001-000000000050.jsonl"
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    check = check_archive(tmp_path, anchor)
    assert check is not None
    assert (check.rows, check.broken) == (230, None)


def test_files_at_the_beginning_may_be_kept_elsewhere(traffic: Traffic, tmp_path: Path) -> None:
    anchor = archive(traffic, tmp_path, 50, 100)
    (tmp_path / "audit-000000000001-000000000050.jsonl").unlink()
    check = check_archive(tmp_path, anchor)
    assert check is not None
    assert (check.rows, check.broken) == (50, None)
    (tmp_path / "audit-000000000051-000000000100.jsonl").unlink()
    assert check_archive(tmp_path, anchor) is None


@pytest.mark.parametrize("seq", [50, 51, 77, 99, 100])
def test_the_store_lets_go_of_a_files_rows_in_parts(traffic: Traffic, tmp_path: Path, seq: int) -> None:
    """Meanwhile the anchor is in the middle of a file, whose other rows are still in the store and checked there."""
    archive(traffic, tmp_path, 50, 100)
    check = check_archive(tmp_path, anchor_at(traffic, seq))
    assert check is not None
    assert (check.rows, check.broken) == (seq, None)


def test_no_snapshot_is_open_for_longer_than_it_takes_to_read_a_few_rows(
    traffic: Traffic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stayed open would keep every page that is freed meanwhile, and the store would grow by them for good."""
    monkeypatch.setattr(audit_archive, "ROWS_AT_ONCE", 20)
    now_open, snapshots = 0, 0

    @contextmanager
    def read() -> Iterator[Txn]:
        nonlocal now_open, snapshots
        with traffic.store.read() as txn:
            now_open, snapshots = now_open + 1, snapshots + 1
            yield txn
        now_open -= 1
        traffic.calls(1_000 + snapshots, 1)  # the world goes on in between

    def written(row: dict[str, Any]) -> bytes:
        assert now_open == 0
        return canonical_json(row)

    monkeypatch.setattr(audit_archive, "canonical_json", written)
    with traffic.store.read() as txn:
        head = next(row.hash for _, row in txn.scan(AUDIT, after=(109,)))
    assert AuditArchive(tmp_path).write(read, 0, 110) == head
    assert snapshots == 6
    check = check_archive(tmp_path, anchor_at(traffic, 110))
    assert check is not None
    assert (check.rows, check.broken) == (110, None)


def change_a_row(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    row = json.loads(lines[3])
    row["actor"] = "nobody"
    lines[3] = json.dumps(row).encode() + b"\n"
    path.write_bytes(b"".join(lines))


def drop_a_row(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))


def cut_the_end(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 30)


@pytest.mark.parametrize(
    ("damage", "number", "seq"),
    [(change_a_row, 1, 54), (drop_a_row, 1, 54), (cut_the_end, 2, 150), (Path.unlink, 1, 51)],
)
def test_a_changed_archive_is_found_out(traffic: Traffic, tmp_path: Path, damage: Any, number: int, seq: int) -> None:
    anchor = archive(traffic, tmp_path, 50, 100, 150)
    damage(sorted(tmp_path.iterdir())[number])
    check = check_archive(tmp_path, anchor)
    assert check is not None
    assert check.broken is not None
    assert check.broken.seq == seq


def test_a_file_that_was_written_and_never_confirmed_gives_way(traffic: Traffic, tmp_path: Path) -> None:
    """The Runtime died before it heard of the file; it asks again, perhaps for another number of rows."""
    archive(traffic, tmp_path, 50)
    anchor = archive(traffic, tmp_path, 70)
    assert [path.name for path in tmp_path.iterdir()] == ["audit-000000000001-000000000070.jsonl"]
    check = check_archive(tmp_path, anchor)
    assert check is not None
    assert check.broken is None
    after = check_archive(tmp_path, anchor_at(traffic, 70) | {"seq": 0})
    assert after is None, "what lies after the anchor counts for nothing"


def another_store(rows: int = 100) -> Traffic:
    made = Traffic(MemoryStore(TABLES, encoded=True), Policy())
    made.wall_ms += 1_000
    made.boot()
    made.calls(0, rows)
    return made


@pytest.mark.parametrize("end", [30, 50, 70])
def test_a_file_of_another_store_never_gives_way(traffic: Traffic, tmp_path: Path, end: int) -> None:
    home = open_home(tmp_path / "home")
    archive(another_store(), home.logs, end)
    (file,) = home.logs.iterdir()
    before = file.read_bytes()
    log = Recorded()
    done = HomeFiles(home, traffic.store, log).archive_audit(  # type: ignore[arg-type]
        fx.ArchiveAudit(after_seq=0, up_to_seq=50), "e"
    )
    assert done.error.startswith(f"conflict: {file} does not have the rows that the store has")
    assert (done.hash, log.lines) == ("", ["the audit cannot be archived"])
    assert list(home.logs.iterdir()) == [file]
    assert file.read_bytes() == before


def not_whole(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [not_whole, emptied, a_pipe, a_link, a_folder])
@pytest.mark.parametrize("end", [50, 70])
def test_what_is_no_file_of_these_rows_never_gives_way(
    traffic: Traffic, tmp_path: Path, damage: Callable[[Path], None], end: int
) -> None:
    archive(traffic, tmp_path, end)
    (file,) = tmp_path.iterdir()
    damage(file)
    kept = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(LineUpError, match="does not have the rows"):
        AuditArchive(tmp_path).write(traffic.store.read, 0, 50)
    assert sorted(path.name for path in tmp_path.iterdir()) == kept


def test_a_disk_that_refuses_the_archive_leaves_nothing_behind_and_is_reported(
    traffic: Traffic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = open_home(tmp_path / "home")
    log = Recorded()
    files = HomeFiles(home, traffic.store, log)  # type: ignore[arg-type]

    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        done = files.archive_audit(fx.ArchiveAudit(after_seq=0, up_to_seq=10), "e")
    assert done.error.startswith("OSError")
    assert done.hash == ""
    assert list(home.logs.iterdir()) == []
    assert log.lines == ["the audit cannot be archived"]
    done = files.archive_audit(fx.ArchiveAudit(after_seq=0, up_to_seq=10), "e")
    assert (done.error, done.hash) == ("", anchor_at(traffic, 10)["hash"])


class Recorded:
    """A log that keeps its words."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def error(self, words: str, **fields: object) -> None:
        self.lines.append(words)

    info = error


def test_half_written_archives_are_cleared_at_the_start(traffic: Traffic, tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    archive(traffic, home.logs, 50)
    (home.logs / ".audit-0123456789abcdef").write_bytes(b"{")
    HomeFiles(home, traffic.store, Recorded()).tidy(())  # type: ignore[arg-type]
    assert [path.name for path in home.logs.iterdir()] == ["audit-000000000001-000000000050.jsonl"]


# exported artifacts

NAME = hashlib.sha256(b"content").hexdigest() + ".txt"


def exported(traffic: Traffic) -> None:
    artifact = Artifact(
        artifact_id="a1",
        sha256=NAME[:64],
        media_type="text/plain",
        bytes=7,
        title="t",
        app_scope="lab",
        instance_id="i1",
        conversation_id="c1",
        agent_id="a1",
        created_ms=1,
        cause="e1",
        exported_ms=1,
    )

    def work(txn: Any) -> None:
        txn.put(ARTIFACTS, ("a1",), artifact)
        txn.put(EXPORTED_ARTIFACTS, ("a1",), Mark())
        txn.put(BLOBS, (NAME[:64],), Blob(content=b"content"))

    traffic.store.transact(work)


def test_an_export_that_the_disk_refuses_is_missing_until_it_can_be_written(
    traffic: Traffic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = open_home(tmp_path / "home")
    log = Recorded()
    files = HomeFiles(home, traffic.store, log)  # type: ignore[arg-type]
    exported(traffic)

    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        assert not files.save_blob(fx.SaveBlob(name=NAME, content=b"content"))
        assert not files.save_missing()
        assert not files.tidy(())
    assert list(home.artifacts.iterdir()) == []
    assert files.save_missing()
    assert (home.artifacts / NAME).read_bytes() == b"content"
    assert files.save_blob(fx.SaveBlob(name=NAME, content=b"content"))
    assert files.tidy(())


def test_a_store_that_cannot_be_read_just_now_leaves_exports_for_later(
    traffic: Traffic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = HomeFiles(open_home(tmp_path / "home"), traffic.store, Recorded())  # type: ignore[arg-type]

    def refuse() -> Any:
        raise LineUpError("storage_full", "it could not be opened anew yet")

    monkeypatch.setattr(traffic.store, "read", refuse)
    assert not files.save_missing()


# copies of bundles


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "storage_full"), (errno.EACCES, "home_unusable"), (errno.EROFS, "home_unusable")],
)
def test_a_copy_that_cannot_be_made_says_what_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(LineUpError, match=str(tmp_path)) as refused:
        own_bundles(tmp_path)
    assert refused.value.code == code


def test_copies_that_nothing_refers_to_go_and_all_others_stay(tmp_path: Path) -> None:
    kept = own_bundles(tmp_path)
    (tmp_path / ("0" * 64)).mkdir()
    (tmp_path / ("0" * 64) / "app.py").write_text("x")
    os.chmod(tmp_path / ("0" * 64), 0o555)
    (tmp_path / f".checked-{'0' * 64}").write_text("{}")
    (tmp_path / ".new-abc").mkdir()
    (tmp_path / "my-notes").mkdir()
    (tmp_path / "README").write_text("mine")
    assert drop_unused(tmp_path, {bundle.digest for bundle in kept}) == 1
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "my-notes",
        "README",
        *(bundle.digest for bundle in kept),
        *(f".checked-{bundle.digest}" for bundle in kept),
    }
    assert own_bundles(tmp_path) == kept


def test_a_link_in_the_place_of_a_copy_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    apps = tmp_path / "apps"
    apps.mkdir()
    (apps / ("1" * 64)).symlink_to(outside)
    assert drop_unused(apps, ()) == 0
    assert (outside / "file").read_text() == "mine"


def test_the_runtime_s_tidying_spares_what_the_store_knows(
    tmp_path: Path, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    monkeypatch.setattr(home_files, "drop_unused", lambda apps, used: seen.append(set(used)) or 0)
    bundle = own_bundles(tmp_path / "apps")[0]
    HomeFiles(open_home(tmp_path / "home"), traffic.store, Recorded()).tidy((bundle,))  # type: ignore[arg-type]
    assert bundle.digest in seen[0]
    assert len(seen[0]) > 1


# what the check of a bundle has said


def test_an_unchanged_bundle_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = own_bundles(tmp_path)

    def never(*args: object, **more: object) -> None:
        raise AssertionError("it was checked again")

    monkeypatch.setattr(bundles, "read_bundle", never)
    assert own_bundles(tmp_path) == first


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"by": "x"}', b'{"by": 1, "manifest": {}}', b"\xff" * 100])
def test_a_damaged_note_of_a_check_counts_for_nothing(tmp_path: Path, content: bytes) -> None:
    first = own_bundles(tmp_path)
    notes = list(tmp_path.glob(".checked-*"))
    assert len(notes) == len(first)
    for note in notes:
        note.write_bytes(content)
    assert own_bundles(tmp_path) == first


def test_a_check_by_other_code_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = own_bundles(tmp_path)
    checked: list[object] = []
    read = bundles.read_bundle
    monkeypatch.setattr(bundles, "read_bundle", lambda *a, **k: checked.append(a) or read(*a, **k))
    monkeypatch.setattr(bundles, "_code_sum", lambda: "another program")
    assert own_bundles(tmp_path) == first
    assert len(checked) == len(first)


def test_the_start_of_an_unchanged_home_loads_no_pydantic(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from lineup_supervisor.edges.bundles import own_bundles;"
        "import lineup_supervisor.daemon; own_bundles(Path(sys.argv[1])); print('pydantic' in sys.modules)"
    )
    said = [subprocess.check_output([sys.executable, "-c", code, str(tmp_path)], text=True).strip() for _ in range(2)]
    assert said == ["True", "False"]
