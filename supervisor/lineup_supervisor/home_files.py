"""The files of a home that follow from the store: exported artifacts, archived rows of the audit, copies of bundles.

This file owns when they are written and tidied up; their forms belong to the edges. The store is the truth: what a
crash has prevented is done at the next start, what nobody refers to goes. It must not decide anything.
"""

from __future__ import annotations

import threading
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
    """See the module. Nothing here raises for a disk that refuses: it is logged, and tried again later.

    ``save_blob``, ``save_missing`` and ``archive_audit`` are for threads of their own: a disk may take its time.
    """

    def __init__(self, home: Home, store: Store, log: RuntimeLog) -> None:
        self._home = home
        self._store = store
        self._log = log
        self._blobs = BlobFolder(home.artifacts)
        self._archive = AuditArchive(home.logs)
        self._saving = threading.Lock()  # who catches up clears what is half written

    def tidy(self, bundles: Sequence[ev.Bundle]) -> bool:
        """At start, before anything is added: finish what the last run could not, and clear what nobody needs.

        False if ``save_missing`` is to be called, as after ``save_blob``.
        """
        try:
            self._archive.clear()
            with self._store.read() as txn:
                used = {str(key[0]) for key, _ in txn.scan(BUNDLES)} | {bundle.digest for bundle in bundles}
                written = self._blobs.catch_up(txn)
            dropped = drop_unused(self._home.apps, used)
        except OSError as error:
            self._log.error("files of the home cannot be kept", error=str(error))
            return False
        if written or dropped:
            self._log.info("home tidied", artifacts_written=written, bundles_removed=dropped)
        return True

    def save_blob(self, effect: fx.SaveBlob) -> bool:
        """False if it could not be written: then ``save_missing`` is to be called until it could."""
        try:
            with self._saving:
                self._blobs.save(effect.name, effect.content)
        except OSError as error:
            self._log.error("artifact cannot be kept", name=effect.name, error=str(error))
            return False
        crash_point("after-save-blob")
        return True

    def save_missing(self) -> bool:
        """Write what could not be written before. False if some of it still cannot be."""
        try:
            with self._saving, self._store.read() as txn:
                written = self._blobs.catch_up(txn)
        except (OSError, LineUpError) as error:
            self._log.error("artifacts cannot be kept", error=str(error))
            return False
        self._log.info("artifacts are kept now", artifacts_written=written)
        return True

    def archive_audit(self, effect: fx.ArchiveAudit, event_id: str) -> ev.AuditArchived:
        """Write the file; what to tell the core."""
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
