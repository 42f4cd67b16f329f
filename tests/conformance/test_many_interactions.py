"""A thousand questions asked and answered in many conversations at once: each answer reaches the one who asked.

Half of them come from MiniApps, half from agents; they are answered in an order that has nothing to do with theirs, and
each answer names the question that it was given to, so that a wrong address shows.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from core.harness import Core, Worker
from lineup_supervisor.core.policy import Policy

QUESTIONS = 1_000
CONVERSATIONS = 40
AGENTS = 4
PER_CONVERSATION = QUESTIONS // CONVERSATIONS
CHECK_EVERY = 200  # events; the invariants look at every row
FORM = {"title": "Who?", "prompt": "Who asks?", "fields": [{"id": "who", "label": "Who", "type": "text"}]}
MANY = Policy(workers_max=2 * CONVERSATIONS, workers_starting_max=2 * CONVERSATIONS)


class Crowd(Core):
    """The core with its invariants looked at now and then."""

    _events = 0

    def check(self) -> None:
        self._events += 1
        if self._events % CHECK_EVERY == 0:
            super().check()

    def acknowledge(self) -> None:
        """Every agent has taken over what it got: the outbox's window moves on."""
        for link, frames in self.frames.items():
            if seqs := [frame["seq"] for frame in frames if "seq" in frame]:
                self.send("ack", {"seq": max(seqs)}, link=link)


@pytest.mark.conformance("03-9.7")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.timeout(300)
def test_none_is_misrouted(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    core = Crowd(policy=MANY)
    for n in range(AGENTS):
        core.connect(f"a{n}")
    askers: dict[
        str, tuple[str, str]
    ] = {}  # interaction_id → who must get the answer: (a worker's instance or agent, token)
    workers = [_worker(core, n) for n in range(CONVERSATIONS)]
    turns = [n for n in range(CONVERSATIONS) for _ in range(PER_CONVERSATION)]
    chance.shuffle(turns)
    for number, n in enumerate(turns):
        if number % 2:
            detail = workers[n].accept("ui.request", request={"kind": "input", **FORM}, key=f"t{number}")
            askers[detail["interaction_id"]] = (workers[n].instance_id, f"t{number}")
        else:
            core.call_accepted("input", FORM, call_id=f"t{number}", link=f"a{n % AGENTS}", conversation=f"c{n}")
    for question in core.questions():
        if call_id := question["owner"].get("parent_call_id"):
            n = int(question["owner"]["conversation_id"].removeprefix("c"))
            askers[question["interaction_id"]] = (f"a{n % AGENTS}", call_id)
    assert len(askers) == QUESTIONS
    order = list(askers)
    chance.shuffle(order)
    for number, interaction_id in enumerate(order):
        core.did(
            "interaction.answer", interaction_id=interaction_id, result={"values": {"who": askers[interaction_id][1]}}
        )
        _interact(core)
        if number % 50 == 0:
            core.acknowledge()
    core.acknowledge()
    _every_answer_came_home(core, workers, askers)
    Core.check(core)


def _worker(core: Core, n: int) -> Worker:
    core.call_accepted("lab.direct", call_id=f"open-{n}", link=f"a{n % AGENTS}", conversation=f"c{n}")
    worker = core.start("lab")
    worker.take(f"open-{n}")
    return worker


def _interact(core: Core) -> None:
    """Every Interact passes on what it was told, and takes no other app's answers."""
    while core.unstarted:
        core.start("chat")
    for worker in core.workers.values():
        if worker.app_scope != "chat":
            continue
        for delivery in worker.deliveries("interaction.result"):
            question = delivery["body"]["interaction"]
            assert question["owner"]["instance_id"] == worker.instance_id
            worker.accept("tool.complete", call_id=question["owner"]["parent_call_id"], result=question["result"])
            worker.accept("inbox.ack", seq=delivery["seq"])
        worker.messages.clear()


def _every_answer_came_home(core: Core, workers: list[Worker], askers: dict[str, tuple[str, str]]) -> None:
    got: dict[str, list[tuple[str, str]]] = {}
    for worker in workers:
        seen: set[int] = set()
        while news := [d for d in worker.deliveries("interaction.result") if d["seq"] not in seen]:
            for delivery in news:
                seen.add(delivery["seq"])
                question: dict[str, Any] = delivery["body"]["interaction"]
                assert question["owner"]["instance_id"] == worker.instance_id
                where = (worker.instance_id, question["result"]["values"]["who"])
                got.setdefault(question["interaction_id"], []).append(where)
                worker.accept("inbox.ack", seq=delivery["seq"])
    results: dict[str, list[tuple[str, str]]] = {}
    for link, frames in core.frames.items():
        for seq, payload in {f["seq"]: f["payload"] for f in frames if f["type"] == "lineup.v1.tool.result"}.items():
            assert payload["status"] == "completed", (seq, payload)
            results.setdefault(payload["call_id"], []).append((link, payload["result"]["values"]["who"]))
    for interaction_id, (who, token) in askers.items():
        came = got.get(interaction_id) if who.startswith("i") else results.get(token)
        assert came == [(who, token)], f"{interaction_id} of {who} ({token}) came to {came}"
    assert len(got) + len(results) == QUESTIONS
    assert core.questions() == []
