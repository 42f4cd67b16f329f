"""What an operator would ask the Runtime about itself, in the middle of a run and at its end; and its archive's keeper.

Answers go into the history; the checkers hold them against what everybody was told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkers.history import Look
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev

if TYPE_CHECKING:
    from simulation.world import World

PAGE = 1_000


class Operator:
    """Reads the audit as it grows, asks for everything there is, and keeps what the store lets go of."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = world.history
        self.late: list[ev.AuditArchived] = []
        self._instances: list[str] = []
        self._operations: list[str] = []
        self._archived = 0  # rows that are in a file for certain

    # questions

    @property
    def can_ask(self) -> bool:
        """Nothing else would happen in the transaction of the questions."""
        engine = self.world.engine
        return engine is not None and engine.kept == 0 and self.world.retry_at_ms is None

    def ask(self, *questions: tuple[str, dict[str, Any]]) -> list[Any]:
        """The answers in order, all from one transaction; None for what the Runtime does not know."""
        engine = self.world.engine
        assert engine is not None
        batch = [
            ev.HostQuery(event_id=self.world.new_id("e"), reply_to=f"operator-{n}", name=name, args=args)
            for n, (name, args) in enumerate(questions)
        ]
        effects = engine.run(batch, self.world.now).effects
        replies = {e.reply_to: e for e in effects if isinstance(e, fx.ReplyHost)}
        assert len(replies) == len(effects) == len(batch), effects
        ordered = [replies[event.reply_to] for event in batch]
        assert all(reply.accepted or (reply.code or "").endswith("not_found") for reply in ordered), ordered
        return [reply.detail if reply.accepted else None for reply in ordered]

    def read_audit(self) -> None:
        """Every row that has been written since the last time."""
        while True:
            (page,) = self.ask(("audit.page", {"after": len(self.history.audit), "limit": PAGE}))
            self.history.audit_head = page["head"]
            if page["anchor"]["seq"] > self._archived:
                self.history.stale.append(
                    f"rows up to {page['anchor']['seq']} have gone, {self._archived} are in files"
                )
            for row in page["rows"]:
                self.history.audit.append(row)
                if row["kind"] == "instance.created":
                    self._instances.append(row["subjects"][0])
                elif row["kind"] == "operation.started":
                    self._operations.append(row["subjects"][0])
            if not page["rows"]:
                return

    def look(self) -> None:
        """Ask for all there is; nothing if the Runtime is down or busy with a full store."""
        if not self.can_ask:
            return
        self.read_audit()
        instances, operations = list(dict.fromkeys(self._instances)), list(dict.fromkeys(self._operations))
        status, snapshot, calls, questions, *rows = self.ask(
            ("status", {}),
            ("snapshot", {}),
            ("calls", {"limit": PAGE}),
            ("interactions", {"state": "all", "limit": PAGE}),
            *(("instance", {"instance_id": id_}) for id_ in instances),
            *(("operation", {"operation_id": id_}) for id_ in operations),
        )
        self.history.status = status
        look = Look(
            at=self.world.tick(),
            audit_rows=len(self.history.audit),
            status=status,
            snapshot=snapshot,
            calls=calls["calls"],
            interactions=questions["interactions"],
            instances=dict(zip(instances, rows, strict=False)),
            operations=dict(zip(operations, rows[len(instances) :], strict=True)),
        )
        self.history.looks.append(look)

    # the archive

    def archive(self, effect: fx.ArchiveAudit) -> None:
        """Write the rows into a file, or fail to; the answer may come late, or never."""
        world, mix = self.world, self.world.mix
        self.read_audit()
        if world.rng.random() < mix.archive_loss:
            world.happened["archive_loss"] += 1
            return
        done: dict[str, Any] = {
            "event_id": world.new_id("e"),
            "after_seq": effect.after_seq,
            "up_to_seq": effect.up_to_seq,
        }
        if world.rng.random() < mix.archive_failure:
            world.happened["archive_failure"] += 1
            answer = ev.AuditArchived(**done, error="OSError: no space left on the device")
        else:
            self._archived = max(self._archived, effect.up_to_seq)
            answer = ev.AuditArchived(**done, hash=self.history.audit[effect.up_to_seq - 1]["hash"])
        if world.rng.random() < mix.archive_late:
            world.happened["archive_late"] += 1
            self.late.append(answer)
        else:
            world.submit(answer)

    def answer_late(self) -> None:
        """What the archive has done is told now; nobody hears it in another run of the supervisor."""
        late, self.late = self.late, []
        for answer in late:
            self.world.submit(answer)
