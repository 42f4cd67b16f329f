"""The core on a small stage: one store in memory, one conversation, rules called one at a time.

``Stage.run`` is one event; ``Stage.refused`` is one that must be refused and must leave every row as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import pytest

from lineup_protocol.errors import LineUpError
from lineup_protocol.manifest import parse_manifest
from lineup_supervisor.core import apps, instances, schema
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.ctx import META_KEY, Ctx
from lineup_supervisor.core.events import Bundle, Now, Wake
from lineup_supervisor.core.schema import TABLES, App, Instance, Row, Worker
from lineup_supervisor.core.tables import InstanceState, WorkerState
from lineup_supervisor.core.txn import Key, Table
from lineup_supervisor.edges.store_memory import MemoryStore

T = TypeVar("T")
R = TypeVar("R", bound=Row)
CONVERSATION = "c-1"
AGENT = "agent-1"


def tool(tool_id: str, handling: str = "launch", **fields: Any) -> dict[str, Any]:
    anything = {"type": "object"}
    return {
        "id": tool_id,
        "version": 1,
        "title": tool_id,
        "description": f"what {tool_id} does",
        "handling": handling,
        "target": {
            "app_scope": tool_id.split(".")[0],
            "requires_foreground": handling == "launch",
            "restore_previous_focus": False,
        },
        "input_schema": anything,
        "output_schema": anything,
        **fields,
    }


def manifest(scope: str, *, trusted: bool = False, **fields: Any) -> dict[str, Any]:
    """A valid ``miniapp.json`` as the edges hand it on."""
    data = {
        "app_scope": scope,
        "version": "1.0.0",
        "kind": "installed",
        "entry": "app:app",
        "tools": [tool(f"{scope}.open")],
        "host": {"min_version": "1.0", "surface_required": False},
        **fields,
    }
    return parse_manifest(data, trusted=trusted).as_dict()


def bundle(content: dict[str, Any], digest: str = "") -> Bundle:
    digest = digest or f"{content['app_scope']}-{content['version']}"
    return Bundle(digest=digest, path=f"/bundles/{digest}", manifest=content)


CHAT = manifest("chat", trusted=True, kind="system", min_isolation="S1", tools=[tool("chat.say", "direct")])


class Stage:
    def __init__(self) -> None:
        self.store = MemoryStore(TABLES, encoded=True)
        self.wall_ms, self.steady_ms = 1_800_000_000_000, 5_000
        self.effects: list[fx.Effect] = []
        self.changes: list[dict[str, Any]] = []
        self.projected: list[tuple[str, Key, Any]] = []
        self._events = 0
        self.run(lambda ctx: ctx.set_meta(boot_id="boot-1", isolation="S3"))
        self.run(lambda ctx: apps.install(ctx, bundle(CHAT), trusted=True))
        self.run(lambda ctx: instances.open_conversation(ctx, CONVERSATION, AGENT, opened_by="agent"))

    def run(self, rule: Callable[[Ctx], T], actor: str = "test") -> T:
        """One event: what the rule returns, after the commit."""
        with self.store.write() as txn:
            ctx = self._ctx(txn, actor)
            result = rule(ctx)
            txn.put(schema.META, META_KEY, ctx.meta)
        self.effects = ctx.effects()
        self.changes = ctx.extra_changes
        self.projected = [(table.name, key, row) for (table, key), row in ctx.changed.items()]
        return result

    def refused(self, rule: Callable[[Ctx], Any]) -> LineUpError:
        """One event that must be refused: the error, after a look that nothing was written but what it costs."""
        before = self._dump()
        with self.store.write() as txn:
            ctx = self._ctx(txn, "test")
            with pytest.raises(LineUpError) as caught:
                rule(ctx)
        assert self._dump() == before
        assert ctx.effects() == []
        assert ctx.extra_changes == []
        return caught.value

    def _dump(self) -> dict[str, Any]:
        paid = {"app_budget": 0, "app_budget_ms": 0, "person_budget": 0, "person_budget_ms": 0}
        surfaces = [msgspec.structs.replace(row, **paid) for row in self.rows(schema.SURFACES)]
        return {**self.store.dump(), "surfaces": surfaces}

    def look(self, question: Callable[[Any], T]) -> T:
        with self.store.read() as txn:
            return question(txn)

    def row(self, table: Table[R], *key: str | int) -> R | None:
        return self.look(lambda txn: txn.get(table, key))

    def rows(self, table: Table[R], *prefix: str | int) -> list[R]:
        return [row for _, row in self.look(lambda txn: list(txn.scan(table, prefix)))]

    def inbox(self, instance_id: str) -> list[tuple[str, dict[str, Any]]]:
        return [(item.kind, item.body) for item in self.rows(schema.INBOX, instance_id)]

    def audited(self, kind: str) -> list[schema.AuditRow]:
        return [row for row in self.rows(schema.AUDIT) if row.kind == kind]

    def install(self, content: dict[str, Any], *, trusted: bool = False, digest: str = "") -> App:
        return self.run(lambda ctx: apps.install(ctx, bundle(content, digest), trusted=trusted))

    def instance(self, scope: str, state: InstanceState = InstanceState.FOREGROUND) -> Instance:
        """A new instance of an installed MiniApp, in the foreground unless another state is asked."""

        def make(ctx: Ctx) -> Instance:
            conversation = ctx.need(schema.CONVERSATIONS, (CONVERSATION,))
            made = instances.create(ctx, ctx.need(schema.APPS, (scope,)), conversation)
            if state == InstanceState.FOREGROUND:
                instances.front(ctx, made.instance_id)
            made = msgspec.structs.replace(ctx.need(schema.INSTANCES, (made.instance_id,)), state=state)
            return ctx.put(schema.INSTANCES, (made.instance_id,), made)

        return self.run(make)

    def give_worker(self, instance: Instance, state: WorkerState = WorkerState.READY) -> None:
        worker = Worker(instance_id=instance.instance_id, incarnation=1, state=state, started_ms=0)
        self.run(lambda ctx: ctx.put(schema.WORKERS, (instance.instance_id,), worker))

    def sent_to_worker(self) -> list[dict[str, Any]]:
        return [message for effect in self.effects if isinstance(effect, fx.SendWorker) for message in effect.messages]

    def _ctx(self, txn: Any, actor: str) -> Ctx:
        self._events += 1
        ctx = Ctx(txn, Wake(event_id=f"e{self._events}"), Now(self.wall_ms, self.steady_ms))
        ctx.actor = actor
        return ctx


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def make_manifest() -> Callable[..., dict[str, Any]]:
    return manifest


@pytest.fixture
def make_tool() -> Callable[..., dict[str, Any]]:
    return tool


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A context in which some limits are small, so that a test can reach them."""
    from lineup_protocol import limits

    @contextmanager
    def lowered(**values: int) -> Iterator[None]:
        with monkeypatch.context() as patch:
            for name, value in values.items():
                assert hasattr(limits, name), name
                patch.setattr(limits, name, value)
            yield

    return lowered
