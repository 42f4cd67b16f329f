"""Damage inside the pages of a store is found before LMDB follows it, whatever page it is and whatever was written."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.edges import store_pages
from lineup_supervisor.edges.store_file import DATA_NAME, SUM_NAME, read_header
from lineup_supervisor.edges.store_pages import check_pages
from storage.homes import dump, fingerprints_elsewhere, open_store
from storage.traffic import Traffic

PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The bytes of a store with traffic in it, and the sum of its rows."""
    directory = tmp_path_factory.mktemp("whole")
    store = open_store(directory)
    traffic = Traffic(store, Policy())
    traffic.boot()
    traffic.calls(0, 150)
    used = store.stat().used_bytes
    store.close()
    (sum_,) = fingerprints_elsewhere([directory])
    return (directory / DATA_NAME).read_bytes()[:used], sum_


def laid(directory: Path, content: bytes) -> Path:
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / DATA_NAME
    path.write_bytes(content)
    return path


def reached(content: bytes, directory: Path) -> list[int]:
    """The pages that the newest transaction reaches."""
    path = laid(directory, content)
    header = read_header(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        walk = store_pages._Walk(fd, path, header)
        walk.trees(header, thorough=True)
    finally:
        os.close(fd)
    return [number for number, seen in enumerate(walk._seen) if seen]


def code_of(path: Path) -> str | None:
    try:
        check_pages(path, read_header(path))
    except LineUpError as error:
        return error.code if "lineup restore" in error.message else "without a way out"
    return None


def zeroed(content: bytearray, page: int, rng: random.Random) -> None:
    content[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)


def scribbled(content: bytearray, page: int, rng: random.Random) -> None:
    content[page * PAGE : (page + 1) * PAGE] = rng.randbytes(PAGE)


def another_page(content: bytearray, page: int, rng: random.Random) -> None:
    content[page * PAGE : (page + 1) * PAGE] = content[(page - 1) * PAGE : page * PAGE]


def begin_of_another(content: bytearray, page: int, rng: random.Random) -> None:
    """A sector that was lost: the disk writes 512 bytes or none."""
    content[page * PAGE : page * PAGE + 512] = bytes(512)


@pytest.mark.parametrize("damage", [zeroed, scribbled, another_page, begin_of_another])
def test_every_page_that_is_reached_is_missed(
    whole: tuple[bytes, str], tmp_path: Path, damage: Callable[[bytearray, int, random.Random], None]
) -> None:
    content, _ = whole
    pages = reached(content, tmp_path / "store")
    overflow = 0
    assert len(pages) > 60
    for page in pages:
        changed = bytearray(content)
        damage(changed, page, random.Random(page))
        if code_of(laid(tmp_path / "store", bytes(changed))) is None:
            overflow += 1  # what follows the first page of a long row is its content, which no structure is in
    assert overflow <= sum(is_rest_of_a_row(content, page) for page in pages)


def is_rest_of_a_row(content: bytes, page: int) -> bool:
    return struct.unpack_from("<Q", content, page * PAGE)[0] != page


def test_a_flipped_bit_of_a_page_is_found_or_hurts_nobody(whole: tuple[bytes, str], tmp_path: Path) -> None:
    """What is not found leaves a store that opens and is read without the end of the process that does it."""
    content, _ = whole
    rng = random.Random(5)
    pages = reached(content, tmp_path / "store")
    directories = []
    found = 0
    for number in range(300):
        changed = bytearray(content)
        at = rng.choice(pages) * PAGE + rng.choice((rng.randrange(64), rng.randrange(PAGE)))
        changed[at] ^= 1 << rng.randrange(8)
        path = laid(tmp_path / f"flip{number}", bytes(changed))
        if code_of(path) is not None:
            found += 1
        else:
            directories.append(path.parent)
    assert found > 50
    ends = fingerprints_elsewhere(directories)
    assert [end for end in ends if end.startswith("ended with")] == []


def test_a_store_that_nobody_has_touched_since_its_end_is_looked_at_less(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    traffic = Traffic(store, Policy())
    traffic.boot()
    traffic.calls(0, 30)
    before = dump(store)
    store.close()
    path = tmp_path / DATA_NAME
    assert read_header(path).is_as_it_was_left
    content = path.read_bytes()[:-1]
    with path.open("r+b") as file:
        file.write(content[:1])
    assert not read_header(path).is_as_it_was_left
    store = open_store(tmp_path)
    assert dump(store) == before
    store.close()
    assert read_header(path).is_as_it_was_left
    words = (tmp_path / SUM_NAME).read_text().split()
    (tmp_path / SUM_NAME).write_text(" ".join(words[:2]))  # as an earlier version kept it
    assert not read_header(path).is_as_it_was_left
    open_store(tmp_path).close()


@pytest.mark.parametrize("thorough", [True, False])
def test_a_lost_write_is_found_by_the_counts(tmp_path: Path, thorough: bool) -> None:
    """A page as it was some transactions before is a page like any other, but its table has counted other rows."""
    path = tmp_path / DATA_NAME
    env = lmdb.open(str(tmp_path), map_size=1 << 20, max_dbs=4)
    table = env.open_db(b"rows")
    for at in range(300):
        with env.begin(write=True, db=table) as txn:
            txn.put(b"%04d" % at, bytes(90))
    env.close()
    content = bytearray(path.read_bytes())
    header = read_header(path)
    leaf = next(page for page in range(2, header.last_page + 1) if is_full_leaf(content, page))
    lower, upper = struct.unpack_from("<HH", content, leaf * PAGE + 12)
    struct.pack_into("<HH", content, leaf * PAGE + 12, lower - 2, upper)
    path.write_bytes(bytes(content))
    fd = os.open(path, os.O_RDONLY)
    walk = store_pages._Walk(fd, path, header)
    with pytest.raises(LineUpError, match="rows and pages that it has counted"):
        walk.trees(header, thorough=thorough)
    os.close(fd)


def is_full_leaf(content: bytearray, page: int) -> bool:
    number, _, flags, lower, _ = struct.unpack_from("<QHHHH", content, page * PAGE)
    return number == page and flags == 2 and lower > 40


def test_beyond_the_bound_nothing_is_looked_at(
    whole: tuple[bytes, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, _ = whole
    pages = reached(content, tmp_path / "store")
    monkeypatch.setattr(store_pages, "CHECKED_PAGES_MAX", len(pages) // 2)
    codes: set[str | None] = set()
    for page in pages:
        changed = bytearray(content)
        zeroed(changed, page, random.Random(page))
        codes.add(code_of(laid(tmp_path / "store", bytes(changed))))
    assert codes == {None, "store_damaged"}
