"""Deliberate bugs, put into the core in memory, to show that the checkers would catch them.

Each mutation is a function that patches through ``Patch``; ``caught_by`` tries seeds until a checker speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import (
    actions,
    agents,
    audit,
    calls,
    closing,
    embodiment,
    inbox,
    instances,
    intake,
    interactions,
    operations,
    outbox,
    timers,
    worker_link,
)
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    AGENTS,
    CALLS,
    CONVERSATIONS,
    INBOX,
    INSTANCES,
    OUTBOX_ITEMS,
    SNAPSHOTS,
    WORKERS,
)
from lineup_supervisor.core.tables import INTERACTION, CallEvent, InteractionEvent, InteractionState
from lineup_supervisor.engine import Engine
from simulation.run import run

replace = msgspec.structs.replace
# Assertions of the core and looks into its tables do not count: the checkers have to see it from outside.
_OWN = ("core", "invariants")
MUTATIONS: dict[str, tuple[str, Callable[[Patch], None]]] = {}


class Patch:
    """Replaces attributes and puts them back."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Put ``value`` in the place of ``owner.name``; returns what was there."""
        before = getattr(owner, name)
        self._undo.append((owner, name, before))
        setattr(owner, name, value)
        return before

    def item(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        before = table[key]
        table[key] = value
        self._undo.append((_Item(table, key), "value", before))

    def undo(self) -> None:
        for owner, name, before in reversed(self._undo):
            setattr(owner, name, before)
        self._undo.clear()


class _Item:
    def __init__(self, table: dict[Any, Any], key: Any) -> None:
        self.__dict__["_at"] = (table, key)

    def __setattr__(self, name: str, value: Any) -> None:
        table, key = self.__dict__["_at"]
        table[key] = value


def mutation(sentence: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(put_in: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTATIONS[put_in.__name__.replace("_", "-")] = (sentence, put_in)
        return put_in

    return register


@contextmanager
def applied(name: str) -> Iterator[None]:
    patch = Patch()
    MUTATIONS[name][1](patch)
    try:
        yield
    finally:
        patch.undo()


def caught_by(name: str, *, seeds: int, steps: int) -> tuple[str, int] | None:
    """The checker that catches the mutation and the seed at which it does; None if nobody notices."""
    found = all_that_catch(name, seeds=seeds, steps=steps)
    return found and (found[0][0], found[1])


def all_that_catch(name: str, *, seeds: int, steps: int, first: int = 0) -> tuple[list[str], int] | None:
    """Every checker that speaks at the first seed, from ``first`` on, at which one does."""
    with applied(name):
        for seed in range(first, first + seeds):
            checkers = [fault.checker for fault in run(seed, steps).faults if fault.checker not in _OWN]
            if checkers:
                return list(dict.fromkeys(checkers)), seed
    return None


# results


@mutation("a call's result is issued twice")
def settle_twice(patch: Patch) -> None:
    def settle(ctx: Any, call: Any, event: Any, **how: Any) -> Any:
        done = orig(ctx, call, event, **how)
        row = list(ctx.txn.scan(OUTBOX_ITEMS, (done.agent_id,)))
        if row and row[-1][1].type == "lineup.v1.tool.result":
            item = row[-1][1]
            outbox.append(ctx, done.agent_id, item.type, item.conversation_id, item.payload)
        return done

    orig = patch.set(calls, "settle", settle)


@mutation("an identical resend issues the result again")
def drop_dedupe(patch: Patch) -> None:
    def known(ctx: Any, call: Any, input_digest: str) -> Any:
        answer = orig(ctx, call, input_digest)
        if call.result is not None:
            payload = {
                "call_id": call.call_id,
                "status": str(call.status),
                "result": call.result,
                "at": "2026-11-30T08:00:00Z",
            }
            outbox.append(ctx, call.agent_id, "lineup.v1.tool.result", call.conversation_id, payload)
        return answer

    orig = patch.set(intake, "_known", known)


@mutation("a receipt that had the record of a call has it no more when its message comes again")
def keep_receipts_bare(patch: Patch) -> None:
    patch.set(agents, "_again", lambda ctx, agent_id, kept: kept.body)


@mutation("a call that was running when its worker died is said to be completed")
def pretend_completion(patch: Patch) -> None:
    def lost(ctx: Any, call: Any, detail: str, reason: str) -> None:
        if call.status == "running" and call.operation_id is None and call.interaction_id is None:
            calls.settle(ctx, call, CallEvent.SUBMIT, result={"n": 0})

    patch.set(calls, "worker_lost", lost)


@mutation("a retry_safe call is not delivered again after its worker died")
def skip_redelivery(patch: Patch) -> None:
    def lost(ctx: Any, call: Any, detail: str, reason: str) -> None:
        if not call.retry_safe:
            orig(ctx, call, detail, reason)

    orig = patch.set(calls, "worker_lost", lost)


@mutation("a call that must not run twice is delivered again")
def redeliver_everything(patch: Patch) -> None:
    def lost(ctx: Any, call: Any, detail: str, reason: str) -> None:
        if (
            call.status == "running"
            and call.operation_id is None
            and call.interaction_id is None
            and not call.cancel_requested
        ):
            calls.queue(ctx, replace(call, attempt=call.attempt + 1))
        else:
            orig(ctx, call, detail, reason)

    orig = patch.set(calls, "worker_lost", lost)


@mutation("a worker may end any call")
def forge_calls(patch: Patch) -> None:
    def of_instance(ctx: Any, instance: Any, call_id: str) -> Any:
        found = calls.find(ctx.txn, call_id)
        if not found:
            raise LineUpError("call_not_found", "no call")
        return found[-1]

    patch.set(calls, "of_instance", of_instance)
    patch.set(interactions, "check_bound_result", lambda ctx, call, result: None)


@mutation("results are not held against the output schema")
def skip_output_schema(patch: Patch) -> None:
    def complete(ctx: Any, instance: Any, body: Any) -> None:
        call = calls._reported(ctx, instance, body["call_id"])
        calls.settle(ctx, call, CallEvent.SUBMIT, result=body["result"])

    patch.item(worker_link._RULES, "tool.complete", complete)


@mutation("an agent's question may be completed with anything")
def unbind_answers(patch: Patch) -> None:
    patch.set(interactions, "check_bound_result", lambda ctx, call, result: None)

    def tell(ctx: Any, interaction: Any) -> None:
        if interaction.result is not None and "approved" in interaction.result:
            interaction = replace(interaction, result={"approved": not interaction.result["approved"]})
        orig(ctx, interaction)

    orig = patch.set(interactions, "_tell_owner", tell)


# the agent's link


@mutation("what was sent counts as acknowledged")
def acknowledge_outbox_early(patch: Patch) -> None:
    def flush(ctx: Any, agent_id: str) -> None:
        orig(ctx, agent_id)
        agent = ctx.get(AGENTS, (agent_id,))
        if agent is None or agent.sent_seq == agent.acked_seq:
            return
        for key, _ in list(ctx.txn.scan(OUTBOX_ITEMS, (agent_id,))):
            if key[1] <= agent.sent_seq:
                ctx.delete(OUTBOX_ITEMS, key)
        ctx.put(AGENTS, (agent_id,), replace(agent, acked_seq=agent.sent_seq))

    orig = patch.set(outbox, "flush", flush)


@mutation("a new link is not sent what the last one did not acknowledge")
def forget_unacknowledged(patch: Patch) -> None:
    def flush(ctx: Any, agent_id: str) -> None:
        agent = outbox.agent_row(ctx, agent_id)
        if agent.sent_seq < agent.max_sent_seq:
            ctx.put(AGENTS, (agent_id,), replace(agent, sent_seq=agent.max_sent_seq))
        orig(ctx, agent_id)

    orig = patch.set(outbox, "flush", flush)


@mutation("receipts are not kept")
def forget_receipts(patch: Patch) -> None:
    patch.set(agents, "_keep_receipt", lambda ctx, agent_id, message_id, body: None)


@mutation("a second link does not take over from the first")
def skip_takeover(patch: Patch) -> None:
    patch.set(agents, "_take_over", lambda ctx, agent: None)


@mutation("effects leave before the commit")
def send_before_commit(patch: Patch) -> None:
    def commit(engine: Any, batch: Any, now: Any) -> Any:
        world = engine._hook.__self__

        def work(txn: Any) -> Any:
            effects = [effect for event in batch for effect in engine._step(txn, event, now)]
            due = engine._next_due(txn)
            for effect in effects:
                world._execute(effect)
            engine._hook("before-commit")
            return [], due

        effects, engine._due = engine._store.transact(work)
        engine._hook("after-commit")
        return effects

    patch.set(Engine, "_commit", commit)


@mutation("a call under a stale revision is taken")
def skip_revision(patch: Patch) -> None:
    def submit(ctx: Any, agent_id: str, conversation_id: str, payload: Any) -> Any:
        return orig(ctx, agent_id, conversation_id, {**payload, "inventory_revision": ctx.meta.inventory_revision})

    orig = patch.set(intake, "submit", submit)


@mutation("an agent may call in another agent's conversation")
def skip_scope(patch: Patch) -> None:
    patch.set(intake, "_check_scope", lambda call, conversation: None)


# the worker's link


@mutation("what was delivered counts as acknowledged")
def acknowledge_inbox_early(patch: Patch) -> None:
    def flush(ctx: Any, instance_id: str, *more: Any) -> None:
        orig(ctx, instance_id, *more)
        worker = ctx.get(WORKERS, (instance_id,))
        for key, item in list(ctx.txn.scan(INBOX, (instance_id,))):
            if worker is not None and key[1] <= worker.sent_seq and item.kind == "tool.call":
                ctx.delete(INBOX, key)
                calls.claim(ctx, ctx.need(CALLS, (item.agent_id, item.call_id)))

    orig = patch.set(inbox, "flush", flush)


@mutation("an acknowledged delivery comes again")
def keep_acknowledged(patch: Patch) -> None:
    def acknowledge(ctx: Any, instance: Any, body: Any) -> None:
        key = (instance.instance_id, body["seq"])
        item = ctx.get(INBOX, key)
        orig(ctx, instance, body)
        if item is not None and item.kind == "message.text":
            ctx.put(INBOX, key, item)

    orig = acknowledge_rule = inbox.acknowledge
    patch.item(worker_link._RULES, "inbox.ack", acknowledge)
    assert acknowledge_rule is not None


@mutation("answers go to Interact, whoever asked")
def misroute_answers(patch: Patch) -> None:
    def tell(ctx: Any, interaction: Any) -> None:
        from lineup_supervisor.core.schema import CONVERSATIONS

        chat = ctx.need(CONVERSATIONS, (interaction.conversation_id,)).chat_instance_id
        body = {"interaction": interactions.public(interaction)}
        inbox.append(ctx, chat, "interaction.result", body, interaction_id=interaction.interaction_id)

    patch.set(interactions, "_tell_owner", tell)


# people, focus, processes


@mutation("a second answer replaces the first")
def answer_twice(patch: Patch) -> None:
    patch.item(INTERACTION.table, (InteractionState.SUBMITTED, InteractionEvent.ANSWER), InteractionState.SUBMITTED)
    patch.item(INTERACTION.table, (InteractionState.COMPLETED, InteractionEvent.ANSWER), InteractionState.SUBMITTED)


@mutation("a closed instance stays in the focus stack")
def leak_focus(patch: Patch) -> None:
    patch.set(instances, "_remove_from_focus", lambda ctx, conversation, instance_id: None)


@mutation("closing leaves calls open")
def close_without_settling(patch: Patch) -> None:
    patch.set(closing, "settle_everything", lambda ctx, instance, *why: None)


@mutation("a crashing instance is started for ever")
def restart_for_ever(patch: Patch) -> None:
    patch.set(embodiment, "_too_many_crashes", lambda ctx, instance: False)


@mutation("one MiniApp takes every start that there is")
def take_every_start(patch: Patch) -> None:
    patch.set(embodiment, "_share", lambda ctx: ctx.policy.workers_starting_max)


@mutation("one MiniApp takes every place that there is")
def take_every_place(patch: Patch) -> None:
    patch.set(embodiment, "_share_of_places", lambda ctx: ctx.policy.workers_max)


@mutation("who only waits for a person keeps its place while others wait for one")
def keep_places(patch: Patch) -> None:
    def note(ctx: Any, instance: Any, need: Any) -> None:
        orig(ctx, instance, embodiment.Need.NOTHING if need == embodiment.Need.NOTHING else embodiment.Need.WORK)

    orig = patch.set(embodiment, "_note_spare", note)


@mutation("a call that runs is ended for a place")
def end_calls_for_places(patch: Patch) -> None:
    patch.set(embodiment, "_note_spare", lambda ctx, instance, need: orig(ctx, instance, embodiment.Need.NOTHING))
    orig = patch._undo[-1][2]


@mutation("a rule refuses late, and what it has done by then stays")
def keep_refused(patch: Patch) -> None:
    patch.set(intake, "_check_depth", lambda ctx, *known: None)
    patch.set(Ctx, "_take_back", lambda ctx, mark: None)


@mutation("a full inbox takes more")
def overfill_inboxes(patch: Patch) -> None:
    patch.set(inbox, "check_room", lambda ctx, instance, more=0: None)


@mutation("who is left before their start is not started when they are looked at again")
def forget_the_unstarted(patch: Patch) -> None:
    def need_of(ctx: Any, instance: Any) -> Any:
        return orig(ctx, replace(instance, began=True))

    orig = patch.set(embodiment, "need_of", need_of)


@mutation("the questions of a lost attempt stop the clock of the next one")
def keep_questions_of_lost_attempts(patch: Patch) -> None:
    patch.set(interactions, "attempt_ended", lambda ctx, call: None)


@mutation("an idle worker stays")
def never_reclaim(patch: Patch) -> None:
    patch.set(embodiment, "idle_over", lambda ctx, instance_id: None)


@mutation("a call's time runs while the person is asked")
def run_clock_of_questions(patch: Patch) -> None:
    def pause(ctx: Any, call: Any) -> Any:
        return calls.save(ctx, call, questions=call.questions + 1)

    patch.set(calls, "pause_timeout", pause)


@mutation("the share of open calls is never given back")
def leak_share(patch: Patch) -> None:
    def release(ctx: Any, call: Any) -> None:
        orig(ctx, call)
        agent = outbox.agent_row(ctx, call.agent_id)
        ctx.put(AGENTS, (call.agent_id,), replace(agent, in_flight=agent.in_flight + 1))

    orig = patch.set(calls, "_release", release)


# deadlines and the audit


@mutation("a deadline fires at half its time")
def fire_early(patch: Patch) -> None:
    def start(ctx: Any, call: Any, instance: Any, deadline: Any) -> Any:
        operation = orig(ctx, call, instance, deadline)
        half = ctx.now.wall_ms + operation.duration_seconds * 500
        timers.set_timer(ctx, "wall", half, "operation", operation.operation_id)
        return operation

    def due(ctx: Any, operation_id: str) -> None:
        from lineup_supervisor.core.schema import OPERATIONS
        from lineup_supervisor.core.tables import OperationEvent

        operation = ctx.get(OPERATIONS, (operation_id,))
        if operation is not None and operations.decide(ctx, operation, OperationEvent.DUE):
            instances.close(ctx, operation.instance_id, "operation_ended", "completed")

    orig = patch.set(operations, "start", start)
    patch.set(operations, "due", due)


@mutation("a deadline fires twice")
def fire_twice(patch: Patch) -> None:
    def decide(ctx: Any, operation: Any, event: Any, reason: Any = None) -> bool:
        done = orig(ctx, operation, event, reason)
        if done:
            audit.audit(ctx, "operation.completed", operation.operation_id, operation.source_call_id)
        return done

    orig = patch.set(operations, "decide", decide)


@mutation("a due timer is forgotten")
def lose_timers(patch: Patch) -> None:
    def set_timer(ctx: Any, clock: Any, due_ms: int, kind: str, *ref: str) -> None:
        if kind != "operation":
            orig(ctx, clock, due_ms, kind, *ref)

    orig = patch.set(timers, "set_timer", set_timer)


@mutation("refused commands are not audited")
def skip_audit(patch: Patch) -> None:
    patch.set(worker_link, "audit", lambda ctx, kind, *subjects, **detail: None)


@mutation("audit rows do not hang on each other")
def break_chain(patch: Patch) -> None:
    def chain(prev: str, body: dict[str, Any]) -> str:
        return orig("0" * 64, body)

    orig = patch.set(audit, "chain", chain)


# what only the reference model sees: the records say otherwise than what was decided and told


@mutation("a call's record holds another result than its agent got")
def change_record(patch: Patch) -> None:
    def settle(ctx: Any, call: Any, event: Any, **how: Any) -> Any:
        done = orig(ctx, call, event, **how)
        if done.result is not None and "n" in done.result:
            ctx.put(CALLS, calls.key_of(done), replace(done, result=done.result | {"n": done.result["n"] + 1}))
        return done

    orig = patch.set(calls, "settle", settle)


@mutation("two below the front change places in the focus stack")
def shuffle_focus(patch: Patch) -> None:
    def front(ctx: Any, instance_id: str, **how: Any) -> None:
        orig(ctx, instance_id, **how)
        key = (ctx.need(INSTANCES, (instance_id,)).conversation_id,)
        row = ctx.need(CONVERSATIONS, key)
        if len(row.focus) > 2:
            ctx.put(CONVERSATIONS, key, replace(row, focus=(*row.focus[:-1][::-1], row.focus[-1])))

    orig = patch.set(instances, "front", front)


@mutation("a draft is confirmed and not kept")
def forget_drafts(patch: Patch) -> None:
    patch.set(interactions, "keep_draft", lambda ctx, interaction_id, draft: None)


@mutation("a saved state is confirmed and another one kept")
def forget_states(patch: Patch) -> None:
    def save(ctx: Any, instance: Any, body: Any) -> Any:
        answer = orig(ctx, instance, body)
        saved = ctx.need(SNAPSHOTS, (instance.instance_id,))
        ctx.put(SNAPSHOTS, (instance.instance_id,), replace(saved, state={}))
        return answer

    orig = worker_link._RULES["state.save"]
    patch.item(worker_link._RULES, "state.save", save)


@mutation("what a page has said is not remembered")
def forget_said(patch: Patch) -> None:
    patch.set(actions, "_remember", lambda ctx, subject_id, action_id, detail: None)
