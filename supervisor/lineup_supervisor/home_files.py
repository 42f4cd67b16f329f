"""The files of a home that follow from the store: exported artifacts, archived rows of the audit, copies of bundles.

This file owns when they are written and tidied up; their forms belong to the edges. The store is the truth: what a
crash has prevented is done at the next start, what nobody refers to goes. It must not decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import BUNDLES
from lineup_supervisor.crash_points import crash_point
from lineup_supervisor.edges.audit_archive import AuditArchive
from lineup_supervisor.edges.blobs import BlobFolder
from lineup_supervisor.edges.bundles import drop_unused
from lineup_supervisor.edges.store import Store
from lineup_supervisor.home import Home
from lineup_supervisor.runtime_log import RuntimeLog


class HomeFiles:
    """See the module. Nothing here raises for a disk that refuses: it is logged, and tried again later."""

    def __init__(self, home: Home, store: Store, log: RuntimeLog) -> None:
        self._home = home
        self._store = store
        self._log = log
        self._blobs = BlobFolder(home.artifacts)
        self._archive = AuditArchive(home.logs)

    def tidy(self, bundles: Sequence[ev.Bundle]) -> None:
        """At start, before anything is added: finish what the last run could not, and clear what nobody needs."""
        try:
            self._archive.clear()
            with self._store.read() as txn:
                used = {str(key[0]) for key, _ in txn.scan(BUNDLES)} | {bundle.digest for bundle in bundles}
                written = self._blobs.catch_up(txn)
            dropped = drop_unused(self._home.apps, used)
        except OSError as error:
            self._log.error("files of the home cannot be kept", error=str(error))
            return
        if written or dropped:
            self._log.info("home tidied", artifacts_written=written, bundles_removed=dropped)

    def save_blob(self, effect: fx.SaveBlob) -> None:
        crash_point("before-save-blob")
        try:
            self._blobs.save(effect.name, effect.content)
        except OSError as error:
            self._log.error("artifact cannot be kept", name=effect.name, error=str(error))
        crash_point("after-save-blob")

    def archive_audit(self, effect: fx.ArchiveAudit, event_id: str) -> ev.AuditArchived:
        """Write the file; what to tell the core. For a thread of its own: ten thousand rows take a moment."""
        last_hash = fault = ""
        try:
            last_hash = self._archive.write(self._store.read, effect.after_seq, effect.up_to_seq)
        except Exception as error:  # a full disk or a bug: nothing is deleted, and nothing else depends on it
            words = str(error) if isinstance(error, LineUpError) else f"{type(error).__name__}: {error}"
            self._log.error("the audit cannot be archived", error=words)
            fault = words[:200]
        return ev.AuditArchived(
            event_id=event_id, after_seq=effect.after_seq, up_to_seq=effect.up_to_seq, hash=last_hash, error=fault
        )
