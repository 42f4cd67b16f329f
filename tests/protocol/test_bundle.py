"""Bundles on disk: what is refused, without hanging, and what a copy guarantees."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from lineup_protocol import bundle, limits
from lineup_protocol.bundle import bundle_digest, copy_bundle, read_bundle, remove_tree
from lineup_protocol.errors import LineUpError

MANIFEST = {
    "app_scope": "demo",
    "version": "1.0.0",
    "kind": "installed",
    "entry": "app:app",
    "tools": [],
    "surfaces": [{"entry": "surface/index.html", "title": "Board"}],
    "host": {"min_version": "1.0", "surface_required": True},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "demo"
    (made / "surface").mkdir(parents=True)
    (made / "miniapp.json").write_text(json.dumps(MANIFEST))
    (made / "app.py").write_text("app = None\n")
    (made / "surface" / "index.html").write_bytes(b"<!doctype html>\xff")
    return made


def faults(path: Path, *, trusted: bool = False) -> dict[str, str]:
    with pytest.raises(LineUpError) as refused:
        read_bundle(path, trusted=trusted)
    assert refused.value.code == "manifest_invalid"
    assert isinstance(refused.value.detail, dict)
    return {fault["path"]: fault["rule"] for fault in refused.value.detail["faults"]}


def test_a_good_one(folder: Path) -> None:
    manifest, digest, files = read_bundle(folder)
    assert manifest.app_scope == "demo"
    assert set(files) == {"miniapp.json", "app.py", "surface/index.html"}
    assert files["surface/index.html"] == b"<!doctype html>\xff"
    assert digest == bundle_digest(files)
    assert len(digest) == 64


def test_an_authors_tools_are_no_part_of_it(folder: Path) -> None:
    before = read_bundle(folder)[1]
    (folder / ".git").mkdir()
    (folder / ".git" / "trap").symlink_to("/etc/passwd")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "app.pyc").write_bytes(b"x")
    (folder / ".env").write_text("secret")
    os.utime(folder / "app.py", (1, 1))
    (folder / "app.py").chmod(0o755)
    assert read_bundle(folder)[1] == before


def test_the_digest_tells_names_and_contents_apart() -> None:
    variants = [
        {"a": b"bc"},
        {"ab": b"c"},
        {"a": b"", "bc": b""},
        {"a": b"b", "c": b""},
        {"a": b"bd"},
        {},
    ]
    assert len({bundle_digest(files) for files in variants}) == len(variants)
    assert bundle_digest({"a": b"1", "b": b"2"}) == bundle_digest({"b": b"2", "a": b"1"})


class TestTraps:
    def test_symbolic_links(self, folder: Path) -> None:
        (folder / "link").symlink_to("/etc/passwd")
        assert "symbolic link" in faults(folder)["/link"]
        (folder / "link").unlink()
        (folder / "surface" / "up").symlink_to("..", target_is_directory=True)
        assert "symbolic link" in faults(folder)["/surface/up"]

    def test_the_manifest_itself_as_a_link(self, folder: Path) -> None:
        (folder / "miniapp.json").rename(folder.parent / "real.json")
        (folder / "miniapp.json").symlink_to(folder.parent / "real.json")
        assert "symbolic link" in faults(folder)["/miniapp.json"]

    def test_hard_links_but_not_those_of_a_package_installer(self, folder: Path) -> None:
        os.link(folder / "app.py", folder.parent / "elsewhere.py")
        assert "hard links" in faults(folder)["/app.py"]
        assert read_bundle(folder, trusted=True)[0].app_scope == "demo"

    @pytest.mark.timeout(10)
    def test_named_pipes_do_not_hang(self, folder: Path) -> None:
        os.mkfifo(folder / "pipe")
        assert "named pipe" in faults(folder)["/pipe"]

    @pytest.mark.timeout(10)
    def test_a_file_that_becomes_a_pipe_while_it_is_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real_stat = os.stat

        def swapping(path: object, **options: object) -> os.stat_result:
            seen = real_stat(path, **options)  # type: ignore[arg-type]
            if path == "app.py" and stat.S_ISREG(seen.st_mode):
                (folder / "app.py").unlink()
                os.mkfifo(folder / "app.py")
            return seen

        monkeypatch.setattr(bundle.os, "stat", swapping)
        assert "named pipe" in faults(folder)["/app.py"]

    def test_a_folder_that_becomes_a_link_while_it_is_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        outside = folder.parent / "outside"
        outside.mkdir()
        (outside / "secret").write_text("x")
        real_stat = os.stat

        def swapping(path: object, **options: object) -> os.stat_result:
            seen = real_stat(path, **options)  # type: ignore[arg-type]
            if path == "surface" and stat.S_ISDIR(seen.st_mode):
                (folder / "surface").rename(folder.parent / "moved")
                (folder / "surface").symlink_to(outside, target_is_directory=True)
            return seen

        monkeypatch.setattr(bundle.os, "stat", swapping)
        assert "cannot be read" in faults(folder)["/surface"]

    def test_sockets(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("s.sock")
            assert "a socket" in faults(folder)["/s.sock"]

    @pytest.mark.parametrize("name", ["a\nb", "a\\b", "\u202eb", "x" * 241])
    def test_odd_names(self, folder: Path, name: str) -> None:
        (folder / "surface" / name).write_text("")
        assert any("odd characters" in rule for rule in faults(folder).values())

    def test_names_that_are_no_utf8(self, folder: Path) -> None:
        with open(os.fsencode(folder) + b"/\xff", "w"):
            pass
        assert any("odd characters" in rule for rule in faults(folder).values())

    def test_too_much(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "BUNDLE_BYTES_MAX", 2000)
        (folder / "big").write_bytes(b"x" * 2000)
        assert "bigger than 2000 bytes" in faults(folder)["/big"]
        (folder / "big").unlink()
        monkeypatch.setattr(limits, "BUNDLE_FILES_MAX", 3)
        assert "more than 3" in faults(folder)["/"]

    def test_a_sparse_giant_costs_nothing(self, folder: Path) -> None:
        with open(folder / "giant", "wb") as out:
            out.truncate(1 << 40)
        assert "bigger than" in faults(folder)["/giant"]

    def test_too_deep(self, folder: Path) -> None:
        (folder / "/".join(["d"] * 20)).mkdir(parents=True)
        assert any("nested deeper" in rule for rule in faults(folder).values())


class TestFaults:
    def test_no_folder(self, folder: Path) -> None:
        assert "cannot be opened" in faults(folder / "none")["/"]
        assert "cannot be opened" in faults(folder / "app.py")["/"]

    def test_no_manifest(self, folder: Path) -> None:
        (folder / "miniapp.json").unlink()
        assert "is missing" in faults(folder)["/miniapp.json"]

    @pytest.mark.parametrize("text", [b"", b"{", b'{"a":1,"a":2}', b"[NaN]", b"\xff", b"[" * 100])
    def test_a_manifest_that_is_no_json(self, folder: Path, text: bytes) -> None:
        (folder / "miniapp.json").write_bytes(text)
        assert set(faults(folder)) == {"/miniapp.json"}

    def test_files_that_the_manifest_names(self, folder: Path) -> None:
        (folder / "app.py").unlink()
        (folder / "surface" / "index.html").unlink()
        assert set(faults(folder)) == {"/entry", "/surfaces/0/entry"}

    def test_an_entry_that_is_a_package(self, folder: Path) -> None:
        (folder / "app.py").unlink()
        (folder / "app").mkdir()
        (folder / "app" / "__init__.py").write_text("app = None")
        assert read_bundle(folder)[0].entry == "app:app"


class TestCopy:
    def test_whole_read_only_and_named_by_its_digest(self, folder: Path, tmp_path: Path) -> None:
        _, digest, files = read_bundle(folder)
        copied = copy_bundle(folder, tmp_path / "apps")
        assert copied == tmp_path / "apps" / digest
        assert read_bundle(copied)[1:] == (digest, files)
        for path in [copied, *copied.rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) == (0o555 if path.is_dir() else 0o444)
        assert os.listdir(tmp_path / "apps") == [digest]

    def test_later_changes_of_the_folder_do_not_reach_it(self, folder: Path, tmp_path: Path) -> None:
        copied = copy_bundle(folder, tmp_path / "apps")
        (folder / "app.py").write_text("changed")
        other = copy_bundle(folder, tmp_path / "apps")
        assert other != copied
        assert (copied / "app.py").read_text() == "app = None\n"

    def test_the_same_again_is_no_new_copy(self, folder: Path, tmp_path: Path) -> None:
        first = copy_bundle(folder, tmp_path / "apps")
        inode = first.stat().st_ino
        assert copy_bundle(folder, tmp_path / "apps") == first
        assert first.stat().st_ino == inode

    def test_a_damaged_copy_is_replaced(self, folder: Path, tmp_path: Path) -> None:
        copied = copy_bundle(folder, tmp_path / "apps")
        (copied / "app.py").chmod(0o644)
        (copied / "app.py").write_text("evil")
        assert copy_bundle(folder, tmp_path / "apps") == copied
        assert (copied / "app.py").read_text() == "app = None\n"
        assert os.listdir(tmp_path / "apps") == [copied.name]

    def test_a_file_or_link_in_its_place_gives_way(self, folder: Path, tmp_path: Path) -> None:
        apps = tmp_path / "apps"
        place = apps / read_bundle(folder)[1]
        apps.mkdir()
        place.write_text("x")
        assert read_bundle(copy_bundle(folder, apps))
        remove_tree(place)
        place.symlink_to(folder, target_is_directory=True)
        assert not copy_bundle(folder, apps).is_symlink()
        assert os.listdir(apps) == [place.name]

    def test_a_failed_write_leaves_nothing(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(fd: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(bundle.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            copy_bundle(folder, tmp_path / "apps")
        assert os.listdir(tmp_path / "apps") == []

    def test_copies_at_the_same_time(self, folder: Path, tmp_path: Path) -> None:
        results: list[object] = []

        def copy() -> None:
            try:
                results.append(copy_bundle(folder, tmp_path / "apps"))
            except LineUpError as error:
                results.append(error)

        threads = [threading.Thread(target=copy) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert results == [tmp_path / "apps" / read_bundle(folder)[1]] * 8
        assert len(os.listdir(tmp_path / "apps")) == 1

    def test_a_copy_can_be_removed(self, folder: Path, tmp_path: Path) -> None:
        copied = copy_bundle(folder, tmp_path / "apps")
        remove_tree(copied)
        assert not copied.exists()
        remove_tree(copied)
