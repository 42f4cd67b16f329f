"""Power fails at any moment: the store opens at the last transaction or at the next one, never at a mix (A8).

The real core writes through the real store; every write and sync of LMDB is recorded. The file is then rebuilt as a
disk may hold it after each call: what was synced is there, of the rest any part, in any order, torn between sectors.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import SCHEMA_VERSION
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_file import DATA_NAME
from lineup_supervisor.edges.store_migration import Migration, RawTxn
from storage.file_calls import FileCalls, Sync, Write
from storage.homes import MAP_BYTES, Rows, dump, faults_of, fingerprint, fingerprints_elsewhere, open_store
from storage.traffic import Traffic

SECTOR = 512
SEED = 20_261_130
Trace = Sequence[Write | Sync]


class Recorder:
    """The store as the engine sees it; after each commit, every row that it must hold then."""

    def __init__(self, store: Store, trace: list[Write | Sync]) -> None:
        self._store = store
        self._trace = trace
        self.states = [dump(store)]

    def transact(self, work: Any) -> Any:
        before = len(self._trace)
        result = self._store.transact(work)
        if len(self._trace) > before:
            self.states.append(dump(self._store))
        return result

    def read(self) -> Any:
        return self._store.read()


def after(trace: Trace, base: bytes, rng: random.Random, *, syncs_count: bool = True) -> Iterator[tuple[bytes, int]]:
    """Files as they may be when the power fails after these calls, and how many commits are certain."""
    durable, volatile, commits = bytearray(base), list[Write](), 0
    for call in trace:
        if isinstance(call, Sync):
            if syncs_count:
                for write in volatile:
                    put(durable, write.at, write.data)
                volatile = []
        elif call.is_durable:
            put(durable, call.at, call.data)
            commits += 1
        else:
            volatile.append(call)
    yield bytes(durable), commits
    if volatile:
        whole = bytearray(durable)
        for write in volatile:
            put(whole, write.at, write.data)
        yield bytes(whole), commits
        for _ in range(3):
            yield bytes(torn(durable, volatile, rng)), commits


def torn(durable: bytearray, volatile: list[Write], rng: random.Random) -> bytearray:
    """Some sectors of what was not synced have reached the disk, others have not."""
    found = bytearray(durable)
    sectors = [(w.at + n, w.data[n : n + SECTOR]) for w in volatile for n in range(0, len(w.data), SECTOR)]
    for at, data in rng.sample(sectors, rng.randint(0, len(sectors))):
        put(found, at, data)
    return found


def put(file: bytearray, at: int, data: bytes) -> None:
    file[at : at + len(data)] = data


def use(traffic: Traffic) -> None:
    """Calls, a question that is answered, a MiniApp that comes and goes, an operation: all that writes."""
    traffic.calls(0, 2, batch=1)
    traffic.run(traffic.call("q", "confirm", {"title": "Sure?", "prompt": "Shall we?"}))
    (asked,) = traffic.query("interactions").detail["interactions"]
    traffic.action("interaction.answer", interaction_id=asked["interaction_id"], result={"approved": True})
    traffic.run(traffic.call("t", "timer.start", {"duration_seconds": 1, "activity": "x" * 60}))
    traffic.pass_time(1_500)


@pytest.fixture
def recorded(tmp_path: Path, file_calls: FileCalls) -> tuple[bytes, list[Write | Sync], list[Rows]]:
    home = tmp_path / "recorded"
    home.mkdir()
    store = open_store(home)
    Traffic(store, Policy()).boot()
    base = (home / DATA_NAME).read_bytes()
    with file_calls.watching() as trace:
        recorder = Recorder(store, trace)
        traffic = Traffic(recorder, Policy())
        traffic.boot()
        use(traffic)
        trace = list(trace)
    store.close()
    return base, trace, recorder.states


def reopened(directory: Path, content: bytes) -> tuple[Rows, list[str]]:
    """Write the file as the disk has it, open it as the next start would."""
    directory.mkdir(exist_ok=True)
    for left in directory.iterdir():
        left.unlink()
    (directory / DATA_NAME).write_bytes(content)
    store = open_store(directory)
    try:
        return dump(store), faults_of(store)
    finally:
        store.close()


def test_each_commit_is_data_then_sync_then_header(recorded: tuple[bytes, Trace, list[Rows]]) -> None:
    """What the other tests stand on: the header is written, synced, only after everything that it points to is."""
    _, trace, states = recorded
    kinds = "".join("s" if isinstance(call, Sync) else "H" if call.is_durable else "d" for call in trace)
    commits = [part.rstrip("s") for part in kinds.split("H")[:-1]]
    assert len(commits) == len(states) - 1 > 15
    assert all(set(part) == {"d"} for part in commits)
    assert all(part.endswith("s") for part in kinds.split("H")[:-1])
    headers = [call for call in trace if isinstance(call, Write) and call.is_durable]
    assert all(call.at // SECTOR == (call.at + len(call.data) - 1) // SECTOR for call in headers), "one sector each"


@pytest.mark.timeout(600)
def test_the_store_opens_at_the_last_commit_whatever_was_lost(
    recorded: tuple[bytes, Trace, list[Rows]], tmp_path: Path
) -> None:
    base, trace, states = recorded
    rng = random.Random(SEED)
    seen = set()
    for length in range(len(trace) + 1):
        for content, commits in after(trace[:length], base, rng):
            rows, faults = reopened(tmp_path / "replayed", content)
            assert rows == states[commits], f"seed {SEED}: after {length} calls it is not the state of commit {commits}"
            assert faults == []
            seen.add(commits)
    assert seen == set(range(len(states)))


def test_without_the_syncs_it_would_not(recorded: tuple[bytes, Trace, list[Rows]], tmp_path: Path) -> None:
    """The replay can tell: a disk that holds headers and loses what they point to is found out."""
    base, trace, states = recorded
    rng = random.Random(SEED)
    ends = [n + 1 for n, call in enumerate(trace) if isinstance(call, Write) and call.is_durable]
    homes, expected = [], []
    for length in ends[:6]:
        for content, commits in after(trace[:length], base, rng, syncs_count=False):
            homes.append(tmp_path / f"lost-{len(homes)}")
            homes[-1].mkdir()
            (homes[-1] / DATA_NAME).write_bytes(content)
            expected.append(fingerprint(states[commits]))
    found = fingerprints_elsewhere(homes)
    assert sum(one != other for one, other in zip(found, expected, strict=True)) > 6


# an upgrade


def renamed(txn: RawTxn) -> None:
    for key, row in list(txn.scan("calls")):
        txn.put("calls", key, {**row, "updated_ms": row["updated_ms"] + 1})


def doubled(txn: RawTxn) -> None:
    for key, row in list(txn.scan("calls")):
        txn.put("calls", key, {**row, "updated_ms": row["updated_ms"] * 2})


UPGRADE = (Migration(SCHEMA_VERSION, renamed), Migration(SCHEMA_VERSION + 1, doubled))


def test_an_upgrade_that_loses_power_is_done_or_not_begun(tmp_path: Path, file_calls: FileCalls) -> None:
    from lineup_supervisor.core.schema import TABLES

    home = tmp_path / "old"
    home.mkdir()
    store = open_store(home)
    traffic = Traffic(store, Policy())
    traffic.boot()
    traffic.calls(0, 5)
    old = {key: row.updated_ms for key, row in dump(store)["calls"]}
    store.close()
    base = (home / DATA_NAME).read_bytes()

    def upgraded(directory: Path) -> dict[Any, int]:
        version = SCHEMA_VERSION + len(UPGRADE)
        store = Store.open(directory, TABLES, schema_version=version, migrations=UPGRADE, map_bytes=MAP_BYTES)
        try:
            return {key: row.updated_ms for key, row in dump(store)["calls"]}
        finally:
            store.close()

    with file_calls.watching() as trace:
        new = upgraded(home)
        trace = list(trace)
    assert new == {key: (ms + 1) * 2 for key, ms in old.items()}
    rng = random.Random(SEED)
    kinds = set()
    for length in range(len(trace) + 1):
        for content, commits in after(trace[:length], base, rng):
            directory = tmp_path / "replayed"
            directory.mkdir(exist_ok=True)
            for left in directory.iterdir():
                left.unlink()
            (directory / DATA_NAME).write_bytes(content)
            if commits == 0:  # the older program still finds its own store
                store = open_store(directory)
                assert {key: row.updated_ms for key, row in dump(store)["calls"]} == old
                store.close()
            assert upgraded(directory) == new
            kinds.add(commits)
    assert kinds == {0, 1}
