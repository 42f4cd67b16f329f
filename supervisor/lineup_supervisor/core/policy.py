"""What an operator may tune in the core, as data that comes with the ``Boot`` event. Every default has its reason."""

from __future__ import annotations

from typing import Any

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times in milliseconds on the steady clock."""

    cancel_grace_ms: int = 5_000
    """how long an app may take to stop after a cancel; then the agent gets ``cancelled`` all the same"""

    direct_timeout_ms: int = 60_000
    """timeout of a ``direct`` tool whose manifest names none; an agent waits for it"""

    worker_idle_ms: int = 60_000
    """how long a worker that nobody needs stays; a person who comes back within a minute finds it warm"""

    worker_start_timeout_ms: int = 20_000
    """from the start of the process to ``worker.ready``; a cold disk and a busy machine included"""

    worker_stop_grace_ms: int = 3_000
    """from ``worker.stop`` to SIGKILL; long enough to finish a write, short enough for a shutdown"""

    workers_max: int = 64
    """processes at once; further instances wait for one that nobody needs, or that only waits for a person. One MiniApp
    has at most half of them, as a call that runs is never ended for a place; one in eight is kept for Interact"""

    workers_starting_max: int = 4
    """starts at once; more would only slow each other down. One MiniApp has at most half of them under way, so that
    others start beside one that hangs while it is loaded"""

    restarts_max: int = 5
    """unexpected ends of one instance's worker within the window; one more closes the instance"""

    restart_window_ms: int = 60_000
    """window of the restart intensity; the time in which a process of the instance starts is no part of it"""

    late_starts_max: int = 2
    """starts of one instance in a row that were not ready in time; one more closes the instance. They are too slow to
    come together within the restart window, and each holds up others of its MiniApp"""

    restart_delay_ms_min: int = 50
    """delay before the second start in a window; doubles with each further one"""

    restart_delay_ms_max: int = 5_000
    """longest delay between two starts"""

    quarantine_closures_max: int = 3
    """instances of one bundle that were closed by restart intensity, or because it could not be loaded, within the
    window; then the bundle is quarantined"""

    quarantine_window_ms: int = 3_600_000
    """window of the quarantine rule"""

    receipts_kept: int = 4_096
    """remembered ``message_id``s of one agent; older ones would be taken as new"""

    actions_kept_ms: int = 86_400_000
    """how long the answer to a host action is remembered for its resend"""

    calls_kept_ms: int = 30 * 86_400_000
    """records of calls whose result their agent has taken over; whoever asks again does so within a month"""

    calls_kept_max: int = 200_000
    """of them at once; about 300 MB. Then the oldest of whoever has most go, however young they are"""

    calls_kept_bytes_max: int = 2048 << 20
    """of them in bytes; several times what ordinary ones take, and no disk is filled with the largest ones"""

    interactions_kept_ms: int = 0
    """settled questions; 0 keeps them for ever: what a person was asked and said is their history"""

    interactions_kept_max: int = 100_000
    """of them at once; a person does not answer so many, a runaway agent asks them in a day, and has most of them"""

    interactions_kept_bytes_max: int = 512 << 20
    """of them in bytes, as for calls"""

    sessions_kept_ms: int = 0
    """closed instances with their app session, its timeline entries and the saved state; 0 keeps them for ever"""

    sessions_kept_max: int = 20_000
    """of them at once"""

    sessions_kept_bytes_max: int = 1024 << 20
    """of their saved states in bytes; each may have up to 1 MiB"""

    surfaces_kept_ms: int = 86_400_000
    """records of closed surfaces, whose state is gone already; after a day nobody speaks of one any more"""

    surfaces_kept_max: int = 10_000
    """of them at once"""

    timeline_entries_max: int = 0
    """texts and calls in one conversation, oldest first out; 0 keeps them all: a person's texts are theirs. Questions
    and sessions go from it with their records alone, so that a MiniApp that asks much takes nothing else out of it"""

    audit_rows_max: int = 400_000
    """rows of the audit in the store, about 100,000 calls; older ones move into files, and the chain goes on from
    there"""

    limits_max: tuple[tuple[str, float], ...] = ()
    """the most that any MiniApp gets of what its manifest names in ``limits``, by those names"""

    capabilities_denied: tuple[str, ...] = ()
    """capabilities that no MiniApp gets on this machine, whatever a person would say"""

    def limits_of(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The manifest's ``limits`` as the operator lets them stand."""
        asked: dict[str, Any] = manifest.get("limits") or {}
        return asked | {name: min(asked.get(name, most), most) for name, most in self.limits_max}
