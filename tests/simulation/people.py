"""The simulated Host with a person in front of it, and the operator at the command line.

They know what deltas and snapshots told them; every action has an id and is sometimes sent twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from checkers.history import Entry
from lineup_supervisor.core import events as ev
from simulation import bundles

if TYPE_CHECKING:
    from simulation.world import World

Row = dict[str, Any]
PATIENCE_ROUNDS = 30  # quiet seconds for what a person has gone back to


class Person:
    """A projection of the Runtime as the workspace has it, and what is done with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = world.history.host
        self.interactions: dict[str, Row] = {}
        self.instances: dict[str, Row] = {}
        self.conversations: dict[str, Row] = {}
        self.sessions: dict[str, Row] = {}
        self.surfaces: dict[str, Row] = {}
        self.operations: dict[str, Row] = {}
        self._rows = {
            "interaction": self.interactions,
            "instance": self.instances,
            "conversation": self.conversations,
            "session": self.sessions,
            "surface": self.surfaces,
            "operation": self.operations,
        }
        self.shown: list[str] = []  # surfaces that are before them
        self._told_by = "nothing yet"  # the action that said so last; empty when it was refused
        self.disabled: set[str] = set()
        self._looked_at: set[str] = set()  # while the run comes to rest
        self._patience = PATIENCE_ROUNDS
        self.operator_calls: list[str] = []
        self.replies: dict[str, Row] = {}
        self._asked: dict[str, str] = {}  # reply_to → action_id or query name
        self._actions: list[tuple[str, str, Row, str]] = []

    def note(self, what: str, data: Any) -> None:
        self.log.entries.append(Entry(self.world.tick(), self.world.wall_ms, what, data))

    # what it hears

    def booted(self, boot_id: str) -> None:
        """A new run: what was under way is lost, so the workspace asks for everything anew."""
        self.note("boot", boot_id)
        self._asked.clear()
        self._show([])
        self.query("snapshot")

    def replaced(self) -> None:
        """Another Host takes the place of one that was stopped; the Runtime's answers to that one are lost."""
        self.note("replaced", None)
        self._asked.clear()
        self._show([])
        self.query("snapshot")

    def delta(self, revision: int, changes: Sequence[Row]) -> None:
        self.note("delta", {"revision": revision, "changes": changes})
        for change in changes:
            rows = self._rows.get(change["kind"])
            if rows is None:
                continue
            if change["row"] is None:
                rows.pop(change["id"], None)
            else:
                rows[change["id"]] = change["row"]

    def reply(self, reply_to: str, body: Row) -> None:
        asked = self._asked.pop(reply_to, None)
        if asked is None:
            return
        if asked == "snapshot":
            self.note("snapshot", body["detail"])
            ended = {id_: row for id_, row in self.sessions.items() if row["state"] == "read_only"}
            for name, rows in self._rows.items():
                rows.clear()
                rows |= {row[f"{name}_id"]: row for row in body["detail"][f"{name}s"]}
            self.sessions |= ended
        elif not asked.startswith("query."):
            self.note("reply", {"action_id": asked, **body})
            self.replies[asked] = body
            if asked == self._told_by and not body["accepted"]:
                self._told_by = ""

    # what it does

    def query(self, name: str, **args: Any) -> str:
        reply_to = self.world.new_id("h")
        self._asked[reply_to] = "snapshot" if name == "snapshot" else f"query.{name}"
        self.world.submit(ev.HostQuery(event_id=self.world.new_id("e"), reply_to=reply_to, name=name, args=args))
        return reply_to

    def do(self, action: str, /, *, actor: str = "person", action_id: str = "", **args: Any) -> None:
        action_id = action_id or self.world.new_id("x")
        reply_to = self.world.new_id("h")
        self._asked[reply_to] = action_id
        self._actions.append((action_id, action, args, actor))
        self.note("action", {"action_id": action_id, "name": action, "args": args})
        self.world.submit(
            ev.HostAction(
                event_id=self.world.new_id("e"),
                reply_to=reply_to,
                action_id=action_id,
                actor=actor,
                name=action,
                args=args,
                bundle=bundles.GUESTS[args["version"]] if action == "apps.add" else None,
            )
        )

    def act(self) -> None:
        """One thing that a person, or the operator, might do now."""
        rng, mix = self.world.rng, self.world.mix
        if not self._told_by:
            self._show(self.shown)
        elif mix.ponder and self.pending() and rng.random() < mix.ponder:
            self.world.pass_time(rng.choice((1_500, 2_500, 35_000)))  # longer than the shortest calls may take
        elif self._actions and rng.random() < mix.double_answer:
            self._repeat()
        elif rng.random() < mix.close:
            self._close_something()
        elif rng.random() < mix.switch:
            self._switch()
        elif rng.random() < mix.operator:
            self._operate()
        elif rng.random() < mix.look:
            pages = self._pages()
            self._show([row["surface_id"] for row in rng.sample(pages, rng.randint(0, len(pages)))])
        elif self._pages() and rng.random() < mix.eager:
            surface_id = rng.choice(self._pages())["surface_id"]
            for _ in range(rng.choice((3, 6, 12))):
                self.do("surface.submit", surface_id=surface_id, payload={"k": "x" * rng.choice((1, 300, 900))})
        elif rng.random() < 0.75:
            self._answer_something()
        else:
            self._talk()

    def _repeat(self) -> None:
        """Something of a moment ago again, as the same action or as a new one."""
        rng, mix = self.world.rng, self.world.mix
        action_id, name, args, actor = rng.choice(self._actions[-8:])
        if name == "pages.shown":  # a Host does not say an old one again
            self._show(self.shown)
            return
        if rng.random() < 0.5 and not (mix.kept_max and name == "call.start"):
            action_id = ""  # the same wish again, as a new action; a call of that id may have gone and be a new one
        self.do(name, actor=actor, action_id=action_id, **args)

    def _pages(self) -> list[Row]:
        return [row for row in self.surfaces.values() if row["status"] == "open"]

    def _show(self, surface_ids: list[str]) -> None:
        """What their Host says for them, whenever other pages are before them."""
        self.shown = surface_ids
        self._told_by = self.world.new_id("x")
        self.do("pages.shown", action_id=self._told_by, surface_ids=surface_ids)

    def pending(self) -> list[Row]:
        return [row for row in self.interactions.values() if row["status"] in ("pending", "presented")]

    def all_interactions(self) -> list[str]:
        return list(self.interactions)

    def opened_for(self, agent_id: str) -> list[str]:
        """Conversations that the person has opened with this agent."""
        rows = self.conversations.values()
        return [row["conversation_id"] for row in rows if row["agent_id"] == agent_id and row["opened_by"] == "person"]

    def live(self) -> list[Row]:
        return [row for row in self.instances.values() if row["state"] != "closed"]

    def _answer_something(self) -> None:
        rng, mix = self.world.rng, self.world.mix
        rows = self.pending()
        if rng.random() < mix.invalid_answer and self.interactions:
            rows = list(self.interactions.values())  # an old one, perhaps
        if not rows:
            return
        row = rng.choice(rows)
        id_, roll = row["interaction_id"], rng.random()
        if roll < 0.15:
            self.do("interaction.present", interaction_id=id_)
        elif roll < 0.3:
            self.do("interaction.draft", interaction_id=id_, draft={"values": {"f": f"typing {roll}"}})
        elif roll < 0.4:
            self.do("interaction.cancel", interaction_id=id_, reason="not now")
        elif rng.random() < mix.invalid_answer:
            self.do(
                "interaction.answer", interaction_id=id_, result=rng.choice((None, {}, {"approved": 1}, {"values": 7}))
            )
        else:
            self.do("interaction.answer", interaction_id=id_, result=self.answer_to(row))

    def answer_to(self, row: Row) -> Row:
        rng, request = self.world.rng, row["request"]
        match row["kind"]:
            case "notice":
                return {"acknowledged": True}
            case "confirm":
                return {"approved": rng.random() < 0.7}
            case "choice":
                return {"action_ids": [rng.choice(request["actions"])["id"]]}
            case _:
                return {"values": {"name": f"Ada {rng.randint(1, 999)}", "age": rng.randint(0, 120)}}

    def _close_something(self) -> None:
        rng, rows = self.world.rng, self.live()
        if rows:
            self.do("instance.close", instance_id=rng.choice(rows)["instance_id"], force=rng.random() < 0.3)

    def _switch(self) -> None:
        rng, rows = self.world.rng, self.live()
        if not rows:
            return
        row = rng.choice(rows)
        name = rng.choice(
            ("instance.front", "instance.front", "instance.back", "conversation.home", "session.continue")
        )
        if name == "conversation.home":
            self.do(name, conversation_id=row["conversation_id"])
        elif name == "session.continue":
            ended = [s for s in self.sessions.values() if s["state"] == "read_only"]
            if ended:
                session = rng.choice(ended)
                self.do(name, session_id=session["session_id"])
                if rng.random() < 0.5:  # and on to something else, perhaps before it has started
                    self.do("conversation.home", conversation_id=session["conversation_id"])
        else:
            self.do(name, instance_id=row["instance_id"])

    def _operate(self) -> None:
        rng, world = self.world.rng, self.world
        roll = rng.random()
        scope = rng.choice(("lab", "lab2", "timer", "chat", "guest"))
        if rng.random() < 0.4:
            self._change_guest()
        elif roll < 0.2:
            self.do("apps.disable", actor="operator", app_scope=scope)
        elif roll < 0.45:
            self.do("apps.enable", actor="operator", app_scope=scope)
        elif roll < 0.5:
            self.do("apps.disable", actor="person", app_scope=scope)
        elif roll < 0.8:
            tool_id = rng.choice(world.callable_tools)
            call_id = world.new_id("k-cli")
            self.operator_calls.append(call_id)
            conversation = rng.choice(world.all_conversations())
            input_ = world.input_for(tool_id)
            self.do(
                "call.start",
                actor="operator",
                call_id=call_id,
                tool_id=tool_id,
                conversation_id=conversation,
                input=input_,
            )
        elif self.operator_calls:
            self.do("call.cancel", actor="operator", call_id=rng.choice(self.operator_calls), agent_id="cli")

    def _change_guest(self) -> None:
        """Install, upgrade, downgrade or remove the stranger's MiniApp, whatever it is doing."""
        if self.world.rng.random() < 0.75:
            version = self.world.rng.choice(("1.0.0", "2.0.0"))
            self.do("apps.add", actor="operator", app_scope="guest", version=version)
        else:
            self.do("apps.remove", actor="operator", app_scope="guest")

    def _talk(self) -> None:
        rng, rows = self.world.rng, list(self.conversations.values())
        surfaces = self._pages()
        roll = rng.random()
        if roll < 0.15:
            self.do("conversation.open", title="Hello")
        elif roll < 0.4 and surfaces:
            row = rng.choice(surfaces)
            name = rng.choice(("surface.event", "surface.submit", "surface.patch", "surface.torn"))
            more = {"surface.event": {"name": "pick", "payload": 1}, "surface.submit": {"payload": {"k": 1}}}.get(
                name, {}
            )
            if name == "surface.patch":
                more = {"patch": {"p": rng.randint(0, 9)}, "base_revision": rng.choice((None, row["revision"], 0))}
            self.do(name, surface_id=row["surface_id"], **more)
        elif rows:
            row = rng.choice(rows)
            self.do("person.text", conversation_id=row["conversation_id"], text=f"I say {roll}")

    def rest(self) -> bool:
        """Everything that a person has to do before the run can come to rest; False if there is nothing."""
        if not self._told_by:
            self._show(self.shown)
            return True
        rows = self.pending()
        for row in rows:
            self.do("interaction.answer", interaction_id=row["interaction_id"], result=self.answer_to(row))
        # Leaving would interrupt an operation: whoever has one under way stays until it has run out.
        stays = {row["conversation_id"] for row in self.operations.values() if row["state"] == "focusing"}
        left = [row for row in self.live() if self._was_left_unstarted(row) and row["conversation_id"] not in stays]
        for row in left:
            self._looked_at.add(row["instance_id"])
            self.do("instance.front", instance_id=row["instance_id"])
        if left:
            self._patience = PATIENCE_ROUNDS
            return True
        if unstarted := [row["instance_id"] for row in self.live() if self._is_looked_at_in_vain(row)]:
            if self._patience:
                self._patience -= 1
                self.world.pass_time(1_000)
                return True
            stale = [f"{id_} is in the foreground and was never started" for id_ in unstarted]
            self.world.history.stale += [words for words in stale if words not in self.world.history.stale]
        rest = [row for row in self.conversations.values() if row["conversation_id"] not in stays]
        away = [row for row in rest if row["focus"][-1:] != [row["chat_instance_id"]]]
        for row in away:
            self.do("conversation.home", conversation_id=row["conversation_id"])
        return bool(rows or away)

    def _is_looked_at_in_vain(self, row: Row) -> bool:
        """The person has gone back to it, and its code has not begun to run yet."""
        return row["instance_id"] in self._looked_at and row["state"] == "foreground" and row["incarnation"] == 0

    def _was_left_unstarted(self, row: Row) -> bool:
        """A MiniApp that the person has left before it ran, and has not gone back to yet."""
        new = row["incarnation"] == 0 and row["app_scope"] != "chat" and row["state"] in ("background", "suspended")
        return new and row["instance_id"] not in self._looked_at
