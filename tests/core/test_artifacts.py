"""Artifacts: a record never without its bytes, equal bytes once, and only for those whose they are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lineup_protocol import limits
from lineup_protocol.codec import canonical_json
from lineup_supervisor.core import artifacts, instances, quotas, schema
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.schema import Instance
from lineup_supervisor.edges.blobs import BlobFolder

PNG = b"\x89PNG\r\n\x1a\n" + b"picture"
AGENT = "agent-1"


@pytest.fixture
def board(stage: Any, make_manifest: Callable[..., dict[str, Any]]) -> Instance:
    stage.install(make_manifest("board", limits={"artifacts_mb": 2}))
    made: Instance = stage.instance("board")
    return made


def submit(instance: Instance, title: str = "Plan", media_type: str = "image/png", content: Any = PNG) -> Any:
    body = {"title": title, "media_type": media_type, "content": content}
    return lambda ctx: artifacts.submit(ctx, instance, body)


def used(stage: Any) -> int:
    size: int = stage.look(lambda txn: quotas.used(txn, "board", quotas.ARTIFACTS))
    return size


def test_a_submitted_artifact_has_its_metadata_and_its_bytes(stage: Any, board: Instance) -> None:
    receipt = stage.run(submit(board))
    artifact_id = receipt["artifact_id"]
    sha256 = hashlib.sha256(PNG).hexdigest()
    assert receipt == {
        "artifact_id": artifact_id,
        "sha256": sha256,
        "media_type": "image/png",
        "bytes": len(PNG),
        "title": "Plan",
        "owner": {
            "app_scope": "board",
            "instance_id": board.instance_id,
            "conversation_id": board.conversation_id,
        },
        "created_at": "2027-01-15T08:00:00.000Z",
    }
    canonical_json(receipt)
    row, content = stage.look(lambda txn: artifacts.read(txn, artifact_id, AGENT))
    assert (row.cause, content) == (board.cause, PNG)
    assert stage.look(lambda txn: artifacts.read(txn, artifact_id, None))[1] == PNG
    assert stage.audited("artifact.submitted")[-1].detail["sha256"] == sha256
    assert used(stage) == len(PNG)


def test_bytes_and_record_come_in_one_transaction(stage: Any, board: Instance) -> None:
    """Whatever happens before the commit, there is both or nothing."""
    before = stage.store.dump()

    def crash(ctx: Any) -> None:
        submit(board)(ctx)
        raise OSError("the power fails")

    with pytest.raises(OSError, match="power"):
        stage.run(crash)
    assert stage.store.dump() == before


def test_another_agent_finds_nothing(stage: Any, board: Instance) -> None:
    artifact_id = stage.run(submit(board))["artifact_id"]
    for asker in ("agent-2", ""):
        with pytest.raises(Exception, match="not_found"):
            stage.look(lambda txn, asker=asker: artifacts.read(txn, artifact_id, asker))
    with pytest.raises(Exception, match="not_found"):
        stage.look(lambda txn: artifacts.read(txn, "a-none", AGENT))


def test_the_same_again_is_the_same_artifact(stage: Any, board: Instance) -> None:
    first = stage.run(submit(board))
    assert stage.run(submit(board)) == first
    assert used(stage) == len(PNG)
    other_title = stage.run(submit(board, title="Other"))
    assert other_title["artifact_id"] != first["artifact_id"]
    assert other_title["sha256"] == first["sha256"]
    assert len(stage.rows(schema.BLOBS)) == 1
    other = stage.instance("board")
    assert stage.run(submit(other))["artifact_id"] != first["artifact_id"]
    assert used(stage) == 3 * len(PNG)


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("image/png", PNG),
        ("image/jpeg", b"\xff\xd8\xff\xe0 jpeg"),
        ("image/gif", b"GIF89a..."),
        ("image/webp", b"RIFF\0\0\0\0WEBPVP8 "),
        ("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        ("application/pdf", b"%PDF-1.7\n"),
        ("application/json", b'{"a": [1, 2.5, null]}'),
        ("application/json", b"[" + b",".join([b"[]"] * 100_000) + b"]"),
        ("text/plain", b""),
        ("text/markdown", "# 标题".encode()),
        ("text/csv", b"a,b\n1,2\n"),
    ],
)
def test_every_type_on_the_list(stage: Any, board: Instance, media_type: str, content: bytes) -> None:
    receipt = stage.run(submit(board, media_type=media_type, content=content))
    assert stage.look(lambda txn: artifacts.read(txn, receipt["artifact_id"], AGENT))[1] == content
    assert set(artifacts.MEDIA_TYPES) >= {media_type}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"title": ""}, "/title"),
        ({"title": "   "}, "/title"),
        ({"title": "two\nlines"}, "/title"),
        ({"title": "bell\x07"}, "/title"),
        ({"title": "x" * 257}, "/title"),
        ({"media_type": "text/html"}, "/media_type"),
        ({"media_type": "image/png; charset=utf-8"}, "/media_type"),
        ({"media_type": "IMAGE/PNG"}, "/media_type"),
        ({"content": "a string"}, "/content"),
        ({"content": b"<html>not a picture"}, "/content"),
        ({"media_type": "text/plain", "content": b"\xff\xfe"}, "/content"),
        ({"media_type": "text/plain", "content": b"a\0b"}, "/content"),
        ({"media_type": "application/json", "content": b"{"}, "/content"),
        ({"media_type": "application/json", "content": b"[NaN]"}, "/content"),
        ({"media_type": "application/json", "content": b"[1,]"}, "/content"),
        ({"media_type": "application/json", "content": b'"\xff"'}, "/content"),
        ({"media_type": "application/json", "content": b"[" * 500_000 + b"]" * 500_000}, "/content"),
        ({"media_type": "image/svg+xml", "content": b"<script>"}, "/content"),
        ({"media_type": "text/plain", "content": b"x" * (limits.ARTIFACT_BYTES_MAX + 1)}, "/content"),
    ],
)
def test_what_no_artifact_may_be(stage: Any, board: Instance, fields: dict[str, Any], path: str) -> None:
    error = stage.refused(submit(board, **fields))
    assert error.code == "artifact_invalid"
    assert error.detail["path"] == path


def test_the_quota_of_the_manifest_holds(stage: Any, board: Instance) -> None:
    big = b"x" * (limits.ARTIFACT_BYTES_MAX // 2)
    for n in range(2):
        stage.run(submit(board, media_type="text/plain", content=big[:-1] + str(n).encode()))
    error = stage.refused(submit(board))
    assert (error.code, error.detail["allowed"]) == ("artifact_quota_exceeded", 2 * limits.MIB)
    assert stage.refused(submit(stage.instance("board"))).code == "artifact_quota_exceeded"
    gone = stage.rows(schema.ARTIFACTS)[0].artifact_id
    stage.run(lambda ctx: artifacts.remove(ctx, gone))
    stage.run(submit(board))


def test_a_removed_artifact_leaves_its_bytes_to_those_who_share_them(stage: Any, board: Instance) -> None:
    one, two = (stage.run(submit(board, title=title))["artifact_id"] for title in ("one", "two"))
    stage.run(lambda ctx: artifacts.remove(ctx, one))
    assert stage.look(lambda txn: artifacts.read(txn, two, AGENT))[1] == PNG
    assert stage.refused(lambda ctx: artifacts.remove(ctx, one)).code == "not_found"
    stage.run(lambda ctx: artifacts.remove(ctx, two))
    for table in (schema.BLOBS, schema.BLOB_REFS, schema.ARTIFACTS, schema.ARTIFACTS_BY_CONTENT):
        assert stage.rows(table) == []
    assert used(stage) == 0


def test_artifacts_outlive_their_instance_and_a_closed_one_submits_nothing(stage: Any, board: Instance) -> None:
    artifact_id = stage.run(submit(board))["artifact_id"]
    stage.run(lambda ctx: instances.close(ctx, board.instance_id, "closed_by_person", ""))
    assert stage.look(lambda txn: artifacts.read(txn, artifact_id, AGENT))[1] == PNG
    closed = stage.row(schema.INSTANCES, board.instance_id)
    assert stage.refused(submit(closed, title="late")).code == "app_closed"


# the folder that a person finds


def test_an_export_is_a_file_named_by_its_digest(stage: Any, board: Instance, tmp_path: Path) -> None:
    artifact_id = stage.run(submit(board))["artifact_id"]
    stage.run(lambda ctx: artifacts.export(ctx, artifact_id))
    (effect,) = [e for e in stage.effects if isinstance(e, fx.SaveBlob)]
    assert effect == fx.SaveBlob(name=hashlib.sha256(PNG).hexdigest() + ".png", content=PNG)
    folder = BlobFolder(tmp_path / "artifacts")
    path = folder.save(effect.name, effect.content)
    assert path.read_bytes() == PNG
    assert path.stat().st_mode & 0o777 == 0o600
    assert artifacts.public(stage.row(schema.ARTIFACTS, artifact_id))["file_name"] == path.name
    before = path.stat().st_mtime_ns
    stage.run(lambda ctx: artifacts.export(ctx, artifact_id))
    assert folder.save(effect.name, effect.content).stat().st_mtime_ns == before
    assert len(stage.audited("artifact.exported")) == 1


def test_what_a_crash_kept_from_being_written_comes_at_the_next_start(
    stage: Any, board: Instance, tmp_path: Path
) -> None:
    exported, kept_in = (stage.run(submit(board, title=t, content=PNG + t.encode()))["artifact_id"] for t in "ab")
    stage.run(lambda ctx: artifacts.export(ctx, exported))
    folder = tmp_path / "artifacts"
    assert stage.look(BlobFolder(folder).catch_up) == 1
    (path,) = folder.iterdir()
    assert path.read_bytes() == PNG + b"a"
    assert stage.look(BlobFolder(folder).catch_up) == 0
    path.write_bytes(PNG)  # cut short
    (folder / ".0123456789abcdef").write_bytes(b"x")
    assert stage.look(BlobFolder(folder).catch_up) == 1
    assert [(p.name, p.read_bytes()) for p in folder.iterdir()] == [(path.name, PNG + b"a")]
    assert stage.row(schema.ARTIFACTS, kept_in).exported_ms is None


def test_what_people_keep_beside_the_exports_is_left_alone(stage: Any, board: Instance, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    (folder / ".git").mkdir(parents=True)
    (folder / ".0123456789abcdef").mkdir()  # the name of a half-written file, but none
    for name in (".gitignore", ".notes.txt", ".0123456789abcdef0", "mine.png"):
        (folder / name).write_text("mine")
    before = sorted(folder.iterdir())
    assert stage.look(BlobFolder(folder).catch_up) == 0
    assert sorted(folder.iterdir()) == before


def test_an_export_that_cannot_be_written_does_not_keep_back_the_others(
    stage: Any, board: Instance, tmp_path: Path
) -> None:
    names = []
    for title in "abc":
        artifact_id = stage.run(submit(board, title=title, content=PNG + title.encode()))["artifact_id"]
        stage.run(lambda ctx, id_=artifact_id: artifacts.export(ctx, id_))
        names.append(artifacts.public(stage.row(schema.ARTIFACTS, artifact_id))["file_name"])
    folder = tmp_path / "artifacts"
    for name in names[:2]:
        (folder / name).mkdir(parents=True)  # a folder in the place of a file
    with pytest.raises(OSError, match="directory"):
        stage.look(BlobFolder(folder).catch_up)
    assert (folder / names[2]).read_bytes() == PNG + b"c"
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_a_name_that_is_not_the_content_is_a_bug(tmp_path: Path) -> None:
    folder = BlobFolder(tmp_path)
    for name in ("../x", "0" * 64, hashlib.sha256(PNG).hexdigest() + "/../x"):
        with pytest.raises(AssertionError):
            folder.save(name, PNG)
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_lies_in_the_way_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(PNG)
    folder = tmp_path / "artifacts"
    folder.mkdir()
    name = hashlib.sha256(PNG).hexdigest() + ".png"
    (folder / name).symlink_to(victim)
    path = BlobFolder(folder).save(name, PNG)
    assert not path.is_symlink()
    assert path.read_bytes() == PNG
