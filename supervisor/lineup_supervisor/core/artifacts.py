"""Artifacts: results that are files. Content-addressed, the conversation's agent's, kept until a person removes them.

Owns ``ARTIFACTS``, ``BLOBS`` and their indexes. The bytes lie in the store beside the record, written in the same
transaction, so that no crash can leave a record without its bytes. Equal bytes are kept once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.shown_text import is_title
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import quotas
from lineup_supervisor.core.audit import audit, digest
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    ARTIFACTS,
    ARTIFACTS_BY_CONTENT,
    BLOB_REFS,
    BLOBS,
    CONVERSATIONS,
    EXPORTED_ARTIFACTS,
    Artifact,
    Blob,
    BlobRefs,
    Instance,
    Mark,
    Ref,
)
from lineup_supervisor.core.tables import InstanceState
from lineup_supervisor.core.txn import Key, Txn

replace = msgspec.structs.replace
_MARK = Mark()


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


_json_text = msgspec.json.Decoder(msgspec.Raw).decode  # by its grammar alone: nothing is built of it


def _is_json(content: bytes) -> bool:
    try:
        content.decode()
        _json_text(content)
    except (ValueError, RecursionError, msgspec.DecodeError):
        return False
    return True


def _starts(*signatures: bytes) -> Callable[[bytes], bool]:
    return lambda content: content.startswith(signatures)


# What an artifact may be → its file extension, and whether bytes can be that: who serves them relies on the type.
MEDIA_TYPES: dict[str, tuple[str, Callable[[bytes], bool]]] = {
    "image/png": (".png", _starts(b"\x89PNG\r\n\x1a\n")),
    "image/jpeg": (".jpg", _starts(b"\xff\xd8\xff")),
    "image/gif": (".gif", _starts(b"GIF87a", b"GIF89a")),
    "image/webp": (".webp", lambda content: content[:4] == b"RIFF" and content[8:12] == b"WEBP"),
    "image/svg+xml": (".svg", lambda content: _is_text(content) and b"<svg" in content),
    "application/pdf": (".pdf", _starts(b"%PDF-")),
    "application/json": (".json", _is_json),
    "text/plain": (".txt", _is_text),
    "text/markdown": (".md", _is_text),
    "text/csv": (".csv", _is_text),
}


def submit(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> dict[str, Any]:
    """``artifact.submit``. The same content under the same title again is the same artifact.

    Raises:
        LineUpError: ``app_closed``, ``artifact_invalid`` with ``{path, rule}``, ``artifact_quota_exceeded``; nothing
            changes.
    """
    if instance.state == InstanceState.CLOSED:
        raise LineUpError("app_closed", f"instance {instance.instance_id} is closed")
    title, media_type, content = body["title"], body["media_type"], body["content"]
    _check(title, media_type, content)
    sha256 = hashlib.sha256(content).hexdigest()
    content_key: Key = (instance.instance_id, digest([title, media_type, sha256]))
    known = ctx.get(ARTIFACTS_BY_CONTENT, content_key)
    if known is not None:
        return public(ctx.need(ARTIFACTS, (known.ref,)))
    quotas.check_room(ctx, instance, quotas.ARTIFACTS, len(content))
    ctx.cause = instance.cause
    artifact = Artifact(
        artifact_id=ctx.new_id("a"),
        sha256=sha256,
        media_type=media_type,
        bytes=len(content),
        title=title,
        app_scope=instance.app_scope,
        instance_id=instance.instance_id,
        conversation_id=instance.conversation_id,
        agent_id=ctx.need(CONVERSATIONS, (instance.conversation_id,)).agent_id,
        created_ms=ctx.now.wall_ms,
        cause=ctx.cause,
    )
    ctx.put(ARTIFACTS, (artifact.artifact_id,), artifact)
    ctx.put(ARTIFACTS_BY_CONTENT, content_key, Ref(ref=artifact.artifact_id))
    _add_ref(ctx, sha256, content)
    quotas.charge(ctx, instance.app_scope, quotas.ARTIFACTS, len(content))
    audit(
        ctx,
        "artifact.submitted",
        artifact.artifact_id,
        instance.instance_id,
        instance.conversation_id,
        sha256=sha256,
        media_type=media_type,
        bytes=len(content),
    )
    return public(artifact)


def read(txn: Txn, artifact_id: str, agent_id: str | None) -> tuple[Artifact, bytes]:
    """An artifact and its bytes; for the person if ``agent_id`` is None, else for that agent.

    Raises:
        LineUpError: ``not_found``, also for another agent's artifact: whose it is, is nobody's business.
    """
    artifact = txn.get(ARTIFACTS, (artifact_id,))
    if artifact is None or (agent_id is not None and agent_id != artifact.agent_id):
        raise LineUpError("not_found", f"no artifact {artifact_id}")
    blob = txn.get(BLOBS, (artifact.sha256,))
    assert blob is not None, f"the bytes of artifact {artifact_id} are missing"
    return artifact, blob.content


def export(ctx: Ctx, artifact_id: str) -> Artifact:
    """Put the bytes into the folder of artifacts, where a person finds them. Again is no harm."""
    artifact = ctx.need(ARTIFACTS, (artifact_id,))
    if artifact.exported_ms is None:
        artifact = replace(artifact, exported_ms=ctx.now.wall_ms)
        ctx.put(ARTIFACTS, (artifact_id,), artifact)
        ctx.put(EXPORTED_ARTIFACTS, (artifact_id,), _MARK)
        audit(ctx, "artifact.exported", artifact_id, artifact.instance_id)
    content = ctx.need(BLOBS, (artifact.sha256,)).content
    ctx.emit(fx.SaveBlob(name=file_name(artifact), content=content))
    return artifact


def exported(txn: Txn) -> list[Artifact]:
    """Whatever the folder of artifacts must hold."""
    rows = [txn.get(ARTIFACTS, key) for key, _ in txn.scan(EXPORTED_ARTIFACTS)]
    return [row for row in rows if row is not None]


def file_name(artifact: Artifact) -> str:
    """Its name in the folder: the sha256 and an extension that fits the type."""
    return artifact.sha256 + MEDIA_TYPES[artifact.media_type][0]


def remove(ctx: Ctx, artifact_id: str) -> None:
    """A person throws an artifact away; its share of the quota is free again. A file that was exported stays theirs.

    Raises:
        LineUpError: ``not_found``.
    """
    artifact = ctx.get(ARTIFACTS, (artifact_id,))
    if artifact is None:
        raise LineUpError("not_found", f"no artifact {artifact_id}")
    ctx.delete(ARTIFACTS, (artifact_id,))
    ctx.delete(EXPORTED_ARTIFACTS, (artifact_id,))
    content_digest = digest([artifact.title, artifact.media_type, artifact.sha256])
    ctx.delete(ARTIFACTS_BY_CONTENT, (artifact.instance_id, content_digest))
    _drop_ref(ctx, artifact.sha256)
    quotas.charge(ctx, artifact.app_scope, quotas.ARTIFACTS, -artifact.bytes)
    audit(ctx, "artifact.removed", artifact_id, artifact.instance_id, sha256=artifact.sha256)


def public(artifact: Artifact) -> dict[str, Any]:
    """The metadata as apps, agents and people read it."""
    body: dict[str, Any] = {
        "artifact_id": artifact.artifact_id,
        "sha256": artifact.sha256,
        "media_type": artifact.media_type,
        "bytes": artifact.bytes,
        "title": artifact.title,
        "owner": {
            "app_scope": artifact.app_scope,
            "instance_id": artifact.instance_id,
            "conversation_id": artifact.conversation_id,
        },
        "created_at": to_rfc3339(artifact.created_ms),
    }
    if artifact.exported_ms is not None:
        body["exported_at"] = to_rfc3339(artifact.exported_ms)
        body["file_name"] = file_name(artifact)
    return body


def _check(title: str, media_type: str, content: Any) -> None:
    if not is_title(title, limits.ARTIFACT_TITLE_LENGTH_MAX):
        rule = f"must be one line of 1 to {limits.ARTIFACT_TITLE_LENGTH_MAX} printable characters"
        raise _invalid("/title", rule)
    known = MEDIA_TYPES.get(media_type)
    if known is None:
        raise _invalid("/media_type", f"must be one of {', '.join(MEDIA_TYPES)}")
    if not isinstance(content, bytes):
        raise _invalid("/content", "must be bytes")
    if len(content) > limits.ARTIFACT_BYTES_MAX:
        raise _invalid("/content", f"has {len(content)} bytes, at most {limits.ARTIFACT_BYTES_MAX} are allowed")
    if not known[1](content):
        raise _invalid("/content", f"is not {media_type}")


def _add_ref(ctx: Ctx, sha256: str, content: bytes) -> None:
    refs = ctx.get(BLOB_REFS, (sha256,))
    if refs is None:
        ctx.put(BLOBS, (sha256,), Blob(content=content))
    ctx.put(BLOB_REFS, (sha256,), BlobRefs(count=1 + (refs.count if refs is not None else 0)))


def _drop_ref(ctx: Ctx, sha256: str) -> None:
    count = ctx.need(BLOB_REFS, (sha256,)).count - 1
    if count:
        ctx.put(BLOB_REFS, (sha256,), BlobRefs(count=count))
    else:
        ctx.delete(BLOB_REFS, (sha256,))
        ctx.delete(BLOBS, (sha256,))


def _invalid(path: str, rule: str) -> LineUpError:
    return LineUpError("artifact_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})
