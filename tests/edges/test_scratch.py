"""A folder that somebody hostile could write to is removed whole, and nothing else is."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lineup_supervisor.edges.scratch import remove_tree


@pytest.fixture
def deep_folder() -> Iterator[Path]:
    """Not pytest's: what a failing test leaves here would be too deep for pytest, too."""
    made = tempfile.mkdtemp(prefix="lu-")
    yield Path(made)
    subprocess.run(["rm", "-rf", made], check=True)


def test_folders_nested_deeper_than_any_recursion(deep_folder: Path) -> None:
    root = deep_folder / "t"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for _ in range(2_000):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    remove_tree(root)
    assert os.listdir(deep_folder) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "more").mkdir(parents=True)
    (kept / "secret").write_text("mine")
    root = tmp_path / "t"
    root.mkdir()
    (root / "file").symlink_to(kept / "secret")
    (root / "folder").symlink_to(kept)
    (root / "gone").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")
    os.link(kept / "secret", root / "hard")
    remove_tree(root)
    assert os.listdir(tmp_path) == ["kept"]
    assert (kept / "secret").read_text() == "mine"
    assert (kept / "more").is_dir()


def test_folders_without_rights_and_what_is_no_file(tmp_path: Path) -> None:
    root = tmp_path / "t"
    (root / "closed" / "in it").mkdir(parents=True)
    (root / "closed" / "in it" / "file").write_text("x")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(root / "s"))
    (root / "closed" / "in it").chmod(0)
    (root / "closed").chmod(0)
    remove_tree(root)
    assert os.listdir(tmp_path) == []


def test_what_is_not_there_or_no_folder_is_left_alone(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    remove_tree(tmp_path / "file")
    remove_tree(tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_many_folders_with_many_files(tmp_path: Path) -> None:
    root = tmp_path / "t"
    for number in range(30):
        (root / f"d{number}" / "in it").mkdir(parents=True)
        for file in range(30):
            (root / f"d{number}" / str(file)).touch()
    remove_tree(root)
    assert os.listdir(tmp_path) == []
