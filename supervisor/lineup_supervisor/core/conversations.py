"""Conversations and the texts in them: from agents to people, from people to agents.

A text becomes durable as a timeline entry; an agent's text also goes to Interact's inbox, a person's text to the
agent's outbox.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import inbox, instances, outbox, timeline
from lineup_supervisor.core.audit import audit, digest
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    AGENTS,
    CONVERSATIONS,
    INSTANCES,
    REQUESTS,
    SESSIONS,
    Conversation,
    Entry,
    Instance,
    Request,
)
from lineup_supervisor.core.tables import InstanceState

replace = msgspec.structs.replace


def agent_text(ctx: Ctx, agent_id: str, conversation_id: str, text: str, format_: str) -> None:
    """An agent says something; it opens the conversation if it is new.

    Raises:
        LineUpError: ``unauthorized``; ``rate_limited`` if too much waits for Interact, or there are too many
            conversations; nothing is said.
    """
    conversation = ctx.get(CONVERSATIONS, (conversation_id,))
    if conversation is None:
        conversation = instances.open_conversation(ctx, conversation_id, agent_id, opened_by="agent")
    elif conversation.agent_id != agent_id:
        raise LineUpError("unauthorized", f"conversation {conversation_id} belongs to another agent")
    _check_room(ctx, conversation, text)
    session_id = _session_in_front(ctx, conversation)
    entry = timeline.append(ctx, conversation_id, "text", "agent", text=text, format=format_, session_id=session_id)
    audit(ctx, "text.from_agent", conversation_id, agent_id, text=digest(text))
    if conversation.chat_instance_id:
        body = {"text": text, "format": format_, "at": to_rfc3339(entry.at_ms), "from": "agent", "entry": entry.n}
        inbox.append(ctx, conversation.chat_instance_id, "message.text", body, owed=True)


def _check_room(ctx: Ctx, conversation: Conversation, text: str) -> None:
    """Before the text stands in the timeline: Interact has room for it."""
    if conversation.chat_instance_id:
        chat = ctx.need(INSTANCES, (conversation.chat_instance_id,))
        inbox.check_room(ctx, chat, inbox.size_of({"text": text}))


def person_text(ctx: Ctx, conversation_id: str, text: str, action_id: str, session_id: str = "") -> Entry:
    """A person says something to the conversation's agent; it waits in the outbox until that agent takes it.

    Raises:
        LineUpError: ``not_found``, ``message_invalid``, ``message_too_large``; ``unauthorized`` in a conversation that
            the command line has opened: it calls tools and reads no texts. Nothing is said.
    """
    conversation = existing(ctx, conversation_id)
    if conversation.agent_id == outbox.OPERATOR:
        raise LineUpError(
            "unauthorized", "this conversation was opened from the command line, and no agent reads what is said in it"
        )
    if not text.strip():
        raise LineUpError("message_invalid", "/text: must not be empty", detail={"path": "/text", "rule": "not empty"})
    if len(text) > limits.TEXT_LENGTH_MAX:
        raise LineUpError("message_too_large", f"/text: at most {limits.TEXT_LENGTH_MAX} characters")
    if session_id:
        session = ctx.get(SESSIONS, (session_id,))
        if session is None or session.conversation_id != conversation_id:
            raise LineUpError("not_found", f"no app session {session_id} in this conversation")
    else:
        session_id = _session_in_front(ctx, conversation)
    entry = timeline.append(
        ctx, conversation_id, "text", "person", text=text, action_id=action_id, session_id=session_id
    )
    payload = {"text": text, "at": to_rfc3339(entry.at_ms)}
    outbox.append(ctx, conversation.agent_id, "lineup.v1.message.text", conversation_id, payload)
    audit(ctx, "text.from_person", conversation_id, conversation.agent_id, text=digest(text))
    return entry


def send_text_from_app(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> dict[str, Any]:
    """``conversation.send_text``: the system extension of Interact, and of nobody else."""
    if instance.kind != "system":
        raise LineUpError("capability_denied", "only Interact may send texts to the agent")
    key = body.get("key", "")
    text_digest = digest(body["text"])
    if key:
        made = ctx.get(REQUESTS, (instance.instance_id, f"text:{key}"))
        if made is not None and made.digest == text_digest:
            return {"entry": int(made.ref)}
    entry = person_text(ctx, instance.conversation_id, body["text"], action_id=key)
    if key:
        ctx.put(REQUESTS, (instance.instance_id, f"text:{key}"), Request(ref=str(entry.n), digest=text_digest))
    return {"entry": entry.n}


def open_by_person(ctx: Ctx, agent_id: str | None, title: str) -> Conversation:
    """A person opens a conversation with the agent that they pick, else with the one connected last.

    Raises:
        LineUpError: ``not_found`` if there is no such agent, or none at all; ``rate_limited``.
    """
    if agent_id is None:
        agent_id = last_connected(ctx)
    elif agent_id == outbox.OPERATOR or ctx.get(AGENTS, (agent_id,)) is None:
        raise LineUpError("not_found", f"no agent {agent_id} has ever connected")
    return instances.open_conversation(ctx, ctx.new_id("c"), agent_id, opened_by="person", title=title)


def last_connected(ctx: Ctx) -> str:
    agents = [row for _, row in ctx.txn.scan(AGENTS) if row.agent_id != outbox.OPERATOR]
    if not agents:
        raise LineUpError("not_found", "no agent has connected yet; start one, for example with `lineup up --demo`")
    return max(agents, key=lambda row: (row.link_id is not None, row.last_hello_ms, row.agent_id)).agent_id


def existing(ctx: Ctx, conversation_id: str) -> Conversation:
    conversation = ctx.get(CONVERSATIONS, (conversation_id,))
    if conversation is None:
        raise LineUpError("not_found", f"no conversation {conversation_id}")
    return conversation


def _session_in_front(ctx: Ctx, conversation: Conversation) -> str:
    """While an app is in front, what people and agent say belongs to its session."""
    top = ctx.get(INSTANCES, (conversation.focus[-1],)) if conversation.focus else None
    if top is None or top.state == InstanceState.CLOSED:
        return ""
    return top.session_id
